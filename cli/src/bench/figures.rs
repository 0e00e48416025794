//! The figures of a run.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// The measurements of one task.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// The time of each acquire, waiting included.
    pub(super) acquires: Vec<Duration>,
    /// The time from just before a release was sent to the next grant of the same lock.
    pub(super) hand_offs: Vec<Duration>,
}

/// The measurements of all tasks of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Figures {
    tasks: usize,
    took: Duration,
    /// The number of times that a lock was acquired and released.
    pairs: usize,
    acquire: Option<Spread>,
    hand_off: Option<Spread>,
    /// The smallest and the largest part of the pairs that one task had.
    shares: Option<(f64, f64)>,
}

/// Of several times.
#[derive(Debug, PartialEq)]
struct Spread {
    median: Duration,
    p99: Duration,
}

impl Figures {
    pub(super) fn new(tasks: usize, took: Duration, measured: Vec<Measured>) -> Self {
        let counts: Vec<_> = measured.iter().map(|task| task.acquires.len()).collect();
        let pairs = counts.iter().sum();
        let share = |count: usize| count as f64 / pairs as f64;
        let shares = counts.iter().min().zip(counts.iter().max());
        let (mut acquires, mut hand_offs) = (Vec::new(), Vec::new());
        for task in measured {
            acquires.extend(task.acquires);
            hand_offs.extend(task.hand_offs);
        }
        Self {
            tasks,
            took,
            pairs,
            acquire: Spread::of(acquires),
            hand_off: Spread::of(hand_offs),
            shares: shares
                .filter(|_| pairs > 0)
                .map(|(least, most)| (share(*least), share(*most))),
        }
    }

    fn pairs_a_second(&self) -> f64 {
        self.pairs as f64 / self.took.as_secs_f64()
    }

    pub(super) fn as_json(&self) -> Value {
        let spread = |spread: &Option<Spread>| {
            let spread = spread.as_ref();
            spread.map(|spread| json!({"median": milliseconds(spread.median), "p99": milliseconds(spread.p99)}))
        };
        json!({
            "tasks": self.tasks,
            "seconds": self.took.as_secs_f64(),
            "pairs": self.pairs,
            "pairs_per_second": self.pairs_a_second(),
            "acquire_ms": spread(&self.acquire),
            "hand_off_ms": spread(&self.hand_off),
            "shares": self.shares.map(|(least, most)| json!({"least": least, "most": most})),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = if self.tasks == 1 { "task" } else { "tasks" };
        write!(f, "{} {tasks}  {:.1} pairs/s", self.tasks, self.pairs_a_second())?;
        for (what, spread) in [("acquire", &self.acquire), ("hand-off", &self.hand_off)] {
            if let Some(Spread { median, p99 }) = spread {
                let (median, p99) = (milliseconds(*median), milliseconds(*p99));
                write!(f, "  {what} {median:.2} ms, p99 {p99:.2} ms")?;
            }
        }
        match self.shares {
            Some((least, most)) => write!(f, "  shares {:.1} % to {:.1} %", 100.0 * least, 100.0 * most),
            None => Ok(()),
        }
    }
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        Some(Self {
            median: times[last / 2],
            p99: times[last * 99 / 100],
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(milliseconds: &[u64]) -> Measured {
        let times: Vec<_> = milliseconds.iter().copied().map(Duration::from_millis).collect();
        Measured {
            hand_offs: times[1..].to_vec(),
            acquires: times,
        }
    }

    #[test]
    fn figures_are_of_all_tasks() {
        let figures = Figures::new(2, Duration::from_secs(2), vec![task(&[3]), task(&[1, 2, 100])]);
        assert_eq!(
            figures.to_string(),
            "2 tasks  2.0 pairs/s  acquire 2.00 ms, p99 3.00 ms  hand-off 2.00 ms, p99 2.00 ms  shares 25.0 % to 75.0 %"
        );
        let fields = figures.as_json();
        assert_eq!(
            (&fields["pairs"], &fields["pairs_per_second"]),
            (&json!(4), &json!(2.0))
        );
        assert_eq!(fields["shares"], json!({"least": 0.25, "most": 0.75}));
        assert_eq!(fields["acquire_ms"]["median"], json!(2.0));
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let figures = Figures::new(1, Duration::from_secs(1), vec![Measured::default()]);
        assert_eq!(figures.to_string(), "1 task  0.0 pairs/s");
        let fields = figures.as_json();
        assert!(
            ["acquire_ms", "hand_off_ms", "shares"]
                .iter()
                .all(|field| fields[field].is_null())
        );
    }

    #[test]
    fn the_99th_of_a_hundred_is_the_last_but_one() {
        let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        let spread = Spread::of(times).expect("there are some");
        assert_eq!(
            (spread.median, spread.p99),
            (Duration::from_millis(50), Duration::from_millis(99))
        );
    }
}
