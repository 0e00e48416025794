//! The contract of polylock's distributed locks, their policy, and the memory backend.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::lease::{Ended, HoldState};
pub use error::{Error, ErrorKind, Lost, LostCause, Result};
pub use memory::MemoryBackend;
pub use name::LockName;
pub use token::FencingToken;

pub mod backend;
mod error;
mod memory;
mod name;
mod rules;
mod sync;
mod token;
