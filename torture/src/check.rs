//! Judges a history, alone.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::history::{self, Line, NEMESIS, OUTCOME, Outcome, RESOURCE, Strike, Use, parse_process_file};
use crate::setting::{Fault, Model, name_of};

use self::holds::{Hold, Operation};

pub(crate) use self::order::overlaps;

pub(crate) mod holds;
mod loss;
mod order;
mod sharing;
mod usage;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Check {
    /// Inside the failure model believed intervals never overlap.
    Overlap,
    /// No fenced update is lost.
    FencedUpdates,
    /// Tokens are unique, and increase in real time.
    Tokens,
    /// A name is granted to nobody else before its minimum hold is over.
    MinimumHold,
    /// Whoever holds gets the same hold again with its re-entry key, and keeps it as long as one guard is there.
    Reentry,
    /// A loss is told at most 150 ms of running time after the lease.
    LateLoss,
    /// Everyone acquires soon after the last fault was healed.
    Recovery,
    /// Nothing is left on the server but documented fence state.
    Leftovers,
    /// Open files, connections and memory stay flat.
    Leaks,
    /// Failures are of a kind that the contract has for them.
    Errors,
}

/// All that a run has recorded.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) outcome: Outcome,
    pub(crate) processes: Vec<Process>,
    pub(crate) uses: Vec<Use>,
    pub(crate) strikes: Vec<Strike>,
}

/// The life of one process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
    /// When it was killed.
    pub(crate) killed: Option<u64>,
    pub(crate) lines: Vec<Line>,
}

/// One thing that is not as it should be.
#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) check: Check,
    /// What happened, in order.
    pub(crate) trace: String,
}

/// The judgement.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) holds: usize,
    /// Holds per second while things broke.
    pub(crate) rate: f64,
    pub(crate) overlaps: usize,
    pub(crate) refused: usize,
    pub(crate) lost: usize,
    pub(crate) lost_fenced: usize,
    /// Holds that the process's hold before was handed over to.
    pub(crate) handed: usize,
    /// Holds that were released before their minimum was over.
    pub(crate) kept: usize,
    /// Holds that were shared by a re-entry.
    pub(crate) shared: usize,
    pub(crate) leftovers: usize,
    /// Sent, and struck a holder or waiter.
    pub(crate) faults: Vec<(Fault, usize, usize)>,
    pub(crate) breaches: Vec<Breach>,
    /// What would be one, if nothing excused it.
    pub(crate) excluded: Vec<Breach>,
    /// What makes the run void.
    pub(crate) problems: Vec<String>,
    /// How long the last one took to acquire after the faults were healed, in nanoseconds.
    pub(crate) recovery: Option<u64>,
}

/// Too few to have shown anything.
const HOLDS_OF_A_PROCESS: usize = 10;

