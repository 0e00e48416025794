//! Messages that the server sends unasked: wake-ups on channels in its hash slots, and changes of keys.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::Result;
use lock_core::backend::Change;
use redis::cmd;
use tokio::time::timeout;

use super::{Connection, Session, followed};
use crate::error::{Failure, code};

impl Session {
    /// Ends these subscriptions. The channels are in several hash slots, so each has a command of its own.
    pub(super) async fn unsubscribe(&self, channels: Vec<String>) {
        let unsubscribe = |channel: String| async move { self.send(cmd("SUNSUBSCRIBE").arg(channel)).await };
        // If the connection ends meanwhile, so do they.
        drop(join_all(channels.into_iter().map(unsubscribe)).await);
    }
}

impl Connection {
    /// True if it is subscribed to a channel in a hash slot of the server.
    pub(crate) fn is_listening(&self, channel: &str) -> bool {
        self.current()
            .is_some_and(|session| session.channels().use_now(channel))
    }

    /// Subscribes to a channel in a hash slot of the server, if it is not yet.
    ///
    /// # Errors
    /// Also as not executed, if there is no connection.
    ///
    /// # Cancel safety
    /// If dropped, it may be subscribed to, which does no harm.
    pub(crate) async fn listen(&self, channel: &str) -> Result<(), Failure> {
        /// The limit for the server's message after its reply, and for that of the end of an earlier subscription. The driver may have taken another message for it.
        const CONFUSED: Duration = Duration::from_millis(500);
        let session = self.session(std::future::pending()).await;
        let session = session.map_err(Failure::NotExecuted)?;
        while !session.channels().use_now(channel) {
            let _ = timeout(CONFUSED, session.channels().ended(channel)).await;
            self.send(&session, cmd("SSUBSCRIBE").arg(channel)).await?;
            let _ = timeout(CONFUSED, session.channels().subscribed_to(channel)).await;
        }
        Ok(())
    }

    /// Completes at the next change of this key from now on, or when the connection ends; never if the server does not track
    /// keys for this user.
    ///
    /// # Errors
    /// If the connection ended before the server had answered.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn follow(&self, on: &Session, key: &str) -> Result<Change, Failure> {
        if on.followed().is_refused() {
            return Ok(Change::never());
        }
        let changed = on.followed().add(key);
        match self.reply(on, on.send_all(&followed::track(key))).await {
            Ok(_) => Ok(Change::new(async move { drop(changed.await) })),
            Err(Failure::Rejected(error)) => {
                // A node of a cluster may not have the key, or not yet.
                if matches!(code(&error), "ERR" | "NOPERM") {
                    on.followed().refuse();
                }
                Ok(Change::never())
            }
            Err(failure) => Err(failure),
        }
    }
}
