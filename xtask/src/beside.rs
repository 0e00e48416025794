//! `cargo xtask beside`: an older version and this one exclude each other.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::Result;

/// The last commit whose locks were exclusive alone.
pub(crate) const BEFORE_MODES: &str = "48ad136";

/// What the processes do: hold names alone, and hold them together where their version can.
const RUNS: [&[&str]; 3] = [
    &["--nemesis", "none"],
    &["--nemesis", "stop,kill"],
    &["--nemesis", "stop,kill", "--modes"],
];

/// Builds torture as it was at this commit, and runs its processes beside those of today.
pub(crate) fn run(commit: &str) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("xtask is no folder of a workspace")?;
    let hash = output(git(root).args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")]))?;
    let dir = root.join("target/beside");
    let older = dir.join(&hash);
    if !older.join("Cargo.toml").exists() {
        // One whose folder was deleted is still known.
        succeed(git(root).args(["worktree", "prune"]))?;
        succeed(git(root).args(["worktree", "add", "--detach"]).arg(&older).arg(&hash))?;
    }
    let target = dir.join("target");
    println!("building torture of {hash}");
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&older).args(["build", "--package", "torture"]);
    succeed(build.arg("--target-dir").arg(&target))?;
    let program = target.join("debug/torture");
    for options in RUNS {
        println!("beside {hash}: {}", options.join(" "));
        let mut torture = Command::new(env!("CARGO"));
        torture
            .current_dir(root)
            .args(["run", "--quiet", "--package", "torture", "--"]);
        torture.args(["run", "--backend", "redis", "--beside"]).arg(&program);
        succeed(torture.args(options))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root);
    git
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {status}")),
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
