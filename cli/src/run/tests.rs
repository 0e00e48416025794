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

#[test]
fn the_command_ends_before_the_lease_but_not_by_a_late_renewal() {
    let seconds = Duration::from_secs;
    let time = |options: &[&str], ttl| stop_before(&arguments(options), seconds(ttl)).map_err(|failure| failure.code);
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
        let time = stop_before(&arguments, Duration::from_secs(ttl)).unwrap();
        warning(&arguments, time)
    };
    assert_eq!(said(&[], 30), None);
    assert!(said(&[], 12).unwrap().contains("run on for 3s after its lease"));
    assert_eq!(said(&["--stop-before", "1s"], 12), None);
    assert_eq!(said(&["--on-loss", "ignore", "--i-have-fencing"], 12), None);
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
