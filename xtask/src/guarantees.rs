//! `cargo xtask guarantees`: the tables of what servers keep, anew. The test that compares them writes them if it is told to.

use std::process::{Command, ExitCode};

use crate::Result;
use crate::test::root;

/// As the test calls it.
const WRITE: &str = "POLYLOCK_WRITE_GUARANTEES";

pub(crate) fn run() -> Result<ExitCode> {
    let mut test = Command::new(env!("CARGO"));
    test.current_dir(root())
        .args([
            "test",
            "--package",
            "conformance-tests",
            "--test",
            "suite",
            "guarantees::",
        ])
        .env(WRITE, "1");
    let status = test.status().map_err(|error| format!("{test:?}: {error}"))?;
    match status.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Err("the tables were not written, or a \"yes\" has no proof: see above".to_owned()),
    }
}
