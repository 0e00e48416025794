//! The row lock: a transaction that keeps a row of the lock table locked, on a connection of its own.

mod acquire;
mod backend;
mod claims;
mod hold;
mod wait;

pub use self::backend::RowLockBackend;
