#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use config::Config;
pub use connect::{connect, connect_lazy};
pub use lock_core::{
    Ended, Error, ErrorKind, FencingToken, Guard, HoldState, Lock, LockName, Locker, Lost, LostCause, MemoryBackend,
    ReentryKey, Release, Result, Watch, backend,
};

mod config;
mod connect;
