//! Whether losses were told in time.

use super::holds::Operation;
use crate::check::Check;
use crate::clock;
use crate::history::{History, ProcessHistory};
use crate::record::Event;
use crate::verdict::Breach;

/// How late a loss may be told, of time in which the process ran: more than a busy machine keeps one task of it waiting.
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

/// How much of this time the process was stopped, or got no processor.
fn not_running(history: &History, process: &ProcessHistory, from: u64, to: u64) -> u64 {
    covered(pauses(history, process).collect(), from, to)
}

/// How much of this time any process was stopped, or got no processor: who waits for a lock waits for its holders, too.
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

/// How much of a time span intervals cover together.
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
    use super::*;

    #[test]
    fn time_is_not_counted_twice() {
        assert_eq!(covered(vec![(5, 8), (0, 3), (2, 6)], 1, 7), 6);
        assert_eq!(covered(vec![(0, 10)], 3, 5), 2);
        assert_eq!(covered(vec![], 3, 5), 0);
    }
}
