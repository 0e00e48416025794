//! Python's clients, with which our backends are to share locks: from PyPI, by the machine's own Python.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// A client in Python.
pub(super) struct Client {
    /// Its name, and the name of its folder.
    pub(super) title: &'static str,
    package: &'static str,
    version: &'static str,
    find: fn() -> std::result::Result<Command, testbed::Error>,
}

pub(super) const CLIENTS: [Client; 2] = [
    Client {
        title: testbed::REDIS_PY,
        package: "redis",
        version: "8.1.0",
        find: testbed::redis_py,
    },
    Client {
        title: testbed::KAZOO,
        package: "kazoo",
        version: "2.11.0",
        find: testbed::kazoo,
    },
];

impl Client {
    /// A Python that has it.
    pub(super) fn find(&self) -> std::result::Result<Command, testbed::Error> {
        (self.find)()
    }

    /// Its version, or why it does not run.
    pub(super) fn describe(&self, python: &Command) -> String {
        self.version_in(python).unwrap_or_else(|error| error)
    }

    fn version_in(&self, python: &Command) -> Result<String> {
        let mut command = Command::new(python.get_program());
        command.args(python.get_args());
        for (name, value) in python.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let package = self.package;
        run(command.arg("-c").arg(format!(
            "import {package}; from importlib.metadata import version; print(version('{package}'))"
        )))
    }
}

/// Puts it into `dir` unless it is there.
pub(super) fn install(client: &Client, dir: &Path) -> Result<()> {
    let Client {
        title,
        package,
        version,
        ..
    } = client;
    let installed = client.find().ok().and_then(|python| client.version_in(&python).ok());
    if installed.is_some_and(|found| found == *version) {
        return Ok(());
    }
    println!("servers: downloading {title} {version}");
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
    .arg(format!("{package}=={version}"));
    run(&mut pip).map_err(|error| format!("no {title}: {error}"))?;
    // It appears only when it is complete.
    fs::rename(&new, dir).map_err(|error| format!("cannot rename {}: {error}", new.display()))?;
    let found = client.version_in(&client.find().map_err(|error| error.to_string())?)?;
    if found != *version {
        return Err(format!("{title} {version} was installed, but Python finds {found}"));
    }
    Ok(())
}

/// What it prints.
pub(super) fn run(command: &mut Command) -> Result<String> {
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
