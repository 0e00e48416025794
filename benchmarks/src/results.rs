//! What was measured.

use std::time::Duration;

use benchmarks_load::Unit;

/// All of one backend's run.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) backend: String,
    /// How it was called.
    pub(crate) command: String,
    pub(crate) date: String,
    /// From the server's start on.
    pub(crate) took: Duration,
    /// Of what took part, and where.
    pub(crate) versions: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// One figure of one subject on one workload, in all rounds that counted.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) subject: String,
    pub(crate) unit: Unit,
    pub(crate) values: Vec<f64>,
}

/// What did not take part, or not to the end.
#[derive(Debug)]
pub(crate) struct LeftOut {
    pub(crate) workload: String,
    pub(crate) subject: String,
    pub(crate) why: String,
    /// Whether it should not have happened: what is ours did not work.
    pub(crate) is_failure: bool,
}

impl Results {
    pub(crate) fn row(&self, workload: &str, subject: &str, unit: Unit) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.workload == workload && row.subject == subject && row.unit == unit)
    }

    /// Whether everything that is ours worked.
    pub(crate) fn is_complete(&self) -> bool {
        !self.left_out.iter().any(|left_out| left_out.is_failure)
    }
}

impl Row {
    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    pub(crate) fn best(&self) -> f64 {
        self.extreme(self.unit.more_is_better())
    }

    pub(crate) fn worst(&self) -> f64 {
        self.extreme(!self.unit.more_is_better())
    }

    /// The median, over the rounds, of this figure by the other one's of the same round.
    pub(crate) fn ratio_to(&self, other: &Row) -> f64 {
        if self.values.len() != other.values.len() {
            return self.median() / other.median();
        }
        let ratios: Vec<f64> = self
            .values
            .iter()
            .zip(&other.values)
            .map(|(mine, other)| mine / other)
            .collect();
        median(&ratios)
    }

    fn extreme(&self, largest: bool) -> f64 {
        let extreme = if largest { f64::max } else { f64::min };
        self.values.iter().copied().reduce(extreme).unwrap_or(f64::NAN)
    }
}

/// The middle one; of an even number, the mean of the two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of a run in which nothing was measured.
    pub(crate) fn none(backend: &str) -> Results {
        Results {
            backend: backend.into(),
            command: "cargo run".into(),
            date: "2026-01-02".into(),
            took: Duration::from_secs(130),
            versions: Vec::new(),
            rows: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn row(workload: &str, subject: &str, unit: Unit, values: &[f64]) -> Row {
        Row {
            workload: workload.into(),
            subject: subject.into(),
            unit,
            values: values.into(),
        }
    }

    #[test]
    fn which_is_best_depends_on_the_unit() {
        let pairs = row("own-1", "polylock", Unit::PairsPerSecond, &[3.0, 1.0, 2.0]);
        assert_eq!([pairs.median(), pairs.best(), pairs.worst()], [2.0, 3.0, 1.0]);
        let times = row("own-1", "polylock", Unit::MicrosMedian, &[3.0, 1.0, 2.0, 8.0]);
        assert_eq!([times.median(), times.best(), times.worst()], [2.5, 1.0, 8.0]);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mine = row("own-1", "polylock", Unit::PairsPerSecond, &[10.0, 1.0, 6.0]);
        let bare = row("own-1", "bare", Unit::PairsPerSecond, &[20.0, 2.0, 6.0]);
        assert_eq!(mine.ratio_to(&bare), 0.5);
    }
}
