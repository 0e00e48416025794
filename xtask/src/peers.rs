//! `cargo xtask peers`: cases of the conformance suite on other lock libraries.

use std::process::{Command, ExitCode};

use crate::Result;
use crate::test::root;

pub(crate) fn run(options: &[String]) -> Result<ExitCode> {
    let mut peers = Command::new(env!("CARGO"));
    peers
        .current_dir(root())
        .args(["run", "--quiet", "--package", "benchmarks-conformance", "--"])
        .args(options);
    let status = peers.status().map_err(|error| format!("{peers:?}: {error}"))?;
    match status.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Err("the peers were not run, or the page was not written: see above".to_owned()),
    }
}
