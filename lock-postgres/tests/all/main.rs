//! What the crate does to a real PostgreSQL.
#![forbid(unsafe_code)]

mod disk;
mod fence;
mod lease;
mod session;
mod transaction;
