//! The end of a command whose lock is lost.

use std::io::pipe;

use rustix::process::Signal;
use testbed::in_some_run;

use crate::support::{Running, command, delete_lock, fill, redis, run};

/// A command that ends on SIGTERM, and says so.
const POLITE: &str = "trap 'echo told; exit 0' TERM; echo started; while :; do sleep 0.05; done";

/// A command that does not.
const STUBBORN: &str = "trap '' TERM; echo started; while :; do sleep 0.05; done";

/// Every third of it the lock is renewed, and a loss is seen. A machine that stands still for seconds ends no lease.
const BRIEF: &str = "9s";

#[testbed::test]
async fn the_command_gets_sigterm_and_the_code_is_76() {
    let server = redis().await;
    let running = Running::started(&server.url(), &["--ttl", BRIEF, "-q"], POLITE);
    delete_lock(&server.url(), "a");
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(76), vec!["told".to_owned()]),
        "{}",
        ended.messages
    );
    assert!(
        ended.messages.contains("the hold of lock \"a\" was lost"),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn a_command_that_ignores_sigterm_is_killed_after_the_grace() {
    let server = redis().await;
    for how in [&["--grace", "200ms"][..], &["--on-loss", "kill"]] {
        let line = [
            &["run", "--lock", "a", "--ttl", BRIEF, "--lost-code", "9"],
            how,
            &["--shell", STUBBORN],
        ]
        .concat();
        let running = Running::start(&server.url(), &line);
        running.wait_for("started");
        delete_lock(&server.url(), "a");
        let ended = running.end();
        assert_eq!(ended.code, Some(9), "{how:?}: {ended:?}");
    }
}

#[testbed::test]
async fn a_command_ends_also_if_nobody_takes_the_messages() {
    let server = redis().await;
    for (how, text, last) in [("term", POLITE, &["told".to_owned()][..]), ("kill", STUBBORN, &[][..])] {
        let (_unread, messages) = pipe().expect("a pipe");
        fill(&messages);
        // Otherwise the shell says there that SIGTERM has ended `sleep`.
        let text = &format!("exec 2>/dev/null; {text}");
        let line = [
            "run",
            "-q",
            "--lock",
            "a",
            "--ttl",
            BRIEF,
            "--on-loss",
            how,
            "--shell",
            text,
        ];
        let running = Running::spawn_with(&mut command(&server.url(), &line), messages);
        running.wait_for("started");
        delete_lock(&server.url(), "a");
        let ended = running.end();
        assert_eq!((ended.code, &*ended.output), (Some(76), last), "{how}");
    }
}

#[testbed::test]
async fn a_lock_is_renewed_also_if_nobody_takes_the_messages() {
    let server = redis().await;
    in_some_run("it is lost", async || {
        let (_unread, messages) = pipe().expect("a pipe");
        let line = [
            "hold",
            "-v",
            "--lock",
            "a",
            "--ttl",
            "2s",
            "--for",
            "7s",
            "--ignore-stdin",
        ];
        let stderr = messages.try_clone().expect("it is open");
        let holder = Running::spawn_with(&mut command(&server.url(), &line), stderr);
        holder.wait_for("token ");
        fill(&messages);
        holder.end().code == Some(0)
    })
    .await;
}

#[testbed::test]
async fn the_command_s_code_counts_if_that_is_asked_for() {
    let server = redis().await;
    let text = "trap 'exit 7' INT; echo started; while :; do sleep 0.05; done";
    let line = [
        "run",
        "--lock",
        "a",
        "--ttl",
        BRIEF,
        "--on-loss",
        "int",
        "--lost-ok",
        "--shell",
        text,
    ];
    let running = Running::start(&server.url(), &line);
    running.wait_for("started");
    delete_lock(&server.url(), "a");
    assert_eq!(running.end().code, Some(7));
}

#[testbed::test]
async fn a_command_with_fencing_goes_on_and_learns_of_the_loss_by_its_pipe() {
    let server = redis().await;
    let text = "echo started; cat <&$POLYLOCK_LOST_FD; echo lost; exit 0";
    let line = [
        "run",
        "--lock",
        "a",
        "--ttl",
        BRIEF,
        "--on-loss",
        "ignore",
        "--i-have-fencing",
        "--shell",
        text,
    ];
    let running = Running::start(&server.url(), &line);
    running.wait_for("started");
    delete_lock(&server.url(), "a");
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(76), vec!["lost".to_owned()]),
        "{}",
        ended.messages
    );
}

/// The clock of this process decides: nobody answers.
#[testbed::test]
async fn a_server_that_hangs_is_a_loss() {
    let server = redis().await;
    let running = Running::started(&server.url(), &["--ttl", BRIEF], POLITE);
    server.pause().expect("it runs");
    assert_eq!(running.line(), "told");
    server.resume().expect("it is paused");
    let ended = running.end();
    assert_eq!(ended.code, Some(76), "{ended:?}");
}

#[testbed::test]
async fn a_server_that_ends_is_a_loss() {
    let server = redis().await;
    let running = Running::started(&server.url(), &["--ttl", BRIEF], POLITE);
    server.kill().expect("it runs");
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(76), vec!["told".to_owned()]),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn a_fixed_lease_ends_the_command() {
    let server = redis().await;
    let line = ["run", "--lock", "a", "--ttl", "10s", "--fixed", "--shell", POLITE];
    let ended = run(&server.url(), &line);
    assert_eq!((ended.code, ended.output.len()), (Some(76), 2), "{ended:?}");
}

/// polylock cannot prevent what the command writes right after the pause: the token is there for that.
#[testbed::test]
async fn a_pause_of_polylock_beyond_the_ttl_is_a_loss() {
    let server = redis().await;
    let text = "trap '' TERM; echo started; cat <&$POLYLOCK_LOST_FD; echo lost";
    let paused = Running::started(&server.url(), &["--ttl", "5s"], text);
    paused.signal(Signal::STOP);
    let next = run(&server.url(), &["run", "--lock", "a", "--", "echo", "next"]);
    assert_eq!(next.output, ["next"], "{next:?}");
    paused.signal(Signal::CONT);
    let ended = paused.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(76), vec!["lost".to_owned()]),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn a_command_that_ended_during_the_pause_is_76_as_well() {
    let server = redis().await;
    let mut paused = Running::started(&server.url(), &["--ttl", "5s"], "echo started; cat");
    paused.signal(Signal::STOP);
    paused.close_input();
    let next = run(&server.url(), &["run", "--lock", "a", "--", "echo", "next"]);
    assert_eq!(next.output, ["next"], "{next:?}");
    paused.signal(Signal::CONT);
    assert_eq!(paused.end().code, Some(76));
}

#[testbed::test]
async fn a_release_that_is_not_answered_is_no_failure_unless_that_is_asked_for() {
    let server = redis().await;
    for (name, how, code) in [("a", &["-v"][..], 0), ("b", &["--strict-release"], 69)] {
        let line = [
            &["run", "--lock", name, "--ttl", "1h"],
            how,
            &["--shell", "echo started; cat"],
        ]
        .concat();
        let mut running = Running::start(&server.url(), &line);
        running.wait_for("started");
        server.pause().expect("it runs");
        running.close_input();
        let ended = running.end();
        server.resume().expect("it is paused");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.messages.contains("the lock ends with its ttl"), "{ended:?}");
    }
}
