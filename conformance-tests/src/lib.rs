//! The conformance suite of polylock's distributed locks. It checks whether a backend, or a whole lock library, keeps the
//! contract of [`lock_core`].
//!
//! Each case is a test with its own name. The **raw** cases call a [`DistributedLock`] as core does, so that core cannot mask
//! the faults of a backend. The **subject** cases use a `Locker`, so that they test the policy too; through an adapter
//! ([`Subject`]) they test any other lock library.
//!
//! # Testing a backend of your own
//! Write a [`Harness`]. It says how to make a client in a namespace, by which route, also in a child process; how to end a
//! hold at the server; and how to restart the server. Then one line makes the tests. It needs the crates `conformance-tests`,
//! `async-trait` and `lock-core`, the last one from the same source as the suite. This is the harness of the memory backend, in one file
//! such as `tests/conformance.rs`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use conformance_tests::{
//!     BackendHarness, Data, Harness, Link, Linked, LockerSubject, NoServer, Route, ServerUse, Subject, Timing,
//!     conformance,
//! };
//! use lock_core::MemoryBackend;
//! use lock_core::backend::DistributedLock;
//!
//! conformance!(memory, MemoryHarness); // memory::exclusion_between_tasks, memory::a_held_lock_is_renewed, ...
//!
//! #[derive(Debug)]
//! struct MemoryHarness {
//!     run: u32,
//! }
//!
//! impl MemoryHarness {
//!     /// A namespace is a server of its own.
//!     fn server(&self, namespace: &str) -> MemoryBackend {
//!         MemoryBackend::shared(&format!("{}/{namespace}", self.run))
//!     }
//! }
//!
//! #[async_trait]
//! impl Harness for MemoryHarness {
//!     async fn start(server: ServerUse) -> Result<Self, NoServer> {
//!         match server {
//!             // A real one starts its server, or says why there is none.
//!             ServerUse::Shared => Ok(Self { run: std::process::id() }),
//!             // The cases that restart the server are skipped. A real one starts a server that it can restart.
//!             ServerUse::Own => Err(NoServer::Offline("the memory of this process is not restarted".to_owned())),
//!         }
//!     }
//!
//!     fn attach(_address: &str) -> Self {
//!         unreachable!("no other process reaches this server")
//!     }
//!
//!     fn address(&self) -> Option<String> {
//!         None // a real one gives its children an address to attach to: Some("127.0.0.1:2379".to_owned())
//!     }
//!
//!     fn timing(&self) -> Timing {
//!         Timing::paused() // a real one: Timing::default().with_ttl(..), not below the shortest TTL of the backend
//!     }
//!
//!     async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
//!         Arc::new(LockerSubject::new(self.backend(namespace, route).await))
//!     }
//!
//!     async fn take_away(&self, namespace: &str, name: &str) {
//!         self.server(namespace).take_away(name).expect("a valid name");
//!     }
//!
//!     async fn restart(&self, _data: Data) {
//!         unreachable!("`start` has no server for that") // a real one kills its server and starts it again
//!     }
//!
//!     fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
//!         Vec::new() // a real one: what its keys beside this name would be called
//!     }
//! }
//!
//! #[async_trait]
//! impl BackendHarness for MemoryHarness {
//!     async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
//!         // A real one, whose server is the `SocketAddr` 127.0.0.1:2379, makes a client of `route.resolve(server).await`: a fault
//!         // proxy stands there where one is wanted.
//!         let link = match route {
//!             Route::Through(link) => link.clone(),
//!             Route::Nowhere => {
//!                 let link = Link::new();
//!                 link.cut();
//!                 link
//!             }
//!             _ => Link::new(),
//!         };
//!         Arc::new(Linked::new(self.server(namespace), link))
//!     }
//! }
//! # fn main() {
//! #     let harness = Arc::new(MemoryHarness { run: 0 });
//! #     for case in conformance_tests::cases::all().iter().filter(|case| case.topic == "renewal") {
//! #         let outcome = conformance_tests::execute(case, harness.clone(), case.name);
//! #         assert!(matches!(outcome, conformance_tests::Outcome::Passed), "{}: {outcome}", case.name);
//! #     }
//! # }
//! ```
//!
//! Make clients in `subject`, `backend` and `take_away`. What is made in `start`, or kept in a `static`, is on a runtime that has ended when
//! the case begins, and so a client stops there.
//!
//! A lock library that is no backend writes an adapter, a [`Harness`] alone, and `conformance!(subject other,
//! OtherHarness);`. Some cases are about what polylock alone has, and skip nothing: most of the topic `reentry`, and two of `maximum`. A library
//! without tokens returns any, and fails those about tokens. `conformance!(subject only [CASE CASE] other, OtherHarness);` names the cases
//! that apply.
//!
//! `cargo test memory::`, with the name in that line, runs all its cases. `cargo test renew` runs those of all modules with this in their
//! names, and `cargo test memory:: -- --list` lists them. A filter that no case matches runs none and fails nothing: look at the number.
//! A failed assertion says where it was found, what was seen, and the sentence of the contract that the case's topic is about. After
//! `panicked:` and `did not end`, look at the harness and the backend first. If `start` has no server, its message is all there is.
//! `SAFETY` in it means two holders at a time, or a token that went back. No slow machine explains that: do not repeat such a case.
//! A case whose hold ends if the machine stands still runs up to five times, each time on another name, as long as it fails by what that
//! explains: its hold was over, or a request was late. It prints each such failure after `again, after`. It never does so on paused time, nor
//! after any other failure.
//!
//! With `POLYLOCK_CONFORMANCE_REPORT=FOLDER` in the environment, the results of the cases that ran are written to `report.html` and
//! `report.json` there. A case is not in them if its harness returned [`NoServer::Offline`]; after [`NoServer::Missing`] it has failed.
//! Several test binaries of one run may have modules of the same name: `binary` tells them apart by the package and the name of the
//! binary. A later run replaces the results of the cases that it runs. Empty the folder before: other results of earlier runs stay in it. A
//! folder with a relative path is one in the package's folder. [A workflow for
//! GitHub](https://github.com/polylock/polylock/blob/main/docs/conformance.yml) keeps such a report.
//!
//! # Which cases must pass, and which are skipped
//! A backend must pass the cases of each feature that it [declares](lock_core::backend::Capabilities). A case of a feature
//! that it does not declare is skipped. What it does not declare it must reject, as far as others can tell: cases of modes and
//! of options ask. Only what [`Skip`] lists may be missing. No case asks for a higher limit of permits than the backend declares; two are
//! skipped below three. Core provides four things for every subject that [`LockerSubject`] makes: one request at the server for all local
//! waiters, bounded passes among them, re-entry, and several locks at once.
//!
//! A skip prints one line to standard error, `SKIP module::case: reason`, past the capture of `cargo test`.
//!
//! # Modes
//! Readers, upgrades, downgrades and permits have cases of their own, on the raw layer: a mode that a backend does not
//! declare is refused by core, and its cases are skipped. What becomes of a guard that is
//! [downgraded](SubjectGuard::downgrade) or [upgraded](SubjectGuard::upgrade) is tested on subjects, too. A lock by one permit of one is exclusive too, and so is the write
//! side of a reader-writer lock. Two more lines run the exclusive cases on them:
//!
//! ```text
//! conformance!(one_permit mine_permit, MyHarness);          // raw cases, but those of passes, minimum holds and following
//! conformance!(subject mine_write, WriteSide<MyHarness>);   // subject cases
//! ```
//!
//! Cases wait until the status shows how many hold a name. So the status of a backend that declares modes must show each
//! holder, from its grant to its end.
//!
//! # Faults
//! A client behind a [`Link`] can be cut, stalled or delayed, or can lose its n-th reply. A [`FaultProxy`] does this between
//! the client and any TCP server; [`Linked`] does it around a backend in memory.
//!
//! # What the suite cannot see
//! - Whether [`restart`](Harness::restart) with [`Data::Kept`] restarts the server. If it does nothing, `tokens_grow_over_a_restart` and
//!   `a_hold_survives_a_crash_of_the_server` pass and show nothing. That [`Data::Lost`] loses nothing, the suite sees.
//! - Whether a lease counts from before the request: time passes at [`SentAt::now`](lock_core::backend::SentAt::now) and
//!   [`sending`](lock_core::backend::AcquireRequest::sending) on the threads of the case's runtime, so that a moment that is taken after
//!   the request took effect makes a lease too long. This also finds a backend in this process whose work takes no time. It does
//!   not find one that takes its moments on threads or runtimes of its own, unless a [`FaultProxy`] delays its messages.
//! - With [`Linked`] a link's delay is outside of the backend: between the caller and the backend. A backend in this process can wait
//!   for the link itself, with [`round_trip`] around its request, between `sending` and
//!   [`arm`](lock_core::backend::Lease::arm).
//! - Clients die before each of their replies in turn: with a [`FaultProxy`] this leaves out no step of a request that the server can
//!   tell from another. What a backend does in its own process, such as writing a file, is cut short by killing processes at
//!   moments of chance, a dozen in each run. A file that is emptied before it is written is found by that. If a shorter part of a request
//!   is not safe, run the case often.
//! - What [`close`](lock_core::backend::DistributedLock::close), `check_ttl`, `address` and `server_id` of a backend do: no case calls them.
//! - A client that is killed is not a machine that loses its power: what the backend had written and not synced is still there.
//!
//! # Time
//! On a paused clock a whole run takes a fraction of a second. On real servers, lower bounds are strict and upper bounds are
//! generous ([`Timing::patience`]); no case asserts a speed. A case that hangs fails after 15 times the patience, or after 5 minutes if
//! that is more, and 36 times the TTL and the tick. Most cases wait most of their time: run them with more threads
//! than cores (`RUST_TEST_THREADS=16`).
//!
//! # How the suite is tested
//! [`mutants`] are backends, subjects and a harness with one bug each, most of them bugs of real libraries. The case named for a mutant
//! must catch it by an assertion, while most other cases pass. The [`reference`](mod@reference) without a bug passes all
//! cases.
//!
//! [`DistributedLock`]: lock_core::backend::DistributedLock
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use case::Case;
pub use harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
pub use link::{Broken, Connection, Direction, Link};
pub use linked::{Linked, round_trip};
pub use proxy::FaultProxy;
pub use run::execute;
pub use subject::{
    Ask, Candidate, Elected, ElectionState, End, LockerSubject, Observer, State, Subject, SubjectGuard, Task, Then,
    WaitLimit, Work,
};
pub use verdict::{Capability, Failure, OrFail, Outcome, Skip, Stop, Verdict};
pub use write_side::WriteSide;
pub use yielding::Yielding;

#[doc(hidden)]
pub use child::run_as_child;
#[doc(hidden)]
pub use run::{one_permit_test, subject_test, test};

#[cfg(test)]
mod actor;
mod case;
pub mod cases;
mod child;
mod context;
mod counter;
#[cfg(test)]
mod frugal;
mod harness;
mod job;
mod link;
mod linked;
mod macros;
mod mutant;
pub mod mutants;
mod parent;
mod proxy;
mod raw;
pub mod reference;
mod rules;
mod run;
mod sending;
mod subject;
mod summary;
mod verdict;
mod watched;
mod write_side;
mod yielding;
