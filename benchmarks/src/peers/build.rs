//! From a peer's sources, in `benchmarks/peers`, to a command that runs it. What is built goes under `target/peers`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::entry::Backend;

/// What a peer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Rust,
    Go,
    Java,
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

impl Program {
    fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let arguments = Vec::new();
        Self { path, arguments }
    }
}

/// Builds it, or says why not.
pub(crate) async fn build(family: Family, backend: Backend) -> Result<Program, String> {
    let out = out()?;
    match family {
        Family::Rust => rust(backend, &out).await,
        Family::Go => go(&out.join("go")).await,
        Family::Java => java(&out.join("java")).await,
    }
}

async fn rust(backend: Backend, out: &Path) -> Result<Program, String> {
    if !cfg!(feature = "peers") {
        return Err("it is there with `--features peers` only".into());
    }
    let program = backend.name();
    let mut cargo = Command::new("cargo");
    cargo
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--features",
            program,
            "--bin",
            program,
        ])
        .current_dir(sources("rust"))
        .arg("--target-dir")
        .arg(out);
    finish(cargo, "cargo").await?;
    Ok(Program::new(out.join("release").join(program)))
}

async fn go(out: &Path) -> Result<Program, String> {
    let program = out.join("peers");
    let mut go = Command::new("go");
    go.arg("build")
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(sources("go"));
    finish(go, "go").await?;
    Ok(Program::new(program))
}

async fn java(out: &Path) -> Result<Program, String> {
    let mut version = Command::new("java");
    version.arg("-version").stderr(Stdio::null());
    finish(version, "java").await?;
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "-Dstyle.color=never", "package"])
        .arg(format!("-Dout={}", out.display()))
        .current_dir(sources("java"));
    finish(mvn, "mvn").await?;
    let class_path = format!("{}:{}", out.join("classes").display(), out.join("lib/*").display());
    let mut java = Program::new("java");
    java.arguments = ["-cp", &class_path, "Peers"].map(Into::into).into();
    Ok(java)
}

/// Waits for a build.
async fn finish(mut command: Command, program: &str) -> Result<(), String> {
    eprintln!("building peers with {program} ...");
    match command.stdout(Stdio::null()).status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed ({status}): it says why above")),
        Err(error) => Err(format!("there is no {program} here ({error})")),
    }
}

fn sources(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(family)
}

/// `peers` beside the profile's folder in which this program is.
fn out() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is, is not known: {error}"))?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.unwrap_or(Path::new("target")).join("peers"))
}
