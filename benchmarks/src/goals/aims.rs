//! All that is aimed at.

use benchmarks_load::Unit;

use super::Bound::{AtLeast, AtMost};
use super::{Aim, By, aim};

pub(super) const MEMORY: &[Aim] = &[aim(
    "ns that core adds to a pair on the raw trait",
    "core-1",
    Unit::NanosPerPair,
    By::LessThan("raw-trait"),
    AtMost(1000.0),
)];

/// Shares within 1:1.2.
const EVEN: f64 = 0.83;

pub(super) const REDIS: &[Aim] = &[
    aim(
        "own-1, commands for a pair",
        "own-1",
        Unit::CommandsPerPair,
        By::Alone,
        AtMost(7.05),
    ),
    aim(
        "own-1 by bare",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-16 by bare",
        "own-16",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-64 by bare",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "tls-64 by the same without TLS",
        "tls-64",
        Unit::PairsPerSecond,
        By::Subjects("tls", "polylock"),
        AtLeast(0.75),
    ),
    aim(
        "own-16 by raw-trait",
        "own-16",
        Unit::PairsPerSecond,
        By::Subject("raw-trait"),
        AtLeast(0.95),
    ),
    aim(
        "own-64 by raw-trait",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("raw-trait"),
        AtLeast(0.95),
    ),
    aim(
        "own-1 by rslock",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("rslock"),
        AtLeast(1.0),
    ),
    aim(
        "own-64 by rslock",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("rslock"),
        AtLeast(0.8),
    ),
    aim(
        "instructions-64 by rslock",
        "instructions-64",
        Unit::ServerInstructionsPerPair,
        By::Subject("rslock"),
        AtMost(2.3),
    ),
    // Both take several names in turn, and neither is passed one on without the server.
    aim(
        "own-1-background by bare",
        "own-1-background",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-1-background by own-1",
        "own-1-background",
        Unit::PairsPerSecond,
        By::Workload("own-1"),
        AtLeast(1.0),
    ),
    aim(
        "one-16 by a bare loop of releases",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.8),
    ),
    aim(
        "one-16 by one-16 without passes",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("without-passes"),
        AtLeast(6.0),
    ),
    aim(
        "one-16 by the best peer",
        "one-16",
        Unit::PairsPerSecond,
        By::BestPeer,
        AtLeast(8.0),
    ),
    aim(
        "one-16, smallest share by largest",
        "one-16",
        Unit::Share,
        By::Alone,
        AtLeast(EVEN),
    ),
    aim(
        "two-16 by two-16 without passes",
        "two-16",
        Unit::PairsPerSecond,
        By::Subject("without-passes"),
        AtLeast(4.0),
    ),
    aim(
        "two-16, smaller share by larger",
        "two-16",
        Unit::Share,
        By::Alone,
        AtLeast(EVEN),
    ),
    aim(
        "read-16 by Redisson",
        "read-16",
        Unit::PairsPerSecond,
        By::Subject("redisson"),
        AtLeast(10.0),
    ),
    aim(
        "beside-100 by beside-1, commands for a pair",
        "beside-100",
        Unit::CommandsPerPair,
        By::Workload("beside-1"),
        AtMost(1.05),
    ),
    aim(
        "handoff-128 by handoff-2, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Workload("handoff-2"),
        AtMost(1.5),
    ),
    aim(
        "handoff-128 by poll-10ms, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Subject("poll-10ms"),
        AtMost(0.2),
    ),
];

pub(super) const MYSQL: &[Aim] = &[
    aim(
        "own-1 by bare",
        "own-1",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-16 by bare",
        "own-16",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "own-64 by bare",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.85),
    ),
    aim(
        "tls-64 by the same without TLS",
        "tls-64",
        Unit::PairsPerSecond,
        By::Subjects("tls", "polylock"),
        AtLeast(0.75),
    ),
    aim(
        "one-16 by one-16 without passes",
        "one-16",
        Unit::PairsPerSecond,
        By::Subject("without-passes"),
        AtLeast(8.0),
    ),
    aim(
        "idle-1000, hundredths of a core of this process",
        "idle-1000",
        Unit::CpuPercent,
        By::Alone,
        AtMost(5.0),
    ),
    aim(
        "idle-1000, hundredths of a core of the server",
        "idle-1000",
        Unit::ServerCpuPercent,
        By::Alone,
        AtMost(5.0),
    ),
    aim(
        "leases, own-1 by two updates",
        "own-1",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "leases, own-16 by two updates",
        "own-16",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "leases, own-64 by two updates",
        "own-64",
        Unit::PairsPerSecond,
        By::Subjects("lease", "two-updates"),
        AtLeast(0.75),
    ),
    aim(
        "handoff-128 by handoff-2, median",
        "handoff-128",
        Unit::MicrosMedian,
        By::Workload("handoff-2"),
        AtMost(2.0),
    ),
];

pub(super) const ZOOKEEPER: &[Aim] = &[
    aim(
        "tls-64 by the same without TLS",
        "tls-64",
        Unit::PairsPerSecond,
        By::Subjects("tls", "polylock"),
        AtLeast(0.75),
    ),
    aim(
        "own-64 by the bare client",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.9),
    ),
    aim(
        "own-64 by Curator",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("curator"),
        AtLeast(1.2),
    ),
    aim(
        "own-64 on several sessions by one",
        "own-64",
        Unit::PairsPerSecond,
        By::Subject("one-session"),
        AtLeast(1.5),
    ),
    aim(
        "own-64 in the background by the bare client",
        "own-64-background",
        Unit::PairsPerSecond,
        By::Subject("bare"),
        AtLeast(0.9),
    ),
    aim(
        "handoff-16 by Curator, median",
        "handoff-16",
        Unit::MicrosMedian,
        By::Subject("curator"),
        AtMost(0.5),
    ),
    aim(
        "handoff-16 by the bare client, median",
        "handoff-16",
        Unit::MicrosMedian,
        By::Subject("bare"),
        AtMost(1.15),
    ),
];

pub(super) const QUORUM: &[Aim] = &[
    aim(
        "own-1 by the round trips to one of the servers, median",
        "own-1",
        Unit::MicrosMedian,
        By::Subject("bare"),
        AtMost(1.3),
    ),
    aim(
        "own-1, requests for a pair",
        "own-1",
        Unit::RequestsPerPair,
        By::Alone,
        AtMost(6.05),
    ),
    aim(
        "crowd-100, requests for a pair",
        "crowd-100",
        Unit::RequestsPerPair,
        By::Alone,
        AtMost(8.0),
    ),
    aim(
        "crowd-100, smallest share by largest",
        "crowd-100",
        Unit::Share,
        By::Alone,
        AtLeast(EVEN),
    ),
    aim(
        "crowd-100 by crowd-3",
        "crowd-100",
        Unit::PairsPerSecond,
        By::Workload("crowd-3"),
        AtLeast(0.9),
    ),
    aim(
        "crowd-100 with a dead server by crowd-100",
        "crowd-100-down",
        Unit::PairsPerSecond,
        By::Workload("crowd-100"),
        AtLeast(0.9),
    ),
    aim(
        "crowd-100 by the best peer",
        "crowd-100",
        Unit::PairsPerSecond,
        By::BestPeer,
        AtLeast(1.0),
    ),
];
