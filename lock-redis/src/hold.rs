//! A hold, and how it ends.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Hold, HolderId, Lease, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::connection::{Connection, Watched};
use crate::doubts::Doubts;
use crate::error::is_wrong_type;
use crate::keys::Keys;
use crate::{reply, script};

/// What a backend and its holds share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) prefix: String,
    pub(crate) doubts: Doubts,
}

pub(crate) struct RedisHold {
    pub(crate) server: Arc<Server>,
    pub(crate) name: LockName,
    pub(crate) keys: Keys,
    pub(crate) holder: HolderId,
    pub(crate) token: FencingToken,
    pub(crate) lease: Lease,
    pub(crate) _watched: Watched,
}

#[async_trait]
impl Hold for RedisHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.try_renew(ttl).await.map_err(|error| error.with_name(&self.name))
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        match self.server.end(&self.keys, self.holder).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::AlreadyLost),
            Err(error) => Err(error.with_name(&self.name)),
        }
    }
}

impl RedisHold {
    async fn try_renew(&self, ttl: Duration) -> Result<Renewal> {
        let connection = &self.server.connection;
        let session = connection.session(pending()).await?;
        let arguments = [&*self.holder.to_string(), &*millis(ttl)];
        let sent = self.lease.sending();
        match connection
            .run(&session, &script::RENEW, &[&self.keys.lock], &arguments)
            .await
        {
            Ok(answer) => match reply::is_yes(&answer) {
                Some(true) => Ok(Renewal::Renewed(self.lease.arm(sent, ttl)?)),
                Some(false) => Ok(Renewal::Lost),
                None => Err(unexpected()),
            },
            Err(error) if is_wrong_type(&error) => Ok(Renewal::Lost),
            Err(error) => Err(connection.explain(error)),
        }
    }
}

impl Server {
    /// Ends whatever this holder id has or may still get. Whether it had the lock.
    pub(crate) async fn end(&self, keys: &Keys, holder: HolderId) -> Result<bool> {
        let session = self.connection.session(pending()).await?;
        let id = holder.to_string();
        let answer = match self.doubts.may_overtake(holder, session.generation) {
            true => {
                self.connection
                    .run(&session, &script::BURY, &[&keys.lock, &keys.fence], &[&id])
                    .await
            }
            false => self.connection.run(&session, &script::END, &[&keys.lock], &[&id]).await,
        };
        let had_it = match answer {
            Ok(answer) => reply::is_yes(&answer).ok_or_else(unexpected)?,
            Err(error) if is_wrong_type(&error) => false,
            Err(error) => return Err(self.connection.explain(error)),
        };
        self.doubts.settle(holder);
        Ok(had_it)
    }
}

/// As the server counts: whole milliseconds, never less than asked for.
pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

pub(crate) fn unexpected() -> Error {
    let what = "Redis answered a script with something that it cannot answer: is a proxy in between?";
    Error::new(ErrorKind::Unexpected, what)
}

impl fmt::Debug for RedisHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisHold")
            .field("name", &self.name)
            .field("holder", &self.holder)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_never_shortened() {
        assert_eq!(millis(Duration::from_millis(10)), "10");
        assert_eq!(millis(Duration::from_nanos(10_000_001)), "11");
        assert_eq!(millis(Duration::from_secs(365 * 24 * 3600)), "31536000000");
    }
}
