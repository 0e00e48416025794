//! Leases on a real PostgreSQL, watched over a second, independent connection.

mod clock;
mod errors;
mod failover;
mod late;
mod pooler;
mod queue;
mod renewals;
mod sharing;
pub(crate) mod support;
mod tables;
mod tls;
