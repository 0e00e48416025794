//! The sessions, and what keeps them: a new connection when one has broken, and a new session when one has ended.

pub(crate) use budget::MAX_PATH_BYTES;
pub(crate) use driver::Connection;
pub(crate) use establish::ensure_root;
pub(crate) use room::Room;
pub(crate) use session::{Delete, Session, SessionEnded};
pub(crate) use sessions::Sessions;
pub(crate) use token_offset::Stored;

mod backoff;
mod budget;
mod dial;
mod driver;
mod establish;
mod granted;
mod heartbeat;
mod keep_alive;
mod room;
mod session;
mod sessions;
mod supervisor;
#[cfg(feature = "tls")]
mod tls;
mod token_offset;
