//! `polylock doctor`: what the library learns of a server, and how long it takes.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use polylock::{Error, Guarantee, Locker, Verdict};
use serde_json::json;
use tokio::time::timeout;

use crate::cli::{DoctorArgs, ServerArgs};
use crate::events::Findings;
use crate::exit::{Code, Failure};
use crate::server;

/// The lock that is acquired for the check.
const NAME: &str = "polylock:doctor";

/// The number of requests to the server, for the median.
const ROUNDS: usize = 5;

/// The time for which the lock stays taken if this process dies in between.
const TTL: Duration = Duration::from_secs(10);

/// Checks the server, and prints what it found. Returns the code to exit with.
///
/// # Errors
/// If no server is named, or the output cannot be written.
pub(crate) async fn doctor(arguments: &DoctorArgs, server: &ServerArgs, findings: Findings) -> Result<Code, Failure> {
    let mut checks = Vec::new();
    match server::config(server)?.connect_lazy() {
        Err(error) => checks.push(Check::failed("configuration", &error)),
        Ok(locks) => {
            check(&locks, server.connect_timeout, &findings, &mut checks).await;
            // It has nothing to release but what is checked above.
            let _ = locks.shutdown().await;
        }
    }
    let lines: String = checks.iter().map(|check| check.line(arguments.json)).collect();
    let mut output = io::stdout().lock();
    let printed = output.write_all(lines.as_bytes()).and_then(|()| output.flush());
    printed.map_err(|error| Failure::os("cannot write to standard output", &error))?;
    Ok(match checks.iter().map(|check| check.state).max() {
        Some(State::Fail) => Code::MISCONFIGURED,
        Some(State::Warn) => Code::ONE,
        _ => Code::SUCCESS,
    })
}

async fn check(locks: &Locker, limit: Duration, findings: &Findings, checks: &mut Vec<Check>) {
    let start = Instant::now();
    if let Err(error) = server::connect(locks, limit).await {
        return checks.push(Check::failed("connect", &error));
    }
    checks.push(Check::ok("connect", format!("within {:.1?}", start.elapsed())));
    checks.push(match round_trip(locks).await {
        Ok(time) => Check::ok("status", format!("{time:.1?}, the median of {ROUNDS}")),
        Err(error) => Check::failed("status", &error),
    });
    match acquire_and_release(locks).await {
        Ok([acquire, release]) => {
            checks.push(Check::ok("acquire", format!("{acquire:.1?}")));
            checks.push(Check::ok("release", format!("{release:.1?}")));
        }
        Err(error) => checks.push(Check::failed("acquire and release", &error)),
    }
    let warnings = findings.all();
    if warnings.is_empty() {
        checks.push(Check::ok(
            "settings",
            "nothing that polylock checks at connect can lose locks",
        ));
    }
    checks.extend(warnings.into_iter().map(|finding| Check {
        state: State::Warn,
        what: "settings".into(),
        text: finding,
    }));
    checks.extend(guarantees(locks, limit).await);
}

async fn round_trip(locks: &Locker) -> polylock::Result<Duration> {
    let mut times = [Duration::ZERO; ROUNDS];
    for time in &mut times {
        let start = Instant::now();
        locks.status(NAME).await?;
        *time = start.elapsed();
    }
    times.sort();
    Ok(times[ROUNDS / 2])
}

/// On a name of its own. Always the same one: some servers keep a row for each name. So it may have to wait for another doctor.
async fn acquire_and_release(locks: &Locker) -> polylock::Result<[Duration; 2]> {
    let shortest = locks.capabilities().shortest_ttl;
    let lock = locks.lock(NAME).ttl(TTL.max(shortest));
    let start = Instant::now();
    let guard = lock.acquire_within(2 * TTL).await?;
    let acquired = start.elapsed();
    let start = Instant::now();
    guard.release().await?;
    Ok([acquired, start.elapsed()])
}