impl History {
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let outcome = std::fs::read(dir.join(OUTCOME)).map_err(|error| {
            Error::new(format!(
                "{}: {error}: is this the directory of a finished run?",
                dir.join(OUTCOME).display()
            ))
        })?;
        let strikes: Vec<Strike> = history::read(&dir.join(NEMESIS))?;
        let mut processes = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let Some((process, incarnation)) = entry.file_name().to_str().and_then(parse_process_file) else {
                continue;
            };
            let killed = strikes.iter().find(|strike| {
                (strike.fault, strike.process, strike.incarnation) == (Fault::Kill, Some(process), incarnation)
            });
            processes.push(Process {
                process,
                incarnation,
                killed: killed.map(|strike| strike.from),
                lines: history::read(&entry.path())?,
            });
        }
        processes.sort_by_key(|process| (process.process, process.incarnation));
        Ok(Self {
            outcome: serde_json::from_slice(&outcome)?,
            processes,
            uses: history::read(&dir.join(RESOURCE))?,
            strikes,
        })
    }

    pub(crate) fn judge(&self) -> Verdict {
        let setting = &self.outcome.setting;
        let operations: Vec<Operation> = self.processes.iter().flat_map(holds::operations).collect();
        let holds: Vec<&Hold> = operations
            .iter()
            .filter_map(|operation| operation.hold.as_ref())
            .collect();
        let overlaps = overlaps(&holds);
        let (recovery, late) = usage::recovery(self, &holds);
        let lost_fenced = self.lost_updates(true);

        let mut breaches = Vec::new();
        if setting.model() == Model::Inside {
            breaches.extend(overlaps.iter().map(|(a, b)| Breach::overlap(self, a, b)));
        }
        breaches.extend(lost_fenced.iter().map(|at| self.lost_update(*at)));
        breaches.extend(order::tokens(self, &holds));
        if setting.model() == Model::Inside {
            breaches.extend(sharing::taken_too_early(self, &holds));
        }
        breaches.extend(sharing::not_shared(self, &holds));
        breaches.extend(loss::late(self, &operations));
        breaches.extend(late);
        breaches.extend(
            self.outcome
                .leftovers
                .iter()
                .map(|what| Breach::new(Check::Leftovers, what.clone())),
        );
        breaches.extend(usage::leaks(self));
        breaches.extend(usage::errors(self));

        let is_excluded = |breach: &Breach| {
            setting.excludes_tokens().is_some() && matches!(breach.check, Check::Tokens | Check::FencedUpdates)
        };
        let (excluded, breaches) = breaches.into_iter().partition(is_excluded);

        let faults: Vec<_> = setting
            .nemesis
            .iter()
            .map(|fault| self.struck(*fault, &operations))
            .collect();
        let mut problems = self.outcome.problems.clone();
        let idle = faults.iter().filter(|(_, _, struck)| *struck == 0);
        problems.extend(idle.map(|(fault, sent, _)| format!("{fault} was sent {sent} times and struck nobody")));
        let used = sharing::Used::count(&holds);
        problems.extend(used.unused(setting));
        // Those that stand still have no chance.
        for process in setting.measured.unwrap_or(0)..setting.procs {
            let holds = holds.iter().filter(|hold| hold.process == process).count();
            if holds < HOLDS_OF_A_PROCESS {
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
            handed: used.handed,
            kept: used.kept,
            shared: used.shared,
            leftovers: self.outcome.leftovers.len(),
            faults,
            breaches,
            excluded,
            problems,
            recovery,
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
            used.access == history::Access::Write
                && used.token.is_some() == fenced
                && !used.refused
                && used.base != used.version
        };
        (0..self.uses.len()).filter(|at| lost(&self.uses[*at])).collect()
    }

    fn lost_update(&self, at: usize) -> Breach {
        let lock = self.uses[at].lock;
        let before = self.uses[..=at]
            .iter()
            .filter(|used| used.lock == lock && used.token.is_some());
        let last: Vec<String> = before.map(|used| self.tell(used.t, used)).collect();
        let trace = last[last.len().saturating_sub(8)..].join("\n    ");
        Breach::new(
            Check::FencedUpdates,
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
        let panic = |process: &Process| {
            process.lines.iter().find_map(|line| match &line.event {
                history::Event::Panic { what } => Some(format!("process {} panicked: {what}", process.process)),
                _ => None,
            })
        };
        self.processes.iter().filter_map(panic).collect()
    }

    /// Something that was recorded, with its time since the beginning.
    fn tell(&self, t: u64, what: impl fmt::Debug) -> String {
        let seconds = (t as f64 - self.outcome.begin as f64) / 1e9;
        format!("{seconds:.6}s {what:?}")
    }
}

impl Breach {
    fn new(check: Check, trace: impl Into<String>) -> Self {
        let trace = trace.into();
        Self { check, trace }
    }

    fn overlap(history: &History, a: &Hold, b: &Hold) -> Self {
        let [a, b] = [a, b].map(|hold| history.tell(hold.held, hold));
        Self::new(Check::Overlap, format!("two believed at once:\n    {a}\n    {b}"))
    }
}

impl Verdict {
    pub(crate) fn broken(&self) -> Vec<Check> {
        let mut broken: Vec<_> = self.breaches.iter().map(|breach| breach.check).collect();
        broken.sort_unstable();
        broken.dedup();
        broken
    }

    /// 0: kept, 1: broken, 2: nothing shown.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.breaches.is_empty(), self.problems.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        for check in self.broken() {
            let all = || self.breaches.iter().filter(|breach| breach.check == check);
            for breach in all().take(SHOWN) {
                writeln!(f, "{check}: {}", breach.trace)?;
            }
            if all().count() > SHOWN {
                writeln!(f, "{check}: and {} more", all().count() - SHOWN)?;
            }
        }
        for breach in self.excluded.iter().take(SHOWN) {
            writeln!(f, "excluded: {}: {}", breach.check, breach.trace)?;
        }
        for problem in &self.problems {
            writeln!(f, "error: {problem}")?;
        }
        if let Some(recovery) = self.recovery {
            writeln!(
                f,
                "everyone had acquired {:.0} ms after the last fault",
                crate::clock::millis(recovery)
            )?;
        }
        write!(f, "FAULTS")?;
        for (fault, sent, struck) in &self.faults {
            write!(f, " {fault}={sent}/{struck}")?;
        }
        writeln!(f)?;
        for check in self.broken() {
            writeln!(f, "BROKEN check={check}")?;
        }
        let Self {
            holds,
            overlaps,
            refused,
            lost,
            lost_fenced,
            handed,
            kept,
            shared,
            leftovers,
            ..
        } = self;
        write!(
            f,
            "RESULT holds={holds} overlaps={overlaps} refused={refused} lost={lost} lost_fenced={lost_fenced} \
             handed={handed} kept={kept} shared={shared} leftovers={leftovers}"
        )
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name_of(self))
    }
}
