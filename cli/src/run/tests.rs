use clap::Parser;

use super::*;
use crate::cli::{Cli, Subcommand};

fn arguments(options: &[&str]) -> RunArgs {
    let line = ["polylock", "run", "--lock", "a", "--shell", "x"].iter().chain(options);
    match Cli::try_parse_from(line).unwrap().subcommand {
        Subcommand::Run(arguments) => *arguments,
        other => panic!("{other:?}"),
    }
}

fn of_ttl(seconds: u64) -> Term {
    let (server, ttl) = (Capabilities::default(), Duration::from_secs(seconds));
    Term::new(&server, &arguments(&[]), ttl)
}

/// ZooKeeper's, and those of `strategy=session`.
fn of_session(options: &[&str], timeout: u64) -> Term {
    let (timeout, ttl) = (Duration::from_secs(timeout), Duration::from_secs(600));
    let server = Capabilities::default().session_renewal().ttl_between(timeout, ttl);
    Term::new(&server, &arguments(options), ttl)
}

#[test]
fn the_command_ends_before_the_lease_but_not_by_a_late_renewal() {
    let seconds = Duration::from_secs;
    let time = |options: &[&str], ttl| stop_before(&arguments(options), of_ttl(ttl)).map_err(|failure| failure.code);
    assert_eq!(time(&[], 30), Ok(seconds(5)));
    assert_eq!(time(&["--grace", "2s"], 30), Ok(seconds(2)));
    assert_eq!(time(&[], 12), Ok(seconds(2)));
    assert_eq!(time(&["--grace", "1h"], 30), Ok(seconds(5)));
    assert_eq!(time(&["--stop-before", "5s"], 10), Ok(seconds(5)));
    assert_eq!(time(&["--stop-before", "6s"], 10), Err(Code::USAGE));
    assert_eq!(
        time(&["--on-loss", "ignore", "--i-have-fencing"], 30),
        Ok(Duration::ZERO)
    );
}

#[test]
fn a_grace_beyond_the_lease_is_said_unless_it_is_asked_for() {
    let said = |options: &[&str], ttl| {
        let arguments = arguments(options);
        let time = stop_before(&arguments, of_ttl(ttl)).unwrap();
        warning(&arguments, of_ttl(ttl), time)
    };
    assert_eq!(said(&[], 30), None);
    assert!(said(&[], 12).unwrap().contains("run on for 3.0s after its lease"));
    assert!(said(&[], 10).unwrap().contains("run on for 3.3s after its lease"));
    assert_eq!(said(&["--stop-before", "1s"], 12), None);
    assert_eq!(said(&["--on-loss", "ignore", "--i-have-fencing"], 12), None);
}

/// A session's lease is no longer than its timeout, whatever the TTL.
#[test]
fn the_session_timeout_counts_where_the_session_renews() {
    let time = |options: &[&str], timeout| {
        stop_before(&arguments(options), of_session(options, timeout)).map_err(|failure| failure.code)
    };
    assert_eq!(time(&["--grace", "10s"], 12), Ok(Duration::from_secs(2)));
    assert_eq!(time(&["--stop-before", "6s"], 10), Err(Code::USAGE));
    // Nothing renews it.
    assert_eq!(time(&["--grace", "10s", "--fixed"], 12), Ok(Duration::from_secs(10)));
    let said = |options: &[&str]| {
        let (arguments, term) = (arguments(options), of_session(options, 12));
        warning(&arguments, term, stop_before(&arguments, term).unwrap())
    };
    assert_eq!(said(&[]), None);
    assert!(
        said(&["--grace", "10s"])
            .unwrap()
            .contains("choose a session timeout of six times")
    );
}

#[test]
fn the_default_of_the_grace_is_known() {
    assert_eq!(arguments(&[]).grace, DEFAULT_GRACE);
}

#[test]
fn the_lock_is_released_only_if_nothing_of_the_command_runs() {
    let ttl = Duration::from_secs(30);
    let some = [7, 8].map(|number| Pid::from_raw(number).unwrap());
    assert_eq!(not_released(&[], true, ttl), None);
    let why = not_released(&some, true, ttl).unwrap();
    assert!(
        why.contains("7, 8 of the command") && why.contains("its ttl, 30s"),
        "{why}"
    );
    let why = not_released(&some, false, ttl).unwrap();
    assert!(!why.contains("ttl"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_ends_with_its_ttl() {
    let server = polylock::MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let guard = locks.lock("a").acquire().await.unwrap();
    let mut run = Run {
        arguments: arguments(&[]),
        output: OutputArgs::default(),
        ttl: Duration::from_secs(30),
        stop_before: Duration::ZERO,
        token_file: None,
        held: Some(Held::One(guard)),
        has_lost: false,
    };
    assert_eq!(run.leave("why".to_owned()).code, Code::UNAVAILABLE);
    drop(run);
    // It waits for the release of guards that were dropped.
    locks.shutdown().await.unwrap();
    let status = Locker::new(server).status("a").await.unwrap();
    assert!(status.is_held());
}

#[test]
fn a_later_reason_does_not_postpone_the_kill() {
    let now = Instant::now();
    let later = now + Duration::from_secs(5);
    assert_eq!(earlier(Some(now), Some(later)), Some(now));
    assert_eq!(earlier(None, Some(later)), Some(later));
    assert_eq!(earlier(Some(now), None), Some(now));
}

#[test]
fn a_text_is_a_shell_s() {
    let line = command_line(&arguments(&[]));
    assert_eq!(line, ["/bin/sh", "-c", "x"]);
}
