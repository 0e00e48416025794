//! Where and when this is.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

/// How this was called, as one calls it by cargo.
pub(crate) fn command() -> String {
    let features = if cfg!(feature = "peers") {
        " --features peers"
    } else {
        ""
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p benchmarks{features} -- {}", arguments.join(" "))
}

/// Keeps this thread, and all threads and processes that it starts, on the first cores that it may use.
#[cfg(target_os = "linux")]
pub(crate) fn pin(cores: usize) -> std::io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None)?;
    let mut pinned = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).take(cores);
    first.for_each(|core| pinned.set(core));
    Ok(sched_setaffinity(None, &pinned)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_cores: usize) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Today, in UTC.
pub(crate) fn date() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().into()
}

/// How many processes wanted to run in the last minute.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_deref().and_then(|load| load.split(' ').next());
    load.unwrap_or("unknown").into()
}

/// Of everything that all backends have in common.
pub(crate) fn versions() -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    vec![
        (
            "polylock".into(),
            format!("{}, commit {}, {profile} build", env!("CARGO_PKG_VERSION"), commit()),
        ),
        (
            "rustc".into(),
            said_by("rustc", &["--version"]).unwrap_or("unknown".into()),
        ),
        ("machine".into(), format!("{} cores, {}", cores, processor())),
    ]
}

/// Which one of polylock's was measured, with a `+` when the code is not as it was committed.
fn commit() -> String {
    let git = |arguments: &[&str]| said_by("git", &[&["-C", env!("CARGO_MANIFEST_DIR")], arguments].concat());
    let head = git(&["rev-parse", "--short", "HEAD"]);
    // What this program writes is not what it measures.
    let changed = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        ":!/docs",
        ":!/README.md",
    ]);
    named(head, changed.is_some())
}

fn named(head: Option<String>, is_changed: bool) -> String {
    match head {
        Some(head) if is_changed => format!("{head}+"),
        Some(head) => head,
        None => "unknown".into(),
    }
}

/// The first line that a program says.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(Into::into)
}

fn processor() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("an unknown processor", |(_, model)| model).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_named_with_what_was_changed_since() {
        let head = || Some("1a2b3c4".to_owned());
        assert_eq!(named(head(), false), "1a2b3c4");
        assert_eq!(named(head(), true), "1a2b3c4+");
        assert_eq!(named(None, true), "unknown", "without git, or outside its tree");
    }
}
