//! The ZooKeeper backend at real servers, in one binary: the tests that leave their server alone share one.

mod connections;
mod ensemble;
mod errors;
mod exclusion;
mod faults;
mod fence;
mod heartbeats;
mod holds;
mod interop;
mod late;
mod list;
mod losses;
mod many_holds;
mod minimum;
mod modes;
mod offset_watch;
mod one_of_several;
mod outage;
mod panics;
mod passes;
mod passwords;
mod queue;
mod revoke;
mod runtimes;
#[cfg(feature = "sasl")]
mod sasl;
mod sessions;
mod shutdown;
mod states;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod token_bases;
mod tokens;
mod write_heartbeats;
