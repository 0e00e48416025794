//! polylock's ZooKeeper backend.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::ZooKeeperBackend;
pub use config::ZooKeeperConfig;

mod backend;
mod claim;
mod config;
mod error;
mod heartbeat;
mod hold;
mod name;
mod probe;
mod queue;
mod session;
mod supervisor;
mod worker;
