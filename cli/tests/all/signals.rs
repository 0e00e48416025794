//! Signals in each step of `run`: connecting, waiting, running, ending what is left, releasing.

use rustix::process::Signal;

use crate::support::{Running, redis, run, run_answered, with_signals};

#[test]
fn while_connecting_they_end_it() {
    let line = [
        "run",
        "--lock",
        "a",
        "--connect-timeout",
        "200ms",
        "--",
        "echo",
        "started",
    ];
    let running = Running::start("redis://127.0.0.1:1", &line);
    running.wait_for_message("waiting for the server");
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!((ended.code, ended.output.len()), (Some(143), 0), "{ended:?}");
}

#[testbed::test]
async fn while_waiting_they_end_it_and_undo_the_acquire() {
    let server = redis().await;
    let holder = Running::start(&server.url(), &["run", "--lock", "a", "--shell", "echo got; cat"]);
    holder.wait_for("got");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        // polylock waits a second for that: on a busy machine, it may be too little now and then.
        let is_undone = (0..4).any(|_| {
            let waiting = Running::start(&server.url(), &["run", "-v", "--lock", "a", "--", "echo", "started"]);
            waiting.wait_for_message("lock is taken");
            waiting.signal(signal);
            let ended = waiting.end();
            assert_eq!((ended.code, ended.output.len()), (Some(code), 0), "{ended:?}");
            let status = run(&server.url(), &["status", "--lock", "a", "--json"]);
            status.output.join("").contains("\"waiting\":0")
        });
        assert!(is_undone, "{signal:?}");
    }
    assert_eq!(holder.end().code, Some(0));
}

#[testbed::test]
async fn while_running_they_are_the_command_s() {
    let server = redis().await;
    let text = "for s in INT HUP QUIT USR1 USR2 TERM; do trap \"echo $s\" $s; done
        trap 'echo CONT' CONT; echo started; while :; do sleep 0.02; done";
    let mut running = Running::started(&server.url(), &[], text);
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ] {
        running.signal(signal);
        running.wait_for(name);
    }
    running.terminate_again();
    assert_eq!(running.end().code, Some(137));
}

#[testbed::test]
async fn a_command_s_answer_to_sigterm_is_the_code() {
    let server = redis().await;
    let text = "trap 'exit 9' TERM; echo started; while :; do sleep 0.02; done";
    let running = Running::started(&server.url(), &[], text);
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(9));
    let next = run(&server.url(), &["run", "--try", "--lock", "a", "--", "true"]);
    assert_eq!(next.code, Some(0), "it was released: {next:?}");
}

#[testbed::test]
async fn a_stopped_command_keeps_its_lock_and_goes_on() {
    let server = redis().await;
    let text = "echo started; read line; echo \"$line\"";
    let mut running = Running::started(&server.url(), &["--ttl", "9s"], text);
    running.signal(Signal::TSTP);
    running.wait_for_message("the command is stopped");
    // Longer than the lease lives without a renewal.
    let next = run_answered(&server.url(), &["run", "--wait", "10s", "--lock", "a", "--", "true"]);
    assert_eq!(next.code, Some(75), "{next:?}");
    running.write("line\n");
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(0), vec!["line".to_owned()]),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn a_stopped_command_can_be_ended() {
    let server = redis().await;
    let running = Running::started(&server.url(), &[], "echo started; exec cat");
    running.signal(Signal::TSTP);
    running.wait_for_message("the command is stopped");
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(143));
}

#[testbed::test]
async fn while_the_rest_is_ended_a_second_one_kills_it() {
    let server = redis().await;
    let text = "(trap 'echo told' TERM; echo left; while :; do sleep 0.02; done) & read line; exit 0";
    let mut running = Running::start(
        &server.url(),
        &["run", "--lock", "a", "--grace", "1h", "--ttl", "3h", "--shell", text],
    );
    running.wait_for("left");
    running.close_input();
    running.wait_for("told");
    running.signal(Signal::TERM);
    running.wait_for("told");
    running.terminate_again();
    assert_eq!(running.end().code, Some(0), "the command itself had ended well");
}

#[testbed::test]
async fn while_the_lock_is_released_they_change_nothing() {
    let server = redis().await;
    let text = "trap '' INT HUP; echo started; cat; echo done";
    let mut running = Running::started(&server.url(), &["-v"], text);
    server.pause().expect("it runs");
    running.close_input();
    running.wait_for("done");
    for signal in [Signal::INT, Signal::HUP] {
        running.signal(signal);
    }
    let ended = running.end();
    server.resume().expect("it is paused");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.messages.contains("the lock ends with its ttl"), "{ended:?}");
}

#[testbed::test]
async fn a_signal_that_is_ignored_stays_ignored() {
    let server = redis().await;
    let program = env!("CARGO_BIN_EXE_polylock");
    let text = format!("trap '' HUP; exec {program} run --lock a --shell 'echo started; cat'");
    let mut shell = with_signals();
    let mut running = Running::spawn(shell.args(["sh", "-c", &text]).env("POLYLOCK_URL", server.url()));
    running.wait_for("started");
    running.signal(Signal::HUP);
    running.close_input();
    assert_eq!(running.end().code, Some(0));
}
