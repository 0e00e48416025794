//! The background work of a locker: renewals, and requests that no caller waits for.

pub(crate) mod call;
pub(crate) mod job;
pub(crate) mod keeper;
pub(crate) mod runner;
pub(crate) mod schedule;
pub(crate) mod undo;
pub(crate) mod undos;
