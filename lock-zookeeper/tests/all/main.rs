//! The ZooKeeper backend at real servers, in one binary: the tests that leave their server alone share one.

mod errors;
mod faults;
mod heartbeats;
mod holds;
mod late;
mod outage;
mod panics;
mod runtimes;
mod support;
