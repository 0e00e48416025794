//! The checks apart from holds: recovery, leaks, errors.

use std::collections::BTreeMap;
use std::time::Duration;

use super::holds::Hold;
use super::loss::some_not_running;
use crate::backend::Backend;
use crate::check::Check;
use crate::clock;
use crate::history::{History, ProcessHistory};
use crate::record::{Event, Line};
use crate::verdict::Breach;

/// Connections that come and go, such as those that look around.
pub(crate) const MORE_CONNECTIONS: usize = 2;
const MORE_FILES: usize = 8;
const MORE_KILOBYTES: u64 = 8 * 1024;
/// So long after its first hold a process has all that it needs.
const WARM_UP: u64 = 3_000_000_000;

/// The time after healing until the last process had acquired, and the processes that took too long.
pub(super) fn recovery(history: &History, holds: &[&Hold]) -> (Option<u64>, Vec<Breach>) {
    let (healed, limit) = (
        history.outcome.healed,
        clock::nanos(history.outcome.config.recovery_limit()),
    );
    let mut slowest = Some(0);
    let mut breaches = Vec::new();
    for process in 0..history.outcome.config.procs {
        let own = holds
            .iter()
            .filter(|hold| hold.process == process && hold.held >= healed);
        let first = own.map(|hold| hold.held).min();
        let waited = first.map(|first| first - healed);
        slowest = slowest.zip(waited).map(|(slowest, waited)| slowest.max(waited));
        let idle = some_not_running(history, healed, first.unwrap_or(healed + limit));
        match waited {
            Some(waited) if waited <= limit + idle => {}
            Some(waited) => breaches.push(Breach::new(
                Check::Recovery,
                format!(
                    "process {process} had no hold until {:.0} ms after the last fault; the limit is {:.0} ms",
                    clock::millis(waited),
                    clock::millis(limit)
                ),
            )),
            None => breaches.push(Breach::new(
                Check::Recovery,
                format!("process {process} had no hold any more after the last fault was healed"),
            )),
        }
    }
    (slowest, breaches)
}

/// Where some processes are stopped all the time: whether the others had to wait for longer than a hold of each of these lasts.
pub(super) fn standstill(history: &History, holds: &[&Hold]) -> Option<Breach> {
    /// A busy machine is slow.
    const LATE: Duration = Duration::from_secs(3);
    let outcome = &history.outcome;
    let config = &outcome.config;
    let stopped = config.measured.filter(|stopped| *stopped > 0)?;
    let each = config.ttl + config.backend.tick();
    let limit = each * u32::try_from(stopped).unwrap_or(u32::MAX) + LATE;
    let others = holds.iter().filter(|hold| hold.process >= stopped);
    let mut held: Vec<u64> = others
        .map(|hold| hold.held.clamp(outcome.begin, outcome.healed))
        .collect();
    held.extend([outcome.begin, outcome.healed]);
    held.sort_unstable();
    let (from, to) = held
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .max_by_key(|(from, to)| to - from)?;
    (to - from > clock::nanos(limit)).then(|| {
        let took = clock::millis(to - from);
        let what = format!("{stopped} processes are stopped: nobody else had a hold for {took:.0} ms");
        Breach::new(Check::Recovery, history.tell(from, what))
    })
}

pub(super) fn leaks(history: &History) -> Vec<Breach> {
    let mut breaches: Vec<Breach> = history.processes.iter().filter_map(leak).collect();
    let (before, after) = history.outcome.connections;
    // A client stays connected to a master that was replaced until it next asks for all masters: at most one to each server.
    let replaced = if history.outcome.config.backend == Backend::RedisCluster {
        before
    } else {
        0
    };
    if after > before + replaced + MORE_CONNECTIONS {
        let trace = format!("the server has {after} connections, {before} before the processes came");
        breaches.push(Breach::new(Check::Leaks, trace));
    }
    breaches
}

/// The resources that a process had at its quiet end beyond those that it had when it was young.
fn leak(process: &ProcessHistory) -> Option<Breach> {
    let drained = process
        .lines
        .iter()
        .find(|line| matches!(line.event, Event::Drained))?
        .t;
    let is_held = |line: &&Line| matches!(line.event, Event::Held { .. });
    let start = process.lines.iter().find(is_held).or(process.lines.first())?.t;
    let usage = process.lines.iter().filter_map(|line| match line.event {
        Event::Usage { files, kilobytes } => Some((line.t, files, kilobytes)),
        _ => None,
    });
    let (young, old): (Vec<_>, Vec<_>) = usage
        .filter(|(t, _, _)| *t < start + WARM_UP || *t > drained)
        .partition(|(t, _, _)| *t < start + WARM_UP);
    let (_, files_then, _) = *young.iter().max_by_key(|(_, files, _)| *files)?;
    let (_, _, kilobytes_then) = *young.iter().max_by_key(|(_, _, kilobytes)| *kilobytes)?;
    let (_, files, kilobytes) = *old.last()?;
    (files > files_then + MORE_FILES || kilobytes > kilobytes_then + MORE_KILOBYTES).then(|| {
        let trace = format!(
            "process {} ended with {files} open files and {kilobytes} kB, after {files_then} and {kilobytes_then} kB \
             when it was young",
            process.process
        );
        Breach::new(Check::Leaks, trace)
    })
}

/// Failures that no fault of the network, a process or a server explains, each kind of them once.
pub(super) fn errors(history: &History) -> Vec<Breach> {
    let mut odd = BTreeMap::new();
    for process in &history.processes {
        for line in &process.lines {
            let (kind, what, passing) = match &line.event {
                Event::Failed { kind, what, .. } => (kind, what, &["TimedOut", "Unavailable"][..]),
                Event::NotReleased { kind, what, .. } => (kind, what, &["Lost", "Unavailable"][..]),
                Event::NotChanged { kind, what, .. } => (kind, what, &["Lost", "TimedOut", "Unavailable"][..]),
                _ => continue,
            };
            if !passing.contains(&kind.as_str()) {
                odd.entry(kind)
                    .or_insert_with(|| history.tell(line.t, format!("{kind}: {what}")));
            }
        }
    }
    odd.into_values()
        .map(|trace| Breach::new(Check::Errors, trace))
        .collect()
}
