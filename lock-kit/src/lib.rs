//! Mechanisms that all of polylock's backends on servers share: a crate for those who write backends.
//!
//! [`lock_core`] has the contract and the policy, and a backend the protocol of its server. Backends do not depend on
//! each other, so this crate has what several of them need:
//!
//! - [`backoff`]: pauses between tries;
//! - [`checks`]: what follows from server settings that can lose locks;
//! - [`claims`]: acquires that were never answered, which the server may execute after their end;
//! - [`clean_up`]: when what nobody needs any more is deleted;
//! - [`dial_limiter`]: how often many callers dial a server together;
//! - [`downgrades`]: exclusive holds that become readers';
//! - [`guarantees`]: verdicts that several backends give alike;
//! - [`lease_rows`]: holds that are rows of an SQL database, with an expiry;
//! - [`limits`]: limits of settings that several backends have;
//! - [`list`]: pages of the names in a table;
//! - [`locked_rows`]: names whose row in a database somebody keeps locked;
//! - [`pacing`]: when a waiter asks its server again;
//! - [`panics`]: panics of drivers as errors;
//! - [`requests`]: reports to the caller of an acquire while it waits;
//! - [`runtime`]: whether anybody drives the runtime of a connection;
//! - [`fence`]: the rule by which a fence admits holders, and a fence that is a row of an SQL database;
//! - [`sweep`]: waiters that left without saying so;
//! - [`tables`]: names of tables in an SQL database, and the texts in them;
//! - [`url`]: parameters of URLs and their values, special characters, and the errors for them;
//! - [`identify`]: the error that names a server of another kind.
//!
//! TLS is a crate of its own, `lock-tls`: a user meets its types, and a backend without TLS compiles none of it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod backoff;
pub mod checks;
pub mod claims;
pub mod clean_up;
pub mod dial_limiter;
pub mod downgrades;
pub mod fence;
pub mod guarantees;
pub mod identify;
pub mod lease_rows;
pub mod limits;
pub mod list;
pub mod locked_rows;
pub mod pacing;
pub mod panics;
pub mod requests;
pub mod runtime;
pub mod sweep;
pub mod tables;
pub mod url;
