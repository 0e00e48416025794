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

    /// These, with the workloads of a later run in the place of their own.
    pub(crate) fn with_part(mut self, part: Self) -> Self {
        let mut anew: Vec<&str> = part.rows.iter().map(|row| row.workload.as_str()).collect();
        anew.extend(part.left_out.iter().map(|left_out| left_out.workload.as_str()));
        anew.sort_unstable();
        anew.dedup();
        self.rows.retain(|row| !anew.contains(&row.workload.as_str()));
        self.left_out
            .retain(|left_out| !anew.contains(&left_out.workload.as_str()));
        let version = |what: &str| {
            let found = part.versions.iter().find(|(known, _)| known == what);
            found.map_or("unknown", |(_, version)| version)
        };
        let how = format!(
            "`{}`, {}, polylock {}, load {}",
            part.command,
            part.date,
            version("polylock"),
            version("load")
        );
        self.versions.push((format!("{} anew", anew.join(", ")), how));
        self.rows.extend(part.rows);
        self.left_out.extend(part.left_out);
        self
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

    #[test]
    fn a_part_takes_the_place_of_its_workloads() {
        let pairs = |workload, value| row(workload, "polylock", Unit::PairsPerSecond, &[value]);
        let left_out = |workload: &str| LeftOut {
            workload: workload.into(),
            subject: "redsync".into(),
            why: "there is no go".into(),
            is_failure: false,
        };
        let whole = Results {
            rows: vec![pairs("own-1", 1.0), pairs("one-16", 2.0)],
            left_out: vec![left_out("own-1"), left_out("one-16")],
            ..none("redis")
        };
        let part = Results {
            command: "cargo run --only one".into(),
            rows: vec![pairs("one-16", 3.0)],
            versions: vec![("polylock".into(), "1".into()), ("load".into(), "2".into())],
            ..none("redis")
        };
        let both = whole.with_part(part);
        let figure = |workload| both.row(workload, "polylock", Unit::PairsPerSecond).unwrap().median();
        assert_eq!([figure("own-1"), figure("one-16")], [1.0, 3.0]);
        assert_eq!(both.left_out.len(), 1);
        let how = "`cargo run --only one`, 2026-01-02, polylock 1, load 2";
        assert_eq!(both.versions, [("one-16 anew".to_owned(), how.to_owned())]);
    }
}
