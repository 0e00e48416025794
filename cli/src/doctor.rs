//! `polylock doctor`: what the library learns of a server, and how long it takes.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use polylock::backend::Capabilities;
use polylock::{Error, Locker};
use serde_json::json;

use crate::cli::{DoctorArgs, ServerArgs};
use crate::events::Findings;
use crate::exit::{Code, Failure};
use crate::server;

/// The lock that is acquired for the check.
const NAME: &str = "polylock:doctor";

/// How often the server is asked, for the median.
const ROUNDS: usize = 5;

/// How long the lock stays taken if this process dies in between.
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
    Ok(match checks.iter().map(|check| check.verdict).max() {
        Some(Verdict::Fail) => Code::MISCONFIGURED,
        Some(Verdict::Warn) => Code::ONE,
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
        verdict: Verdict::Warn,
        what: "settings",
        text: finding,
    }));
    checks.push(Check::ok("options", options(&locks.capabilities())));
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

/// What `polylock run` may ask of this server.
fn options(capabilities: &Capabilities) -> String {
    let Capabilities {
        fixed_lease,
        fifo,
        minimum_hold,
        shared,
        permits,
        shortest_ttl,
        ..
    } = *capabilities;
    let parts = [
        (shared, "--read".to_owned()),
        (permits > 0, format!("--permits (at most {permits})")),
        (fixed_lease, "--fixed".to_owned()),
        (minimum_hold, "--at-least".to_owned()),
        (true, format!("--ttl from {shortest_ttl:?} on")),
        (fifo, "waiters are served in order".to_owned()),
    ];
    let there = parts
        .into_iter()
        .filter_map(|(is_there, text)| is_there.then_some(text));
    there.collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug)]
struct Check {
    verdict: Verdict,
    what: &'static str,
    text: String,
}

impl Check {
    fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            what,
            text: text.into(),
        }
    }

    fn failed(what: &'static str, error: &Error) -> Self {
        Self {
            verdict: Verdict::Fail,
            what,
            text: error.to_string(),
        }
    }

    fn line(&self, json: bool) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        let text = crate::message::redacted(&self.text);
        match json {
            true => json!({"verdict": verdict, "check": self.what, "text": text}).to_string() + "\n",
            false => format!("{verdict:<5} {}: {text}\n", self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_counts() {
        assert!(Verdict::Fail > Verdict::Warn && Verdict::Warn > Verdict::Ok);
    }

    #[test]
    fn options_are_those_of_the_server() {
        let text = options(&Capabilities::default().fixed_lease().permits(100));
        assert_eq!(text, "--permits (at most 100), --fixed, --ttl from 1ms on");
    }

    #[test]
    fn a_line_has_no_password() {
        let check = Check::ok("connect", "redis://:secret@host is there");
        assert_eq!(check.line(false), "ok    connect: redis://..@host is there\n");
        assert!(!check.line(true).contains("secret"));
    }
}
