//! The contract of polylock's distributed locks, their policy, and the memory backend.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::lease::{Ended, HoldState};
pub use error::{Error, ErrorKind, Lost, LostCause, Result};
pub use guard::Guard;
pub use lock::Lock;
pub use locker::Locker;
pub use memory::MemoryBackend;
pub use name::LockName;
pub use token::FencingToken;
pub use watch::Watch;

mod acquire;
pub mod backend;
mod error;
mod guard;
mod held;
mod keeper;
mod limits;
mod lock;
mod locker;
mod memory;
mod name;
mod queue;
mod rules;
mod sync;
mod token;
mod watch;
mod work;
