//! A cell and what became of it.

use crate::check::Check;
use crate::clock::millis;
use crate::judge::Used;
use crate::verdict::Verdict;

use super::cells::Cell;

/// The result of a cell.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) about: String,
    pub(super) result: Result<Verdict, String>,
}

impl Row {
    /// The mutant's own: caught counts as kept.
    pub(super) fn exit_code(&self) -> u8 {
        match (&self.result, self.cell.config.mutant) {
            (Err(_), _) => 2,
            (Ok(verdict), None) => verdict.exit_code(),
            (Ok(verdict), Some(mutant)) if verdict.broken().contains(&mutant.caught_by()) => 0,
            (Ok(_), Some(_)) => 1,
        }
    }

    fn state(&self) -> String {
        let broken = |checks: Vec<Check>| checks.iter().map(Check::to_string).collect::<Vec<_>>().join(", ");
        match (&self.result, self.exit_code(), self.cell.config.mutant) {
            (Err(error), ..) => format!("**not run**: {}", error.lines().next().unwrap_or_default()),
            (Ok(verdict), 0, Some(_)) => format!("caught: {}", broken(verdict.broken())),
            (Ok(_), _, Some(_)) => "**not caught**".to_owned(),
            (Ok(verdict), 0, None) => match self.cell.config.excludes_tokens() {
                Some(why) if !verdict.excluded.is_empty() => {
                    format!(
                        "kept; {} breaches of tokens or fence are excluded: {why}",
                        verdict.excluded.len()
                    )
                }
                _ => "kept".to_owned(),
            },
            (Ok(verdict), 1, None) => format!("**broken**: {}", broken(verdict.broken())),
            (Ok(verdict), ..) => format!("**void**: {}", verdict.problems.join("; ")),
        }
    }

    pub(super) fn line(&self) -> String {
        let result = match &self.result {
            Ok(verdict) => verdict.to_string().lines().last().unwrap_or_default().to_owned(),
            Err(_) => String::new(),
        };
        format!("{}: {} {result}", self.cell.name, self.state().replace("**", ""))
    }

    pub(super) fn table_row(&self) -> String {
        let (config, state) = (&self.cell.config, self.state());
        let name = format!("{} (seed {})", self.cell.name, config.seed);
        let Ok(verdict) = &self.result else {
            return format!("| {name} | {state} | | | | | | | | | | |\n");
        };
        let Verdict {
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
        } = verdict;
        let Used {
            passed,
            kept,
            shared,
            readers,
            permits,
            downgraded,
            upgraded,
        } = used;
        let modes = match config.modes {
            true => format!("{readers} / {permits} / {downgraded} / {upgraded}"),
            false => String::new(),
        };
        let faults: Vec<String> = verdict
            .faults
            .iter()
            .map(|(fault, sent, struck)| format!("{fault} {sent}/{struck}"))
            .collect();
        let recovery = verdict
            .recovery
            .map_or("-".to_owned(), |nanos| format!("{:.0} ms", millis(nanos)));
        let allowed = if config.promises_exclusion() { "" } else { " (may)" };
        format!(
            "| {name} | {state} | {} | {holds} | {passed} / {kept} / {shared} | {modes} | {overlaps}{allowed} | {refused} | {lost} / {torn} | {lost_fenced} / {torn_fenced} | {recovery} | {leftovers} |\n",
            faults.join(", ")
        )
    }
}
