//! Core, from outside.
#![cfg(not(shuttle))]

mod hostile;
mod local_queue;
#[cfg(feature = "metrics")]
mod metrics;
mod policy;
mod scripted;
