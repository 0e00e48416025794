//! What a backend and all its holds share, and how whatever a holder id has is ended.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Result;
use lock_core::backend::HolderId;

use crate::claims::Doubts;
use crate::connection::inbox::Inbox;
use crate::connection::{Connection, Session};
use crate::names::Keys;
use crate::protocol::{self, millis, unexpected};

/// What a backend and its holds share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) prefix: String,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) doubts: Doubts,
    pub(crate) grace: Duration,
    pub(crate) grace_ms: String,
}

/// In which way whatever a holder id has ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// A hold, of which the name stays taken for so long.
    Release(Option<Duration>),
    /// A hold, an offer, a place.
    Abandon,
}

impl Server {
    /// Ends whatever this holder id has or may still get. Whether it had the lock.
    pub(crate) async fn end(&self, keys: &Keys, holder: HolderId, how: End) -> Result<bool> {
        let session = self.connection.session(pending()).await?;
        let id = holder.to_string();
        let keep_for = match how {
            End::Release(Some(rest)) => millis(rest),
            _ => String::new(),
        };
        let inbox = match how {
            // A grant has ended the place.
            End::Release(_) => "",
            End::Abandon => self.inbox.channel(),
        };
        let tombstone = match self.doubts.may_overtake(holder, session.generation()) {
            true => "1",
            false => "",
        };
        let arguments = [&*id, &*self.grace_ms, inbox, &*keep_for, tombstone];
        let answer = self
            .connection
            .run(&session, &protocol::END, &keys.all(), &arguments)
            .await;
        let answer = answer.map_err(|failed| self.connection.explain(failed))?;
        let ended = protocol::ended(&answer).ok_or_else(unexpected)?;
        self.doubts.settle(holder);
        if ended.more {
            self.look_on(&session, keys, &id).await;
        }
        Ok(ended.had_it)
    }

    /// Has the server look on for somebody who waits, behind many that are dead. Should it fail, those who wait look by
    /// themselves when they refresh their places.
    async fn look_on(&self, session: &Session, keys: &Keys, id: &str) {
        let arguments = [id, &*self.grace_ms, "", "", "", "more"];
        loop {
            let answer = self
                .connection
                .run(session, &protocol::END, &keys.all(), &arguments)
                .await;
            let ended = answer.ok().and_then(|answer| protocol::ended(&answer));
            if ended.is_none_or(|ended| !ended.more) {
                return;
            }
        }
    }
}
