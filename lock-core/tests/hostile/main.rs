//! Core against backends, callers and runtimes that do their worst.

mod backends;
mod cancel;
mod memory_backend;
mod queue;
mod runtimes;
mod shutdown;
mod support;
