//! Core, from outside.
#![cfg(not(shuttle))]

mod hostile;
mod local_lines;
mod local_queue;
#[cfg(feature = "metrics")]
mod metrics;
mod policy;
#[cfg_attr(
    not(feature = "metrics"),
    expect(dead_code, reason = "only the tests of metrics use all of it")
)]
mod scripted;
