//! cargo-deny: licences, sources and bans of what we depend on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::run;
use crate::Result;

const VERSION: &str = "0.20.2";

/// Cargo finds its commands on the path.
pub(crate) fn path() -> Result<OsString> {
    let system = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tools().join("bin")).chain(std::env::split_paths(&system));
    std::env::join_paths(path).map_err(|error| error.to_string())
}

/// What is missing, in words.
pub(crate) fn missing() -> Option<String> {
    let said = Command::new(program()).arg("--version").stderr(Stdio::null()).output();
    let found = said.is_ok_and(|said| {
        String::from_utf8_lossy(&said.stdout)
            .trim()
            .ends_with(&format!(" {VERSION}"))
    });
    (!found).then(|| format!("no cargo-deny {VERSION} in {}", tools().display()))
}

/// Unoptimised: it takes far longer to build than to run.
pub(crate) fn install() -> Result<()> {
    if missing().is_none() {
        return Ok(());
    }
    println!("installing cargo-deny {VERSION}");
    let build = tools().join("build");
    let status = run::cargo()
        .args([
            "install",
            "--debug",
            "--locked",
            "--force",
            "--no-default-features",
            "--quiet",
        ])
        .args(["--version", VERSION, "cargo-deny", "--root"])
        .arg(tools())
        .env("CARGO_TARGET_DIR", &build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err(format!("cargo install cargo-deny: {status}"));
    }
    std::fs::remove_dir_all(&build).map_err(|error| format!("cannot remove {}: {error}", build.display()))
}

fn program() -> PathBuf {
    tools().join("bin/cargo-deny")
}

fn tools() -> PathBuf {
    testbed::installed_dir().with_file_name("tools")
}
