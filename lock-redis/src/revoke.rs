//! Forced release, and how a former holder learns of it.

use std::future::pending;
use std::time::Duration;

use lock_core::backend::{HolderId, Revoke, Revoked};
use lock_core::{FencingToken, LockName, Result};
use tokio::time::timeout;

use crate::client::Client;
use crate::names::Keys;
use crate::protocol::arguments::{RevokeArguments, WasRevokedArguments, YES};
use crate::protocol::{self, unexpected_reply};

/// The longest wait for the reason of a loss that the server has reported: the holder must hear of the loss soon.
const REASON_WITHIN: Duration = Duration::from_millis(200);

/// The time for which replicas are asked to have a name that is free.
const FREE: Duration = Duration::from_secs(10);

impl Client {
    /// Ends the hold with this token, whoever has it.
    pub(crate) async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let keys = Keys::new(&self.prefix, name);
        let mut route = self.servers.route(&keys, pending()).await?;
        let arguments = RevokeArguments {
            asked: token.to_string().into(),
            at_once: if how == Revoke::AtLeaseEnd { "" } else { YES }.into(),
            nobody: HolderId::random().to_string().into(),
            grace: (&*self.grace_ms).into(),
        };
        let revoke = &protocol::REVOKE;
        let reply = self
            .servers
            .run(&mut route, revoke, &keys.all(), &arguments.all())
            .await;
        let reply = reply.map_err(|failure| route.lock_error(failure))?;
        let Some(ended) = protocol::revoked(&reply).ok_or_else(unexpected_reply)? else {
            return Ok(Revoked::NotHeld);
        };
        if ended.more {
            self.wake_next(&mut route, &keys, &ended.holder).await;
        }
        if how == Revoke::AtLeaseEnd {
            // A name that is free has nothing that replicas could be asked for; its next grant is acknowledged.
            let lasts = ended.lease_left.unwrap_or(FREE);
            self.servers.acknowledge(&route, &keys, lasts).await?;
        }
        Ok(Revoked::done(ended.lease_left))
    }

    /// True if a hold that is lost was revoked, and the server reports that in time.
    pub(crate) async fn was_revoked(&self, keys: &Keys, holder: HolderId) -> bool {
        let asking = async {
            let mut route = self.servers.route(keys, pending()).await.ok()?;
            let [_lock, fence, ..] = keys.all();
            let (script, holder) = (&protocol::WAS_REVOKED, holder.to_string().into());
            let arguments = WasRevokedArguments { holder };
            let reply = self.servers.run(&mut route, script, &[fence], &arguments.all()).await;
            let reply = reply.ok()?;
            protocol::renewed(&reply)
        };
        timeout(REASON_WITHIN, asking).await.ok().flatten().unwrap_or(false)
    }
}
