//! What is measured.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

use crate::Error;

/// What one round measured.
pub type Figures = Vec<(Unit, f64)>;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unit {
    /// Acquires with their releases per second.
    PairsPerSecond,
    /// Microseconds, the median of a round.
    MicrosMedian,
    /// Microseconds, the 99th percentile of a round.
    Micros99,
    /// The smallest share of a task by the largest; of a client, where several have the same tasks.
    Share,
    /// Microseconds, the longest wait for the write side in a round.
    MicrosLongestWrite,
    /// Acquires with their releases in a round.
    Pairs,
    /// Commands that the server ran for an acquire with its release, those within scripts included.
    CommandsPerPair,
    /// Requests of a client to all servers together for an acquire with its release.
    RequestsPerPair,
    /// Microseconds of the server for an acquire with its release.
    ServerMicrosPerPair,
    /// Nanoseconds for an acquire with its release.
    NanosPerPair,
    /// Allocations of memory for an acquire with its release.
    AllocationsPerPair,
    /// Bytes of memory for a waiter.
    BytesPerWaiter,
    /// Bytes of memory for a lock that is held.
    BytesPerLock,
    /// Requests to the server to keep one lock for a minute.
    CommandsPerLockMinute,
    /// Milliseconds of this process's CPU to keep one lock for a minute.
    CpuPerLockMinute,
    /// Milliseconds of the server's CPU to keep one lock for a minute.
    ServerCpuPerLockMinute,
    /// Hundredths of a core that this process uses.
    CpuPercent,
    /// Hundredths of a core that the server uses.
    ServerCpuPercent,
    /// Nanoseconds of this process's CPU for one operation.
    NanosPerOperation,
    /// Microseconds of this process's CPU for an acquire with its release.
    CpuPerPair,
    /// Microseconds of the server's CPU for an acquire with its release.
    ServerCpuPerPair,
    /// Instructions of the server for an acquire with its release.
    ServerInstructionsPerPair,
    /// How often a worker of the runtime slept, for an acquire with its release.
    ParksPerPair,
    /// How often the system took a thread of this process off its core, for an acquire with its release.
    SwitchesPerPair,
    /// Bytes of the server's log for an acquire with its release.
    LogBytesPerPair,
    /// Bytes of the server's log for a renewal.
    LogBytesPerRenewal,
    /// Kilobytes of the server's tables and their indexes, when the round is over.
    TableKilobytes,
    /// Kilobytes of the indexes alone.
    IndexKilobytes,
    /// Dead versions of rows in the server's tables, when the round is over.
    DeadRows,
}

const NAMES: [(Unit, &str); 29] = [
    (Unit::PairsPerSecond, "pairs/s"),
    (Unit::MicrosMedian, "us-p50"),
    (Unit::Micros99, "us-p99"),
    (Unit::Share, "share-min/max"),
    (Unit::MicrosLongestWrite, "us-write-max"),
    (Unit::Pairs, "pairs"),
    (Unit::CommandsPerPair, "commands/pair"),
    (Unit::RequestsPerPair, "requests/pair"),
    (Unit::ServerMicrosPerPair, "server-us/pair"),
    (Unit::NanosPerPair, "ns/pair"),
    (Unit::AllocationsPerPair, "allocs/pair"),
    (Unit::BytesPerWaiter, "B/waiter"),
    (Unit::BytesPerLock, "B/lock"),
    (Unit::CommandsPerLockMinute, "commands/lock-min"),
    (Unit::CpuPerLockMinute, "cpu-ms/lock-min"),
    (Unit::ServerCpuPerLockMinute, "server-cpu-ms/lock-min"),
    (Unit::CpuPercent, "cpu-%"),
    (Unit::ServerCpuPercent, "server-cpu-%"),
    (Unit::NanosPerOperation, "cpu-ns"),
    (Unit::CpuPerPair, "cpu-us/pair"),
    (Unit::ServerCpuPerPair, "server-cpu-us/pair"),
    (Unit::ServerInstructionsPerPair, "server-instr/pair"),
    (Unit::ParksPerPair, "parks/pair"),
    (Unit::SwitchesPerPair, "switches/pair"),
    (Unit::LogBytesPerPair, "log-B/pair"),
    (Unit::LogBytesPerRenewal, "log-B/renewal"),
    (Unit::TableKilobytes, "table-kB"),
    (Unit::IndexKilobytes, "index-kB"),
    (Unit::DeadRows, "dead-rows"),
];

impl Unit {
    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::PairsPerSecond | Self::Share | Self::Pairs)
    }

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(unit, _)| *unit == self);
        found.map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found
            .map(|(unit, _)| *unit)
            .ok_or_else(|| format!("there is no unit {name:?}").into())
    }
}

/// Times of a microsecond to a minute, with three digits.
pub(crate) fn times() -> Histogram<u64> {
    const LONGEST_NANOS: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NANOS, 3).expect("these bounds are valid")
}

/// Median and 99th percentile; nothing where nothing was measured.
pub(crate) fn percentiles(times: &Histogram<u64>) -> Figures {
    if times.is_empty() {
        return Vec::new();
    }
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    vec![(Unit::MicrosMedian, micros(0.5)), (Unit::Micros99, micros(0.99))]
}

/// The smallest count by the largest.
pub(crate) fn share(counts: impl Iterator<Item = u64> + Clone) -> f64 {
    match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if most > 0 => least as f64 / most as f64,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_they_are_written() {
        for (unit, name) in NAMES {
            assert_eq!(unit.to_string(), name);
            assert_eq!(name.parse::<Unit>().unwrap(), unit);
        }
        assert!("pairs/h".parse::<Unit>().is_err());
    }

    #[test]
    fn shares() {
        assert_eq!(share([4, 2, 8].into_iter()), 0.25);
        assert_eq!(share([0, 0].into_iter()), 0.0);
        assert_eq!(share(std::iter::empty()), 0.0);
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let mut times = times();
        for micros in 1..=100 {
            times.record(micros * 1000).unwrap();
        }
        let figures = percentiles(&times);
        assert!((figures[0].1 - 50.0).abs() < 0.1, "{figures:?}");
        assert!((figures[1].1 - 99.0).abs() < 0.1, "{figures:?}");
    }
}
