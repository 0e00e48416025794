//! From a peer's sources, in `benchmarks/peers`, to a command that runs it. What is built goes under `target/peers`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::arena::Backend;

/// What a peer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Rust,
    Go,
    Java,
}

/// The command to run, or why there is none.
pub(crate) async fn build(family: Family, backend: Backend, url: &str) -> Result<Command, String> {
    let out = out()?;
    let mut run = match family {
        Family::Rust => rust(backend, &out).await?,
        Family::Go => go(&out.join("go")).await?,
        Family::Java => java(&out.join("java")).await?,
    };
    run.arg(url);
    Ok(run)
}

async fn rust(backend: Backend, out: &Path) -> Result<Command, String> {
    if !cfg!(feature = "peers") {
        return Err("it is there with `--features peers` only".into());
    }
    let program = backend.name();
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--quiet", "--release", "--locked", "--features", program, "--bin", program])
        .current_dir(sources("rust"))
        .arg("--target-dir")
        .arg(out);
    finish(cargo, "cargo").await?;
    Ok(Command::new(out.join("release").join(program)))
}

async fn go(out: &Path) -> Result<Command, String> {
    let program = out.join("peers");
    let mut go = Command::new("go");
    go.arg("build").arg("-o").arg(&program).arg(".").current_dir(sources("go"));
    finish(go, "go").await?;
    Ok(Command::new(program))
}

async fn java(out: &Path) -> Result<Command, String> {
    let mut version = Command::new("java");
    version.arg("-version").stderr(Stdio::null());
    finish(version, "java").await?;
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "package"])
        .arg(format!("-Dout={}", out.display()))
        .current_dir(sources("java"));
    finish(mvn, "mvn").await?;
    let class_path = format!("{}:{}", out.join("classes").display(), out.join("lib/*").display());
    let mut java = Command::new("java");
    java.arg("-cp").arg(class_path).arg("Peers");
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
