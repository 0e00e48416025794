//! `bench`: what it measures, what it refuses, and that nothing stays.

use rustix::process::Signal;
use serde_json::Value;
use testbed::in_some_run;

use crate::support::{Running, redis, run};

/// Nobody holds or waits for any name.
fn assert_nothing_is_left(url: &str) {
    let listed = run(url, &["list"]);
    assert_eq!((listed.code, listed.output.len()), (Some(0), 0), "{listed:?}");
}

/// A run that leaves nothing. The error is a line without the figures that these locks have.
fn measures(url: &str, locks: &str) -> Result<(), String> {
    let line = ["bench", "--tasks", "1,4", "--seconds", "1", "--locks", locks, "--json"];
    let measured = run(url, &line);
    assert_eq!((measured.code, measured.output.len()), (Some(0), 2), "{measured:?}");
    assert!(
        measured.messages.starts_with("polylock: this loads the server"),
        "{measured:?}"
    );
    assert_nothing_is_left(url);
    for (line, tasks) in measured.output.iter().zip([1, 4]) {
        let figures: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&figures["tasks"], &figures["locks"]),
            (&tasks.into(), &locks.into()),
            "{line}"
        );
        assert_eq!(figures["scheme"], "redis", "{line}");
        let has_pairs = figures["pairs"].as_u64() > Some(0);
        if !has_pairs || figures["hand_off_ms"].is_null() != (locks == "own") {
            return Err(line.clone());
        }
        let [p99, median] = ["p99", "median"].map(|figure| figures["acquire_ms"][figure].as_f64());
        assert!(p99.expect("a number") >= median.expect("a number"), "{line}");
    }
    Ok(())
}

#[testbed::test]
async fn bench_measures_and_leaves_nothing() {
    let server = redis().await;
    for locks in ["own", "one"] {
        // In a second on a busy machine, there may be no pair, or none after another one.
        in_some_run("it measures nothing", async || measures(&server.url(), locks)).await;
    }
    let text = run(&server.url(), &["bench", "--tasks", "2", "--seconds", "1", "--quiet"]);
    assert_eq!((text.code, text.messages.as_str()), (Some(0), ""), "{text:?}");
    assert!(
        text.output[0].starts_with("2 tasks  ") && text.output[0].contains(" pairs/s "),
        "{text:?}"
    );
}

#[test]
fn bench_refuses_to_load_a_server_for_long() {
    for options in [
        &["--seconds", "61"][..],
        &["--seconds", "31"],
        &["--seconds", "0"],
        &["--tasks", "65"],
        &["--tasks", "0"],
        &["--tasks", "x"],
    ] {
        let refused = run("redis://127.0.0.1:1", &[&["bench"], options].concat());
        assert_eq!(
            (refused.code, refused.output.len()),
            (Some(64), 0),
            "{options:?}: {refused:?}"
        );
    }
    let memory = run("memory:", &["bench"]);
    assert_eq!(memory.code, Some(64), "{memory:?}");
    let nobody = run("redis://127.0.0.1:1", &["bench", "--connect-timeout", "1s"]);
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
}

/// The second one is told, and the first one releases everything when a signal ends it.
#[testbed::test]
async fn one_bench_at_a_time_which_a_signal_ends() {
    let server = redis().await;
    let url = server.url();
    let first = Running::start(&url, &["bench", "--tasks", "8", "--locks", "one", "--seconds", "60"]);
    first.wait_for_message("this loads the server");
    while run(&url, &["status", "--lock", "polylock:bench"]).code != Some(0) {}
    let second = run(&url, &["bench", "--tasks", "1", "--seconds", "1"]);
    assert_eq!((second.code, second.output.len()), (Some(75), 0), "{second:?}");
    first.signal(Signal::TERM);
    let ended = first.end();
    assert_eq!((ended.code, ended.output.len()), (Some(143), 0), "{ended:?}");
    assert_nothing_is_left(&url);
}
