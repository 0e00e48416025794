//! Each row of the table of exit codes.

use crate::support::{Running, command, redis, run, run_answered};

/// Nobody listens there.
const NOWHERE: &str = "redis://127.0.0.1:1";

#[testbed::test]
async fn the_command_s_code_is_that_of_run() {
    let server = redis().await;
    for (text, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let ended = run(&server.url(), &["run", "--lock", "a", "--shell", text]);
        assert_eq!((ended.code, ended.messages.as_str()), (Some(code), ""), "{text}");
        assert!(ended.output.is_empty(), "{ended:?}");
    }
}

#[test]
fn wrong_usage_is_64_and_shows_no_password() {
    for arguments in [
        &["run", "--lock", "a"][..],
        &["run", "--lock", "a", "redis://me:secret@h", "--", "true"],
        &["run", "--lock", "a", "--wait", "redis://me:secret@h", "--", "true"],
        &["run", "--lock", "a", "--url", "memory:", "--", "true"],
        &["run", "--lock", "a", "--on-loss", "ignore", "--", "true"],
        &["run", "--lock", "a", "--lock", "b", "--at-least", "1s", "--", "true"],
        &["run", "--lock", "a", "--ttl", "4s", "--stop-before", "3s", "--", "true"],
        &["hold", "--lock", "a", "--url", "quorum:memory:|memory:|memory:"],
        &["migrate"],
    ] {
        let ended = run("redis://127.0.0.1:1", arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        assert!(
            !ended.messages.contains("secret") && ended.output.is_empty(),
            "{ended:?}"
        );
    }
    let unnamed = run("", &["run", "--lock", "a", "--", "true"]);
    assert_eq!(unnamed.code, Some(64));
    assert!(unnamed.messages.contains("set POLYLOCK_URL"), "{unnamed:?}");
}

#[test]
fn memory_is_refused_with_the_reason() {
    let ended = run("memory:", &["run", "--lock", "a", "--", "true"]);
    assert!(ended.messages.contains("no other process sees the lock"), "{ended:?}");
}

#[testbed::test]
async fn an_invalid_name_is_64() {
    let server = redis().await;
    let ended = run(&server.url(), &["run", "--lock", "", "--", "echo", "started"]);
    assert_eq!((ended.code, ended.output.len()), (Some(64), 0), "{ended:?}");
}

#[test]
fn an_unavailable_server_is_69_and_nothing_is_started() {
    for how in [&["--try"][..], &["--wait", "300ms"], &["--on-unreachable", "fail"]] {
        let line = [
            &["run", "--connect-timeout", "1s", "--lock", "a"],
            how,
            &["--", "echo", "started"],
        ]
        .concat();
        let ended = run(NOWHERE, &line);
        assert_eq!((ended.code, ended.output.len()), (Some(69), 0), "{how:?}: {ended:?}");
        assert!(!ended.messages.contains("within 0ns"), "{how:?}: {ended:?}");
    }
}

#[test]
fn without_the_server_a_command_runs_if_that_is_asked_for() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "7\n").expect("it is ours");
    let line = [
        "run",
        "--connect-timeout",
        "1s",
        "--lock",
        "a",
        "--token-file",
        file.path().to_str().expect("UTF-8"),
        "--on-unreachable",
        "run",
        "--shell",
    ];
    let ended = run(
        NOWHERE,
        &[&line[..], &["echo $POLYLOCK_HELD $POLYLOCK_TOKEN; exit 4"]].concat(),
    );
    assert_eq!(
        (ended.code, ended.output.join("")),
        (Some(4), "0".to_owned()),
        "{:?}",
        ended.messages
    );
    assert!(ended.messages.contains("without the lock"), "{:?}", ended.messages);
    // It had the token of an earlier run.
    assert_eq!(std::fs::read_to_string(file.path()).expect("it is there"), "");
}

