//! One binary for all tests of this crate.

mod acceptance;
mod differential;
mod models;
mod quorum;
mod selection;
