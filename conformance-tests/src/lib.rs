//! The conformance suite of polylock's distributed locks
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
pub use link::{Broken, Connection, Direction, Link};
pub use linked::{Linked, round_trip};
pub use proxy::FaultProxy;
pub use run::{Case, Outcome, execute};
pub use subject::{Ask, End, LockerSubject, Patience, State, Subject, SubjectGuard, Task};
pub use verdict::{Capability, Failure, OrFail, Skip, Stop, Verdict};
pub use yielding::Yielding;

#[doc(hidden)]
pub use run::{subject_test, test};

pub mod cases;
mod child;
mod context;
mod harness;
mod job;
mod link;
mod linked;
mod macros;
pub mod mutants;
mod proxy;
mod raw;
pub mod reference;
mod run;
mod subject;
mod verdict;
mod yielding;
