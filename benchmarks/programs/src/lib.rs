//! From a peer's sources, in `benchmarks/peers`, to a command that runs it. What is built goes under `target/peers`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that are set beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// One without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The same with one more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// What starts it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command
    }
}

/// How a Rust program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As it is measured.
    Release,
    /// As it is built soonest.
    Debug,
}

/// A binary of the workspace `benchmarks/peers/rust`, with the feature that it needs.
///
/// # Errors
/// If it cannot be built.
///
/// # Cancel safety
/// If it is dropped, the build goes on.
pub async fn rust(binary: &str, feature: &str, profile: Profile) -> Result<Program, String> {
    let out = out()?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--quiet", "--locked", "--features", feature, "--bin", binary])
        .current_dir(sources("rust"))
        .arg("--target-dir")
        .arg(&out);
    let folder = match profile {
        Profile::Release => {
            cargo.arg("--release");
            "release"
        }
        Profile::Debug => "debug",
    };
    finish(cargo, "cargo").await?;
    Ok(Program::new(out.join(folder).join(binary)))
}

/// A package of the module `benchmarks/peers/go`: `.` for the one in its root.
///
/// # Errors
/// If it cannot be built.
///
/// # Cancel safety
/// If it is dropped, the build goes on.
pub async fn go(package: &str) -> Result<Program, String> {
    let name = match package {
        "." => "peers",
        package => package.trim_start_matches("./"),
    };
    let program = out()?.join("go").join(name);
    let mut go = Command::new("go");
    go.arg("build")
        .arg("-o")
        .arg(&program)
        .arg(package)
        .current_dir(sources("go"));
    finish(go, "go").await?;
    Ok(Program::new(program))
}

/// A class of `benchmarks/peers/java`.
///
/// # Errors
/// If it cannot be built.
///
/// # Cancel safety
/// If it is dropped, the build goes on.
pub async fn java(class: &str) -> Result<Program, String> {
    let out = out()?.join("java");
    let mut version = Command::new("java");
    version.arg("-version").stderr(Stdio::null());
    finish(version, "java").await?;
    let mut mvn = Command::new("mvn");
    mvn.args(["--quiet", "--batch-mode", "-Dstyle.color=never", "package"])
        .arg(format!("-Dout={}", out.display()))
        .current_dir(sources("java"));
    finish(mvn, "mvn").await?;
    let class_path = format!("{}:{}", out.join("classes").display(), out.join("lib/*").display());
    let java = Program::new("java");
    Ok(java.argument("-cp").argument(class_path).argument(class))
}

/// A file of `benchmarks/peers/python`, with this Python of the test bed's.
///
/// # Errors
/// If there is no such Python.
pub fn python(file: &str, python: Result<Command, testbed::Error>) -> Result<Program, String> {
    let command = python.map_err(|error| error.to_string())?;
    let mut program = Program::new(command.get_program());
    program.arguments = command.get_args().map(Into::into).collect();
    let environment = command.get_envs();
    program.environment = environment
        .filter_map(|(name, value)| Some((name.into(), value?.into())))
        .collect();
    Ok(program.argument(sources("python").join(file)))
}

/// Waits for a build.
async fn finish(command: Command, program: &str) -> Result<(), String> {
    eprintln!("building peers with {program} ...");
    let mut command = tokio::process::Command::from(command);
    match command.stdout(Stdio::null()).status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} failed ({status}): it says why above")),
        Err(error) => Err(format!("there is no {program} here ({error})")),
    }
}

fn sources(family: &str) -> PathBuf {
    let benchmarks = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    benchmarks.unwrap_or(Path::new(".")).join("peers").join(family)
}

/// `peers` beside the profile's folder in which this program is.
fn out() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is, is not known: {error}"))?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.unwrap_or(Path::new("target")).join("peers"))
}
