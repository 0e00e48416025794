//! polylock's Redis backend
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use backend::RedisBackend;
pub use config::RedisConfig;
pub use redis;

mod backend;
mod backoff;
mod config;
mod connection;
mod doubts;
mod error;
mod hold;
mod keys;
mod reply;
mod script;
