//! Connections to the server: how they are made, kept, shared and ended.

pub(crate) use self::control::ControlConnections;
pub(crate) use self::dial::Dialer;
pub(crate) use self::driver::execute;
pub(crate) use self::end::{end_connection, find_connection};
pub(crate) use self::group::{CheckNew, ConnectionGroup, Member};
pub(crate) use self::liveness::LastAnswer;
pub(crate) use self::phase::CarriedHold;
pub(crate) use self::pool::{Pool, PooledSession};
pub(crate) use self::session::Session;

mod control;
mod dial;
mod driver;
mod end;
mod greeting;
mod group;
mod handshake;
mod liveness;
mod monitor;
mod permits;
mod phase;
mod pool;
mod session;
mod worker;
