//! The parts of a hold apart from its end: minimum holds, re-entry, passes, changes of the mode.

use std::collections::HashMap;

use super::holds::{Came, Hold};
use crate::backend::Backend;
use crate::check::Check;
use crate::config::RunConfig;
use crate::fault::Effect;
use crate::history::History;
use crate::mode::Held;
use crate::verdict::Breach;

/// The numbers of holds of each special kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// The process's hold before was passed on without a request.
    pub(crate) passed: usize,
    /// Released before their minimum was over.
    pub(crate) kept: usize,
    /// Shared by a re-entry.
    pub(crate) shared: usize,
    /// Held beside others that only read.
    pub(crate) readers: usize,
    pub(crate) permits: usize,
    pub(crate) downgraded: usize,
    pub(crate) upgraded: usize,
}

impl Used {
    pub(super) fn count(holds: &[&Hold]) -> Self {
        let count = |of: fn(&Hold) -> bool| holds.iter().filter(|hold| of(hold)).count();
        Self {
            passed: count(|hold| hold.came == Came::Passed),
            kept: count(|hold| hold.left < hold.sent + hold.minimum),
            shared: count(|hold| hold.reentered.iter().any(|again| again.shared == Some(true))),
            readers: count(|hold| hold.mode.is_shared()),
            permits: count(|hold| matches!(hold.mode, Held::Permits { .. })),
            downgraded: count(|hold| hold.changes.iter().any(|change| change.mode == Held::Shared)),
            upgraded: count(|hold| hold.changes.iter().any(|change| change.mode == Held::Exclusive)),
        }
    }

    /// The feature that the run was to use and did not.
    pub(super) fn unused(self, config: &RunConfig) -> Option<String> {
        if config.measured.is_some() {
            return None;
        }
        // Where they are not there, core does without.
        let (backend, many) = (config.backend, config.tasks > 1);
        let alone = [
            (self.passed == 0 && many && !backend.is_quorum(), "passed on"),
            (self.kept == 0 && backend.is_lease(), "kept for a minimum time"),
            (self.shared == 0, "shared by a re-entry"),
        ];
        let beside_others = [
            (self.readers == 0, "one of several readers"),
            (
                self.permits == 0 && !matches!(backend, Backend::MysqlRow | Backend::PostgresSession),
                "of permits",
            ),
            (self.downgraded == 0 && backend != Backend::MysqlRow, "downgraded"),
            (self.upgraded == 0 && backend == Backend::Redis, "upgraded"),
        ];
        let lacks = if config.modes { &beside_others[..] } else { &alone[..] };
        let lacking: Vec<_> = lacks
            .iter()
            .filter_map(|(lacks, what)| lacks.then_some(*what))
            .collect();
        (!lacking.is_empty()).then(|| format!("no hold was {}", lacking.join(", or ")))
    }
}

/// Grants of a name that was to stay taken, counted from before the request for it was sent.
pub(super) fn taken_too_early(history: &History, holds: &[&Hold]) -> Vec<Breach> {
    let clocks_differ = history.outcome.config.has(Effect::ClockFaster);
    let mut by_lock: HashMap<usize, Vec<&Hold>> = HashMap::new();
    for hold in holds {
        by_lock.entry(hold.lock).or_default().push(hold);
    }
    let mut breaches = Vec::new();
    for holds in by_lock.values_mut() {
        holds.sort_by_key(|hold| hold.granted);
        for (index, first) in holds.iter().enumerate().filter(|(_, hold)| hold.minimum > 0) {
            // The server's clock decides.
            let allowed = if clocks_differ { first.minimum / 20 } else { 0 };
            let until = first.sent + first.minimum - allowed;
            let mut later = holds[index + 1..].iter();
            if let Some(next) = later.find(|hold| hold.token != first.token && hold.granted < until) {
                let [a, b] = [first, next].map(|hold| history.tell(hold.granted, hold));
                let what = format!("granted before its minimum hold was over:\n    {a}\n    {b}");
                breaches.push(Breach::new(Check::MinimumHold, what));
            }
        }
    }
    breaches
}

/// Re-entries that did not share the hold while it was certainly there.
pub(super) fn not_shared(history: &History, holds: &[&Hold]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for hold in holds {
        let odd = hold
            .reentered
            .iter()
            .find(|again| again.t < hold.believed && (again.token != Some(hold.token) || again.shared == Some(false)));
        if let Some(again) = odd {
            let what = format!("not shared: {again:?}\n    {}", history.tell(hold.held, hold));
            breaches.push(Breach::new(Check::Reentry, what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_what_it_is_to_show_is_void() {
        let mut config = crate::matrix::cells(false).swap_remove(0).config;
        let used = Used {
            passed: 1,
            kept: 1,
            ..Used::default()
        };
        assert_eq!(
            used.unused(&config).as_deref(),
            Some("no hold was shared by a re-entry")
        );
        config.measured = Some(0);
        assert_eq!(used.unused(&config), None);
    }
}
