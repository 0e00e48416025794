//! Waits for replicas, if a grant needs them, and says what a missing acknowledgement means.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use redis::RedisError;

use super::acknowledger::Unacknowledged;
use super::{Connection, Session, takeover};
use crate::error::{Failure, code, is_read_only};
use crate::names::Keys;

impl Connection {
    /// Waits until enough replicas have all that the server answered on this session before, for a hold of this TTL, whose lock
    /// it has. Returns at once if none is needed.
    ///
    /// # Errors
    /// Unavailable, if too few have it in time, or the connection ended; or the server's error. Some may have it, or get it
    /// later.
    pub(crate) async fn acknowledge(&self, on: &Session, keys: &Keys, ttl: Duration) -> Result<()> {
        let Some(acknowledger) = on.acknowledger() else {
            return Ok(());
        };
        let acknowledged = tokio::select! {
            biased;
            acknowledged = acknowledger.acknowledged(keys.lock()[0], ttl) => acknowledged,
            why = on.ended() => return Err(self.lock_error(Failure::NoReply(why))),
            never = takeover::watch_supervisor(&self.0) => match never {},
        };
        acknowledged.map_err(|error| match error {
            Unacknowledged::Short(count) => acknowledger.short(Some(count), &self.0.dialer),
            Unacknowledged::Late => acknowledger.short(None, &self.0.dialer),
            Unacknowledged::Gone => {
                let what = format!("Redis at {} does not have the lock any more", self.0.dialer);
                Error::new(ErrorKind::Unavailable, what)
            }
            Unacknowledged::Rejected(error) => {
                if is_read_only(&error) {
                    self.0.end(on, &self.0.lock_error(error.clone()));
                }
                self.unacknowledged(error)
            }
            Unacknowledged::Unknown => {
                let what = format!("the second connection to Redis at {} has ended", self.0.dialer);
                let why = Error::new(ErrorKind::Unavailable, what);
                self.0.end(on, &why);
                self.lock_error(Failure::NoReply(why))
            }
        })
    }

    /// The error for a write of which the server does not say which replicas have it. The write itself was executed.
    fn unacknowledged(&self, error: RedisError) -> Error {
        match code(&error) {
            "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => {
                let what = format!(
                    "Redis at {} cannot say which replicas have the lock, since its hash slot is being moved",
                    self.0.dialer
                );
                Error::new(ErrorKind::Unavailable, what).with_source(error)
            }
            _ => self.0.lock_error(error),
        }
    }
}
