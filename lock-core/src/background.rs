//! What is done whether anybody waits for it or not.

pub(crate) mod call;
pub(crate) mod job;
pub(crate) mod keeper;
pub(crate) mod runner;
pub(crate) mod schedule;
pub(crate) mod undo;
pub(crate) mod undos;
