//! The check that losses are reported in time.

use super::holds::{Hold, Operation};
use crate::check::Check;
use crate::clock;
use crate::history::{History, ProcessHistory};
use crate::record::Event;
use crate::verdict::Breach;

/// The time by which the report of a loss may be late, counted while the process ran: more than a busy machine keeps
/// one task of it waiting.
const TOLERANCE: u64 = 150_000_000;

pub(super) fn late(history: &History, operations: &[Operation]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for hold in operations.iter().filter_map(|operation| operation.hold.as_ref()) {
        // Never told counts until the holder left by itself.
        let told = hold.lost.as_ref().map_or(hold.left, |(t, _)| *t);
        if told <= hold.lease_end {
            continue;
        }
        let Some(process) = history
            .processes
            .iter()
            .find(|process| (process.process, process.incarnation) == (hold.process, hold.incarnation))
        else {
            continue;
        };
        let late = told - hold.lease_end - not_running(history, process, hold.lease_end, told);
        if late > TOLERANCE {
            let late = clock::millis(late);
            let trace = format!(
                "{late:.0} ms of running time after the lease:\n    {}",
                history.tell(hold.held, hold)
            );
            breaches.push(Breach::new(Check::LateLoss, trace));
        }
    }
    breaches
}

/// Holds that ended though they were renewed, and though no process was kept from running: then servers were not either.
pub(super) fn lost(history: &History, holds: &[&Hold]) -> Vec<Breach> {
    let ttl = clock::nanos(history.outcome.config.ttl);
    let lost = holds.iter().filter(|hold| {
        let last_ttl = hold.lease_end.saturating_sub(ttl)..hold.lease_end;
        is_lost(hold) && some_not_running(history, last_ttl.start, last_ttl.end) <= ttl / 10
    });
    lost.map(|hold| {
        let cause = hold.lost.as_ref().map_or("", |(_, cause)| cause);
        Breach::new(
            Check::LostHold,
            format!("{cause}:\n    {}", history.tell(hold.held, hold)),
        )
    })
    .collect()
}

/// Whether the hold was lost while its holder had it, and not because nobody renewed it.
fn is_lost(hold: &Hold) -> bool {
    !hold.fixed && hold.lost.as_ref().is_some_and(|(t, _)| *t <= hold.left)
}

/// The part of this time in which the process was stopped, or got no processor.
fn not_running(history: &History, process: &ProcessHistory, from: u64, to: u64) -> u64 {
    covered(pauses(history, process).collect(), from, to)
}

/// The part of this time in which any process was stopped, or got no processor: a process that waits for a lock waits
/// for its holders, too.
pub(super) fn some_not_running(history: &History, from: u64, to: u64) -> u64 {
    let all = history.processes.iter().flat_map(|process| pauses(history, process));
    covered(all.collect(), from, to)
}

/// When the process was stopped, or got no processor.
fn pauses(history: &History, process: &ProcessHistory) -> impl Iterator<Item = (u64, u64)> {
    let stops = history.strikes.iter().filter_map(move |strike| {
        let stopped = strike.process == Some(process.process) && strike.stops_the_process();
        stopped.then_some((strike.from, strike.to))
    });
    let starved = process.lines.iter().filter_map(|line| match line.event {
        Event::Starved { from } => Some((from, line.t)),
        _ => None,
    });
    stops.chain(starved)
}

/// The part of a time span that the intervals cover together.
fn covered(mut intervals: Vec<(u64, u64)>, from: u64, to: u64) -> u64 {
    intervals.sort_unstable();
    let (mut covered, mut reached) = (0, from);
    for (begin, end) in intervals {
        let (begin, end) = (begin.max(reached), end.min(to));
        if begin < end {
            covered += end - begin;
            reached = end;
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::super::holds::operations;
    use super::*;
    use crate::mode::Held;
    use crate::record::{Line, Outcome};

    #[test]
    fn a_hold_that_was_renewed_and_ran_may_not_be_lost() {
        let config = crate::matrix::cells(false).swap_remove(0).config;
        let (begin, ttl) = (1, clock::nanos(config.ttl));
        let held = |op, fixed| Line {
            t: begin,
            event: Event::Held {
                op,
                lock: 0,
                token: op,
                end: begin + ttl,
                minimum: 0,
                mode: Held::Exclusive,
                fixed,
            },
        };
        let lost = |op| Line {
            t: begin + ttl,
            event: Event::Lost {
                op,
                cause: "Expired".to_owned(),
            },
        };
        let asked = |op| Line {
            t: begin,
            event: Event::Inv { op, lock: 0 },
        };
        let mut lines: Vec<Line> = (1..=3).map(asked).collect();
        // The second one is not renewed, and the third one is not lost.
        lines.extend([held(1, false), held(2, true), held(3, false), lost(1), lost(2)]);
        let end = Line {
            t: begin + 2 * ttl,
            event: Event::Drained,
        };
        let breaches = |lines: Vec<Line>| {
            let process = ProcessHistory {
                process: 0,
                incarnation: 0,
                killed: None,
                lines,
            };
            let operations = operations(&process);
            let outcome = Outcome {
                config: config.clone(),
                about: String::new(),
                begin,
                healed: begin,
                end: begin + 2 * ttl,
                leftovers: Vec::new(),
                connections: (0, 0),
                problems: Vec::new(),
            };
            let (processes, uses, strikes) = (vec![process], Vec::new(), Vec::new());
            let history = History {
                outcome,
                processes,
                uses,
                strikes,
            };
            let holds: Vec<&Hold> = operations.iter().filter_map(|one| one.hold.as_ref()).collect();
            super::lost(&history, &holds).len()
        };
        let ran = [&lines[..], std::slice::from_ref(&end)].concat();
        assert_eq!(breaches(ran), 1);
        let starved = Line {
            t: begin + ttl / 2,
            event: Event::Starved { from: begin },
        };
        assert_eq!(breaches([&lines[..], &[starved, end]].concat()), 0);
    }

    #[test]
    fn time_is_not_counted_twice() {
        assert_eq!(covered(vec![(5, 8), (0, 3), (2, 6)], 1, 7), 6);
        assert_eq!(covered(vec![(0, 10)], 3, 5), 2);
        assert_eq!(covered(vec![], 3, 5), 0);
    }
}
