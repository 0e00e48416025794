//! What the programs of `src/bin` share.

pub mod conformance;
