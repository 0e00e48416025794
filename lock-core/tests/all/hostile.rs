//! Core against backends, callers and runtimes that do their worst.

mod backends;
mod cancel;
mod hand_over;
mod memory_backend;
mod modes;
mod places;
mod queue;
mod reentry;
mod runtimes;
mod shutdown;
mod support;
mod take_over;
