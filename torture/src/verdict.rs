//! The judgement of a history.

use std::fmt;

use crate::check::Check;
use crate::clock;
use crate::fault::Fault;
use crate::judge::{Gaps, Used};

/// One thing that is not as it should be.
#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) check: Check,
    /// The events, in order.
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
    pub(crate) torn: usize,
    pub(crate) torn_fenced: usize,
    pub(crate) used: Used,
    pub(crate) leftovers: usize,
    /// Sent, and struck a holder or waiter.
    pub(crate) faults: Vec<(Fault, usize, usize)>,
    pub(crate) breaches: Vec<Breach>,
    /// Breaches that are excused.
    pub(crate) excluded: Vec<Breach>,
    /// The problems that make the run void.
    pub(crate) problems: Vec<String>,
    /// The time until the last process acquired after the faults were healed, in nanoseconds.
    pub(crate) recovery: Option<u64>,
    pub(crate) gaps: Gaps,
}

impl Breach {
    pub(crate) fn new(check: Check, trace: impl Into<String>) -> Self {
        let trace = trace.into();
        Self { check, trace }
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
                clock::millis(recovery)
            )?;
        }
        if let Some(median) = self.gaps.median() {
            let longest = self.gaps.pauses.last().copied().unwrap_or_default();
            writeln!(
                f,
                "nobody was granted a lock for {:.0} ms around a fault of the server (median), {:.0} ms at most",
                clock::millis(median),
                clock::millis(longest)
            )?;
        }
        if self.gaps.overlap > 0 {
            let overlap = clock::millis(self.gaps.overlap);
            writeln!(f, "two counted as held at once for {overlap:.0} ms at most")?;
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
            torn,
            torn_fenced,
            used,
            leftovers,
            ..
        } = self;
        let Used {
            passed,
            kept,
            shared,
            readers,
            permits,
            downgraded,
            upgraded,
        } = used;
        write!(
            f,
            "RESULT holds={holds} overlaps={overlaps} refused={refused} lost={lost} lost_fenced={lost_fenced} \
             torn={torn} torn_fenced={torn_fenced} passed={passed} kept={kept} shared={shared} \
             readers={readers} permits={permits} downgraded={downgraded} upgraded={upgraded} leftovers={leftovers}"
        )
    }
}
