//! Core, from outside.
#![cfg(not(shuttle))]

#[cfg(feature = "blocking")]
mod blocking;
mod election;
mod hostile;
mod local_lines;
mod local_queue;
#[cfg(feature = "metrics")]
mod metrics;
mod multi;
mod policy;
mod rw_lock;
mod scripted;
