//! Core against backends, callers and runtimes that do their worst.

mod backends;
mod cancel;
mod memory_backend;
mod modes;
mod places;
mod queue;
mod reentry;
mod releases;
mod runtimes;
mod shutdown;
mod support;
mod take_over;
