//! redis-py, with which lock-redis is to share locks: from PyPI, by the machine's own Python.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;

const VERSION: &str = "8.1.0";

/// Puts it into `dir` unless it is there.
pub(super) fn install(dir: &Path) -> Result<()> {
    if testbed::redis_py().is_ok_and(|python| version(&python).is_ok_and(|found| found == VERSION)) {
        return Ok(());
    }
    println!("servers: downloading redis-py {VERSION}");
    let new = dir.with_extension("new");
    for stale in [&new, &dir.to_path_buf()] {
        if stale.exists() {
            fs::remove_dir_all(stale).map_err(|error| format!("cannot remove {}: {error}", stale.display()))?;
        }
    }
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ])
    .args(["--no-compile", "--only-binary", ":all:", "--target"])
    .arg(&new)
    .arg(format!("redis=={VERSION}"));
    run(&mut pip).map_err(|error| format!("no redis-py: {error}"))?;
    // It appears only when it is complete.
    fs::rename(&new, dir).map_err(|error| format!("cannot rename {}: {error}", new.display()))?;
    let found = version(&testbed::redis_py().map_err(|error| error.to_string())?)?;
    if found != VERSION {
        return Err(format!("redis-py {VERSION} was installed, but Python finds {found}"));
    }
    Ok(())
}

/// Its version, or why it does not run.
pub(super) fn describe(python: &Command) -> String {
    version(python).unwrap_or_else(|error| error)
}

fn version(python: &Command) -> Result<String> {
    let mut command = Command::new(python.get_program());
    command.args(python.get_args());
    for (name, value) in python.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    run(command.args(["-c", "import redis; print(redis.__version__)"]))
}

/// What it prints.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no {program} on this machine: install it"),
        _ => format!("cannot start {program}: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // pip's last line says most.
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(format!(
        "{program} failed: {}",
        said.last().unwrap_or(&"it said nothing")
    ))
}
