//! Connections to the server: how they are made, kept, shared and ended.

pub(crate) use self::control::Controls;
pub(crate) use self::dial::{Dialer, Failure};
pub(crate) use self::last_answer::LastAnswer;
pub(crate) use self::phase::Held;
pub(crate) use self::pool::{InUse, Pool};
pub(crate) use self::session::{Answer, Commits, Identity, Session, column};

mod control;
mod dial;
mod driver;
mod greeting;
mod last_answer;
mod limiter;
mod liveness;
mod permits;
mod phase;
mod pool;
mod session;
mod worker;
