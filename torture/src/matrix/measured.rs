//! The cost of stopped waiters to the others.

use std::fmt;

use super::row::Row;
use crate::backend::Backend;

/// Of a throughput without stopped waiters, how much must be left with them.
const LEAST: f64 = 0.8;

/// The throughput without and with stopped waiters, by rounds.
#[derive(Debug)]
pub(super) struct Measured {
    stopped: usize,
    waiters: usize,
    rounds: Vec<(f64, f64)>,
}

impl Measured {
    /// `None` when it was not measured.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let rate = |row: &Row, stopped: bool| {
            let config = &row.cell.config;
            // Elsewhere stopped waiters stop the others for a while.
            let is_measured = config.backend == Backend::Redis;
            let of_this_kind = is_measured && config.measured.is_some_and(|count| (count > 0) == stopped);
            row.result
                .as_ref()
                .ok()
                .filter(|_| of_this_kind)
                .map(|verdict| verdict.rate)
        };
        let without: Vec<f64> = rows.iter().filter_map(|row| rate(row, false)).collect();
        let with: Vec<f64> = rows.iter().filter_map(|row| rate(row, true)).collect();
        let config = &rows.iter().rfind(|row| rate(row, true).is_some())?.cell.config;
        let rounds: Vec<_> = without.into_iter().zip(with).collect();
        (!rounds.is_empty()).then_some(Self {
            stopped: config.measured?,
            waiters: config.procs,
            rounds,
        })
    }

    pub(super) fn exit_code(&self) -> u8 {
        u8::from(self.ratio() < LEAST)
    }

    /// The median of the rounds.
    fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> = self.rounds.iter().map(|(without, with)| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }
}

/// A section of the page.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stopped,
            waiters,
            rounds,
        } = self;
        writeln!(
            f,
            "\n## Stopped waiters\n\n\
             {waiters} processes wait for one name, and hold it shortly; {stopped} of them are stopped (SIGSTOP) all the \
             time, and not. With them, the others get {:.0} % of the throughput without (median of the rounds; at least \
             {:.0} % is asked for: {}).\n\n\
             | round | holds/s, none stopped | holds/s, {stopped} stopped | ratio |\n|---|---|---|---|",
            self.ratio() * 100.0,
            LEAST * 100.0,
            if self.exit_code() == 0 { "kept" } else { "**broken**" },
        )?;
        for (number, (without, with)) in rounds.iter().enumerate() {
            let ratio = with / without;
            writeln!(f, "| {} | {without:.0} | {with:.0} | {ratio:.2} |", number + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_round_counts() {
        let mut measured = Measured {
            stopped: 20,
            waiters: 40,
            rounds: vec![(100.0, 90.0), (100.0, 30.0), (100.0, 81.0)],
        };
        assert_eq!(measured.exit_code(), 0);
        assert!(measured.to_string().contains("81 %"), "{measured}");
        measured.rounds[2].1 = 79.0;
        assert_eq!(measured.exit_code(), 1);
    }
}
