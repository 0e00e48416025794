//! Judges a history, alone.

use std::time::Duration;

use crate::check::Check;
use crate::config::ENOUGH_HOLDS;
use crate::fault::Fault;
use crate::history::{History, ProcessHistory};
use crate::record::{Access, Event, Outcome, Strike, Use};
use crate::verdict::{Breach, Verdict};

use self::holds::{Hold, Operation, Stretch};

pub(crate) use self::gaps::Gaps;
pub(crate) use self::order::overlaps;
pub(crate) use self::sharing::Used;
pub(crate) use self::usage::MORE_CONNECTIONS;

mod gaps;
pub(crate) mod holds;
mod loss;
mod order;
mod sharing;
mod torn;
mod usage;

impl History {
    pub(crate) fn judge(&self) -> Verdict {
        let config = &self.outcome.config;
        let operations: Vec<Operation> = self.processes.iter().flat_map(holds::operations).collect();
        let holds: Vec<&Hold> = operations
            .iter()
            .filter_map(|operation| operation.hold.as_ref())
            .collect();
        let overlaps = overlaps(&holds);
        let (recovery, late) = usage::recovery(self, &holds);
        let lost_fenced = self.lost_updates(true);
        let torn_fenced = torn::reads(&self.uses, true);

        let mut breaches = Vec::new();
        if config.promises_exclusion() {
            breaches.extend(overlaps.iter().map(|(a, b)| overlap(self, *a, *b)));
        }
        breaches.extend(lost_fenced.iter().map(|at| self.broken_at(*at, Check::FencedUpdates)));
        breaches.extend(torn_fenced.iter().map(|at| self.broken_at(*at, Check::TornReads)));
        breaches.extend(order::tokens(self, &holds));
        if config.promises_exclusion() {
            breaches.extend(sharing::taken_too_early(self, &holds));
        }
        breaches.extend(sharing::not_shared(self, &holds));
        breaches.extend(loss::late(self, &operations));
        if config.keeps_holds() {
            breaches.extend(loss::lost(self, &holds));
        }
        breaches.extend(late);
        breaches.extend(usage::standstill(self, &holds));
        breaches.extend(
            self.outcome
                .leftovers
                .iter()
                .map(|what| Breach::new(Check::Leftovers, what.clone())),
        );
        breaches.extend(usage::leaks(self));
        breaches.extend(usage::errors(self));

        let is_excluded = |breach: &Breach| {
            config.excludes_tokens().is_some()
                && matches!(breach.check, Check::Tokens | Check::FencedUpdates | Check::TornReads)
        };
        let (excluded, breaches) = breaches.into_iter().partition(is_excluded);

        let faults: Vec<_> = config
            .nemesis
            .iter()
            .map(|fault| self.struck(*fault, &operations))
            .collect();
        let mut problems = self.outcome.problems.clone();
        let idle = faults.iter().filter(|(_, _, struck)| *struck == 0);
        problems.extend(idle.map(|(fault, sent, _)| format!("{fault} was sent {sent} times and struck nobody")));
        let used = Used::count(&holds);
        problems.extend(used.unused(config));
        // Those that stand still have no chance.
        for process in config.measured.unwrap_or(0)..config.procs {
            let holds = holds.iter().filter(|hold| hold.process == process).count();
            if holds < ENOUGH_HOLDS {
                problems.push(format!(
                    "process {process} had only {holds} holds: too few to show anything"
                ));
            }
        }
        problems.extend(self.panics());
        Verdict {
            holds: holds.len(),
            rate: self.rate(&holds),
            overlaps: overlaps.len(),
            refused: self.uses.iter().filter(|used| used.refused).count(),
            lost: self.lost_updates(false).len(),
            lost_fenced: lost_fenced.len(),
            torn: torn::reads(&self.uses, false).len(),
            torn_fenced: torn_fenced.len(),
            used,
            leftovers: self.outcome.leftovers.len(),
            faults,
            breaches,
            excluded,
            problems,
            recovery,
            gaps: Gaps::of(&self.strikes, &holds, &overlaps),
        }
    }

    fn rate(&self, holds: &[&Hold]) -> f64 {
        let Outcome { begin, healed, .. } = self.outcome;
        let meanwhile = holds.iter().filter(|hold| (begin..healed).contains(&hold.held));
        meanwhile.count() as f64 / Duration::from_nanos(healed - begin).as_secs_f64()
    }

    /// The writes that took effect although they were based on an older version: each undid one.
    fn lost_updates(&self, fenced: bool) -> Vec<usize> {
        let lost = |used: &Use| {
            used.access == Access::Write && used.token.is_some() == fenced && !used.refused && used.base != used.version
        };
        (0..self.uses.len()).filter(|at| lost(&self.uses[*at])).collect()
    }

    /// The rule that this access broke.
    fn broken_at(&self, at: usize, check: Check) -> Breach {
        let lock = self.uses[at].lock;
        let before = self.uses[..=at]
            .iter()
            .filter(|used| used.lock == lock && used.token.is_some());
        let last: Vec<String> = before.map(|used| self.tell(used.t, used)).collect();
        let trace = last[last.len().saturating_sub(8)..].join("\n    ");
        Breach::new(
            check,
            format!("the last accesses to lock-{lock}'s register:\n    {trace}"),
        )
    }

    fn struck(&self, fault: Fault, operations: &[Operation]) -> (Fault, usize, usize) {
        let strikes = || self.strikes.iter().filter(|strike| strike.fault == fault);
        let hit = |strike: &&Strike| {
            strike.happened
                && operations.iter().any(|operation| {
                    strike.process.is_none_or(|process| process == operation.process)
                        && operation.begin <= strike.to
                        && strike.from <= operation.end
                })
        };
        (fault, strikes().count(), strikes().filter(hit).count())
    }

    fn panics(&self) -> Vec<String> {
        let panic = |process: &ProcessHistory| {
            process.lines.iter().find_map(|line| match &line.event {
                Event::Panic { what } => Some(format!("process {} panicked: {what}", process.process)),
                _ => None,
            })
        };
        self.processes.iter().filter_map(panic).collect()
    }
}

fn overlap(history: &History, a: Stretch<'_>, b: Stretch<'_>) -> Breach {
    let [a, b] = [a, b].map(|stretch| history.tell(stretch.from, stretch.hold));
    Breach::new(Check::Overlap, format!("two believed at once:\n    {a}\n    {b}"))
}
