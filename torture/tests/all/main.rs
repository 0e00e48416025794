//! One binary for all tests of this crate.

mod acceptance;
mod differential;
mod selection;
