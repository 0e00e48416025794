//! No process that a command has started outlives `run`, however that ends.

use rustix::process::{Pid, Signal, kill_process};

use testbed::steady::blocking::eventually;

use crate::support::{Left, Running, pid, read_to_end, receives, redis, with_signals};

/// A process that left the command's group and session, and whose parent has ended.
const DAEMON: &str = "(setsid sh -c 'echo daemon; exec sleep 1000' &)";

#[testbed::test]
async fn sigkill_of_polylock_leaves_nothing() {
    let server = redis().await;
    // A lock that such a polylock held stays taken for its TTL: each text has one of its own.
    for (lock, text) in [
        ("a", "echo ready; exec sleep 1000"),
        ("b", "sleep 1000 & echo ready; wait"),
        ("c", "trap '' TERM HUP; sleep 1000 & echo ready; wait"),
        ("d", &format!("sleep 1000 & {DAEMON}; wait")),
    ] {
        let running = Running::start(&server.url(), &["run", "--lock", lock, "--ttl", "10m", "--shell", text]);
        let first = running.line();
        assert!(["ready", "daemon"].contains(&first.as_str()), "{first}");
        running.signal(Signal::KILL);
        // Nobody has the output any more.
        running.rest();
    }
}

#[testbed::test]
async fn nor_does_sigkill_of_polylock_and_its_guard_at_once() {
    let server = redis().await;
    let line = ["run", "--lock", "a", "--shell", "echo $PPID; exec sleep 1000"];
    let running = Running::start(&server.url(), &line);
    let both = [running.pid(), pid(&running.line())];
    // Neither may act on the other's end.
    for signal in [Signal::STOP, Signal::KILL] {
        for process in both {
            kill_process(process, signal).expect("it runs");
        }
    }
    running.rest();
}

#[testbed::test]
async fn sigkill_of_the_guard_ends_the_command_and_is_seen() {
    let server = redis().await;
    let text = format!("{DAEMON}; sleep 1000 & echo $PPID; wait");
    let running = Running::start(&server.url(), &["run", "--lock", "a", "--shell", &text]);
    let mut lines = [running.line(), running.line()];
    lines.sort();
    let [guard, daemon] = lines;
    assert_eq!(daemon, "daemon");
    kill_process(pid(&guard), Signal::KILL).expect("it runs");
    assert_eq!(running.end().code, Some(137));
}

#[testbed::test]
async fn what_the_command_leaves_is_ended_after_it() {
    let server = redis().await;
    // The last one ignores SIGTERM, and gets SIGKILL after the grace.
    for left in [
        "sh -c 'echo left; exec sleep 1000' &",
        &format!("{DAEMON};"),
        "sh -c 'trap \"\" TERM; echo left; exec sleep 1000' &",
    ] {
        let text = format!("{left} read line; exit 3");
        let line = ["run", "--lock", "a", "--try", "--grace", "300ms", "--shell", &text];
        let running = Running::start(&server.url(), &line);
        running.line();
        let ended = running.end();
        assert_eq!(ended.code, Some(3), "{left}: {ended:?}");
    }
}

#[testbed::test]
async fn it_may_be_left_running() {
    let server = redis().await;
    let line = [
        "run",
        "--lock",
        "a",
        "--leave-children",
        "--shell",
        "sh -c 'echo $$; exec sleep 1000' 2>/dev/null & exit 3",
    ];
    let (ended, output) = Running::start(&server.url(), &line).end_alone();
    let left = Left(pid(&receives("its number", &output)));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(left.end(), "somebody has ended it");
    read_to_end(&output);
}

/// Children from before `exec`, and their orphans: process 1 of a container gets such from anywhere.
#[testbed::test]
async fn children_that_are_not_the_command_s_are_reaped_and_left() {
    let server = redis().await;
    let folder = tempfile::tempdir().expect("a folder");
    let gate = folder.path().join("gate");
    // The orphan comes to polylock when the command runs, and stays. The other one ends.
    let text = format!(
        "mkfifo {gate}; (read line <{gate}; sleep 0 & sleep 1000 >/dev/null 2>&1 & echo $!) &
        exec $POLYLOCK run --lock a --shell 'echo >{gate}; read line; echo read'",
        gate = gate.display()
    );
    let mut shell = with_signals();
    shell
        .args(["sh", "-c", &text])
        .env("POLYLOCK_URL", server.url())
        .env("POLYLOCK", env!("CARGO_BIN_EXE_polylock"));
    let mut running = Running::spawn(&mut shell);
    let orphan = Left(pid(&running.line()));
    let polylock = running.pid();
    eventually("the guard and the orphan are its only children", || {
        let children = children(polylock);
        children.len() == 2 && children.contains(&orphan.0)
    });
    running.write("x\n");
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(0), vec!["read".to_owned()]),
        "{}",
        ended.messages
    );
    assert!(!ended.messages.contains("not released"), "{}", ended.messages);
    assert!(orphan.end(), "somebody has ended it");
}

/// Those of its only thread that starts any.
fn children(process: Pid) -> Vec<Pid> {
    let process = process.as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_ascii_whitespace().map(pid).collect()
}

#[testbed::test]
async fn a_command_in_our_group_gets_the_signals_and_is_ended_too() {
    let server = redis().await;
    let text = "trap 'echo told' TERM; sleep 1000 & echo ready; while :; do sleep 0.02; done";
    let mut running = Running::start(&server.url(), &["run", "--lock", "a", "--no-group", "--shell", text]);
    running.wait_for("ready");
    running.signal(Signal::TERM);
    running.wait_for("told");
    running.terminate_again();
    assert_eq!(running.end().code, Some(137));
}
