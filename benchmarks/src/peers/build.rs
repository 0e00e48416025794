//! The programs of the peers, built.

use benchmarks_programs::{Profile, Program};

use crate::entry::Backend;

/// What a peer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Rust,
    Go,
    Java,
    Python,
}

/// The classes to start.
const JAVA_MAIN: &str = "Peers";
const JAVA_CANDIDATE: &str = "Candidate";

/// Builds it, or says why not.
pub(crate) async fn build(family: Family, backend: Backend) -> Result<Program, String> {
    match family {
        Family::Rust if !cfg!(feature = "peers") => Err("it is there with `--features peers` only".into()),
        Family::Rust => benchmarks_programs::rust(backend.name(), backend.name(), Profile::Release).await,
        Family::Go => benchmarks_programs::go(".").await,
        Family::Java => benchmarks_programs::java(JAVA_MAIN).await,
        // With redis-py, as the tests have it.
        Family::Python => benchmarks_programs::python("peers.py", testbed::redis_py()),
    }
}

/// The program of the same peer that is a candidate in an election.
pub(crate) fn electing(program: &Program) -> Program {
    let mut electing = program.clone();
    for argument in electing.arguments.iter_mut().filter(|argument| *argument == JAVA_MAIN) {
        *argument = JAVA_CANDIDATE.into();
    }
    electing
}
