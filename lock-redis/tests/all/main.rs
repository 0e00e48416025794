//! Black-box tests of `lock-redis` on real servers, one of its own for each test.
//!
//! With a server that already runs (`POLYLOCK_REDIS_URL`) use `RUST_TEST_THREADS=1`: some tests count the server's commands,
//! end its connections or delete its data.

mod cancelled;
mod clock;
mod cluster;
mod connections;
mod contract;
mod disconnected;
mod errors;
mod faults;
mod fence;
mod following;
mod full_memory;
mod gathered;
mod hung;
mod idle;
mod interop;
mod keeping;
mod late;
mod list;
mod losses;
mod lost_replies;
mod mode_scripts;
mod modes;
mod names;
mod not_executed;
mod ordering;
mod outages;
mod passes;
mod passwords;
mod permissions;
mod probe;
mod queue;
mod queue_faults;
mod renewals;
mod replicas;
mod restart_delay;
mod revoke;
mod runtimes;
mod sentinel;
mod simulation;
mod slow;
mod support;
mod timed_out;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
