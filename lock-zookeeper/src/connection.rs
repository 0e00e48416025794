//! The session, and what keeps it: a new connection when one has broken, and a new session when one has ended.

pub(crate) use driver::Connection;
pub(crate) use establish::ensure_root;
pub(crate) use session::{Delete, Session, SessionEnded};
pub(crate) use supervisor::Supervisor;

mod backoff;
mod driver;
mod establish;
mod heartbeat;
mod keep_alive;
mod runtime_check;
mod session;
mod supervisor;
#[cfg(feature = "tls")]
mod tls;