/// The events that a lock survives on this server, and the options that it has.
async fn guarantees(locks: &Locker, limit: Duration) -> Vec<Check> {
    let asked = timeout(limit, locks.guarantees()).await;
    let table = match asked {
        Ok(Ok(table)) => table,
        Ok(Err(error)) => return vec![Check::failed("guarantees", &error)],
        // It was connected before: the server has just gone.
        Err(_elapsed) => {
            return vec![Check {
                state: State::Fail,
                what: "guarantees".into(),
                text: format!("the server did not answer within {limit:?}"),
            }];
        }
    };
    let of = |(guarantee, verdict): (Guarantee, Verdict)| Check::guarantee(&guarantee, &verdict);
    table.into_iter().map(of).collect()
}

/// In the order of what they mean for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ok,
    /// A guarantee is kept.
    Yes,
    /// It is not kept, which is no fault unless it is required: then nothing is connected.
    No,
    Unknown,
    Warn,
    Fail,
}

#[derive(Debug)]
struct Check {
    state: State,
    what: Cow<'static, str>,
    text: String,
}

impl Check {
    fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self {
            state: State::Ok,
            what: what.into(),
            text: text.into(),
        }
    }

    fn failed(what: &'static str, error: &Error) -> Self {
        Self {
            state: State::Fail,
            what: what.into(),
            text: error.to_string(),
        }
    }

    fn guarantee(guarantee: &Guarantee, verdict: &Verdict) -> Self {
        let (state, text) = match verdict {
            Verdict::Yes => (State::Yes, "kept".to_owned()),
            Verdict::No { because, instead } => (State::No, format!("{because}; {instead}")),
            Verdict::Unknown { because, instead } => (State::Unknown, format!("{because}; {instead}")),
            // As an older version of this program knows it.
            _ => (State::Unknown, verdict.to_string()),
        };
        let what = match guarantee {
            // Any limit.
            Guarantee::Permits(u32::MAX) => "permits:N".into(),
            _ => guarantee.to_string().into(),
        };
        Self { state, what, text }
    }

    fn line(&self, json: bool) -> String {
        let state = match self.state {
            State::Ok => "ok",
            State::Yes => "yes",
            State::No => "no",
            State::Unknown => "unknown",
            State::Warn => "warn",
            State::Fail => "fail",
        };
        let text = crate::message::redacted(&self.text);
        match json {
            true => json!({"verdict": state, "check": self.what, "text": text}).to_string() + "\n",
            false => format!("{state:<7} {}: {text}\n", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_state_counts_and_a_guarantee_that_is_not_kept_is_no_fault() {
        assert!(State::Fail > State::Warn && State::Warn > State::Unknown && State::Warn > State::No);
    }

    #[test]
    fn a_semaphore_without_a_largest_limit_is_shown_without_a_number() {
        let shown = |most| Check::guarantee(&Guarantee::Permits(most), &Verdict::Yes).line(false);
        assert_eq!(shown(u32::MAX), "yes     permits:N: kept\n");
        assert_eq!(shown(1000), "yes     permits:1000: kept\n");
    }

    #[test]
    fn a_guarantee_is_shown_with_its_reason() {
        let shown = |verdict: Verdict| Check::guarantee(&Guarantee::Failover, &verdict);
        assert_eq!(shown(Verdict::Yes).line(false), "yes     failover: kept\n");
        let no = shown(Verdict::no("replicas=0", "set replicas=1"));
        assert_eq!(no.line(false), "no      failover: replicas=0; set replicas=1\n");
        let unknown = shown(Verdict::unknown("INFO is forbidden", "permit it"));
        assert!(
            unknown.line(true).contains(r#""verdict":"unknown""#),
            "{}",
            unknown.line(true)
        );
    }

    #[test]
    fn a_line_has_no_password() {
        let check = Check::ok("connect", "redis://:secret@host is there");
        assert_eq!(check.line(false), "ok      connect: redis://..@host is there\n");
        assert!(!check.line(true).contains("secret"));
    }
}
