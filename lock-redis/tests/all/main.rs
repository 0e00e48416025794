//! Black-box tests of `lock-redis` on real servers.

mod clock;
mod contract;
mod disconnected;
mod errors;
mod faults;
mod fencing;
mod full_memory;
mod hand_over;
mod hung;
mod interop;
mod late;
mod names;
mod not_executed;
mod ordering;
mod outages;
mod permissions;
mod probe;
mod queue;
mod queue_faults;
mod runtimes;
mod slow;
mod support;
mod timed_out;
mod tokens;
