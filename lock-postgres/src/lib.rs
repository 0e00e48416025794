//! Fencing and locks of transactions for PostgreSQL.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod fence;
mod names;
pub mod schema;
mod transaction;

pub use self::fence::Fence;
pub use self::transaction::{KEY_OF, lock_in, try_lock_in};
/// The driver, in the version whose transactions [`Fence`] and [`lock_in`] take.
pub use tokio_postgres;
