//! The oldest compilers and the other systems for which `docs/compatibility.md` says that the code compiles.

use std::process::{Command, Stdio};

use super::steps::{Kind, Step, step};
use crate::Result;

/// A compiler of its own for each of them.
const TOOLCHAINS: [&str; 2] = ["1.89", "1.94"];

const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// What compiles with which of `TOOLCHAINS`.
const CHECKED: [(&str, &str); 3] = [
    (
        "1.89",
        "check -p polylock -p conformance-tests --features redis,postgres,zookeeper,tls,zookeeper-tls,serde,metrics,blocking",
    ),
    ("1.94", "check -p polylock --all-features"),
    ("1.94", "check -p polylock-cli"),
];

/// What compiles on `TARGETS`.
const ON_TARGETS: &str = "-p polylock --features redis,zookeeper,quorum,serde,metrics,blocking";

pub(super) fn steps() -> Vec<Step> {
    let old = CHECKED.map(|(toolchain, arguments)| Step {
        toolchain: Some(toolchain),
        ..apart(&format!("Rust {toolchain}: {arguments}"), arguments)
    });
    let targets = TARGETS.map(|target| apart(&format!("on {target}"), &on_target(target)));
    old.into_iter().chain(targets).collect()
}

/// In a target folder of its own: each of these would push out what the others built.
fn apart(name: &str, arguments: &str) -> Step {
    step(
        name,
        Kind::Build,
        &format!("{arguments} --locked --target-dir target/reach"),
    )
}

fn on_target(target: &str) -> String {
    format!("check --target {target} {ON_TARGETS}")
}

/// What rustup has not installed, in words.
pub(super) fn missing() -> Vec<String> {
    let toolchains = TOOLCHAINS
        .into_iter()
        .filter(|toolchain| !succeeds(rustup(&["run", toolchain, "rustc", "--version"])))
        .map(|toolchain| format!("no Rust {toolchain}: rustup toolchain install {toolchain}"));
    let installed = rustup(&["target", "list", "--installed"]).output();
    let installed = installed.map_or_else(
        |_| String::new(),
        |said| String::from_utf8_lossy(&said.stdout).into_owned(),
    );
    let targets = TARGETS
        .into_iter()
        .filter(|target| !installed.lines().any(|line| line == *target))
        .map(|target| format!("no standard library for {target}: rustup target add {target}"));
    toolchains.chain(targets).collect()
}

pub(super) fn install() -> Result<()> {
    if missing().is_empty() {
        return Ok(());
    }
    let mut toolchains = rustup(&["toolchain", "install", "--profile", "minimal"]);
    toolchains.args(TOOLCHAINS);
    let mut targets = rustup(&["target", "add"]);
    targets.args(TARGETS);
    for mut command in [toolchains, targets] {
        let status = command
            .status()
            .map_err(|error| format!("cannot start rustup: {error}"))?;
        if !status.success() {
            return Err(format!("{command:?}: {status}"));
        }
    }
    Ok(())
}

fn rustup(arguments: &[&str]) -> Command {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(super::root()).args(arguments);
    rustup
}

fn succeeds(mut command: Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatibility_names_each_command() {
        let page = std::fs::read_to_string(super::super::root().join("docs/compatibility.md")).expect("it is there");
        let old = CHECKED.map(|(toolchain, arguments)| format!("cargo +{toolchain} {arguments}\n"));
        let targets = TARGETS.map(|target| format!("cargo {}\n", on_target(target)));
        for command in old.into_iter().chain(targets) {
            assert!(page.contains(&command), "{command}");
        }
    }

    #[test]
    fn each_compiler_is_used() {
        for toolchain in TOOLCHAINS {
            assert!(CHECKED.iter().any(|(with, _)| *with == toolchain), "{toolchain}");
        }
    }
}
