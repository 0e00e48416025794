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
    Python,
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Program {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command
    }

    /// The program of the same peer that is a candidate in an election.
    pub(crate) fn electing(&self) -> Self {
        let mut electing = self.clone();
        for argument in electing.arguments.iter_mut().filter(|argument| *argument == JAVA_MAIN) {
            *argument = JAVA_CANDIDATE.into();
        }
        electing
    }
}

/// The classes to start.
const JAVA_MAIN: &str = "Peers";
const JAVA_CANDIDATE: &str = "Candidate";

/// Builds it, or says why not.
pub(crate) async fn build(family: Family, backend: Backend) -> Result<Program, String> {
    let out = out()?;
    match family {
        Family::Rust => rust(backend, &out).await,
        Family::Go => go(&out.join("go")).await,
        Family::Java => java(&out.join("java")).await,
        Family::Python => python(),
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
    java.arguments = ["-cp", &class_path, JAVA_MAIN].map(Into::into).into();
    Ok(java)
}

/// With redis-py, as the tests have it.
fn python() -> Result<Program, String> {
    let command = testbed::redis_py().map_err(|error| error.to_string())?;
    let mut python = Program::new(command.get_program());
    python.arguments = command.get_args().map(Into::into).collect();
    python.arguments.push(sources("python").join("peers.py").into());
    let environment = command.get_envs();
    python.environment = environment
        .filter_map(|(name, value)| Some((name.into(), value?.into())))
        .collect();
    Ok(python)
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
