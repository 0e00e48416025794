//! The commands of a connection's handles to its task.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use lock_core::backend::{HolderId, SentAt};
use tokio::sync::oneshot;

use super::Gathered;
use crate::connection::driver::EarlyResult;
use crate::connection::monitor::HoldRegistry;
use crate::connection::phase::CarriedHold;
use crate::error::SqlError;
use crate::protocol::Answer;

pub(in super::super) type Reply<T> = oneshot::Sender<Result<T, SqlError>>;

pub(in super::super) enum Command {
    /// Runs statements in one round trip, and sets the session's `wait_timeout` before, where given.
    Run {
        sql: String,
        wait_timeout: Option<u64>,
        early: Option<EarlyResult>,
        reply: Reply<Answer>,
    },
    /// Runs one of many small jobs: those that wait at the same time go out as one text.
    Gather(Gathered),
    /// Asks the server whether it is there.
    Ping(Reply<()>),
    /// From now on the connection carries a hold.
    Carry(CarriedHold),
    /// Renews the hold.
    Renew(RenewCommand),
    /// Runs the statements that end this holder's hold. Repeated, it does nothing.
    Release {
        holder: HolderId,
        sql: String,
        /// Sent when what was under way before has been answered.
        begun: oneshot::Sender<()>,
        reply: Reply<()>,
    },
    /// Nobody uses the connection any more: keep it open for a while.
    Idle,
    /// From now on, keep it open for as long as anybody has a handle.
    KeepOpen,
    /// From now on, whatever it carries is monitored by way of this registry.
    Monitor(Arc<HoldRegistry>),
}

/// Renews this holder's hold to at least `ttl` from now.
pub(in super::super) struct RenewCommand {
    pub(in super::super) holder: HolderId,
    pub(in super::super) ttl: Duration,
    /// The moment just before the statements were sent; `None` if the hold has ended.
    pub(in super::super) reply: oneshot::Sender<Result<Option<SentAt>, Error>>,
}
