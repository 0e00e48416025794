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
            format!("{}, {profile} build", env!("CARGO_PKG_VERSION")),
        ),
        (
            "rustc".into(),
            said_by("rustc", &["--version"]).unwrap_or("unknown".into()),
        ),
        ("machine".into(), format!("{} cores, {}", cores, processor())),
    ]
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