#[testbed::test]
async fn an_outage_after_the_server_was_reached_starts_nothing() {
    let server = redis().await;
    let holder = Running::started(&server.url(), &["--ttl", "10m"], "echo started; cat");
    // The silence is noticed within three seconds.
    let line = [
        "run",
        "-v",
        "--lock",
        "a",
        "--wait",
        "10s",
        "--on-unreachable",
        "run",
        "--",
        "echo",
        "started",
    ];
    let waiter = Running::start(&server.url(), &line);
    waiter.wait_for_message("lock is taken");
    server.pause().expect("it runs");
    let ended = waiter.end();
    server.resume().expect("it is paused");
    assert_eq!((ended.code, ended.output.len()), (Some(69), 0), "{ended:?}");
    assert_eq!(holder.end().code, Some(0));
}

#[test]
fn a_token_file_that_cannot_be_written_is_73() {
    let ended = run(
        NOWHERE,
        &["run", "--lock", "a", "--token-file", "/", "--", "echo", "started"],
    );
    assert_eq!((ended.code, ended.output.len()), (Some(73), 0), "{ended:?}");
}

#[testbed::test]
async fn a_taken_lock_is_75_and_the_message_names_its_holder() {
    let server = redis().await;
    let holder = Running::start(
        &server.url(),
        &["run", "--lock", "a", "--label", "the first", "--shell", "echo got; cat"],
    );
    holder.wait_for("got");
    for (how, code) in [
        (&["--try"][..], 75),
        (&["--wait", "4s"], 75),
        (&["--try", "--busy-code", "0"], 0),
    ] {
        let ended = run_answered(
            &server.url(),
            &[&["run", "--lock", "a"], how, &["--", "echo", "started"]].concat(),
        );
        assert_eq!((ended.code, ended.output.len()), (Some(code), 0), "{how:?}: {ended:?}");
        assert!(ended.messages.contains("the first"), "{ended:?}");
    }
    assert_eq!(holder.end().code, Some(0));
}

#[testbed::test]
async fn a_wrong_password_is_77() {
    let server = testbed::Redis::new().password("right").start().await.expect("a server");
    let url = server.url().replace("right", "secret");
    let ended = run(&url, &["run", "--lock", "a", "--", "echo", "started"]);
    assert_eq!((ended.code, ended.output.len()), (Some(77), 0), "{ended:?}");
    assert!(!ended.messages.contains("secret"), "{ended:?}");
    assert_eq!(run(&url, &["doctor"]).code, Some(78));
    assert_eq!(run(&server.url(), &["run", "--lock", "a", "--", "true"]).code, Some(0));
}

#[test]
fn a_wrong_configuration_is_78() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.toml");
    std::fs::write(&file, "url = \"redis://h\"\ntll = \"3s\"\n").expect("it is ours");
    let file = file.to_str().expect("UTF-8");
    for server in [
        &["--url", "postgres://me:secret@h"][..],
        &["--config", file],
        &["--config", "/no/such/file"],
        &["--url-file", "/no/such/file"],
    ] {
        let ended = run("", &[server, &["run", "--lock", "a", "--", "echo", "started"]].concat());
        assert_eq!((ended.code, ended.output.len()), (Some(78), 0), "{server:?}: {ended:?}");
        assert!(!ended.messages.contains("secret"), "{ended:?}");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_found_before_the_lock_is_acquired() {
    for (program, code) in [("/", 126), ("/etc/hostname/x", 127), ("no-such-command", 127)] {
        let ended = run(NOWHERE, &["run", "--lock", "a", "--", program]);
        assert_eq!(ended.code, Some(code), "{program}: {ended:?}");
    }
}

#[testbed::test]
async fn a_script_without_its_interpreter_is_127() {
    let server = redis().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job");
    std::fs::write(&file, "#!/no/such/shell\n").expect("it is ours");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("it is ours");
    let ended = run(
        &server.url(),
        &["run", "--lock", "a", "--", file.to_str().expect("UTF-8")],
    );
    // The system does not say whether the file or its interpreter is missing.
    assert_eq!(ended.code, Some(127), "{ended:?}");
    assert!(ended.messages.contains("polylock: cannot run"), "{ended:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["man"],
        &["completions", "bash"],
    ] {
        let mut command = command("", arguments);
        let output = command.output().expect("it was built");
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{arguments:?}: {output:?}"
        );
    }
}
