//! Options that keep a granted lock when a server fails: replicas that acknowledge it, and a delay after a restart.

use std::time::Duration;

use lock_core::Result;

use super::{RedisConfig, misconfigured};

const SHORTEST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

impl RedisConfig {
    /// Sets how many replicas must have a grant, or a renewal, before it counts. Defaults to 0: the server's own answer is enough.
    ///
    /// The backend asks the server with `WAIT` over a second connection: one round trip more for each grant and each renewal,
    /// and no delay for other requests. A grant that too few replicas acknowledge within a twelfth of the TTL (200 ms at most)
    /// is given back and fails as [unavailable](lock_core::ErrorKind::Unavailable). A renewal that too few acknowledge makes the hold
    /// suspect, and it is lost when its last acknowledged TTL ends. Behind other holds, an answer may take up to 0.4 of the TTL.
    ///
    /// `WAIT` counts the replicas that have a write of its own connection. So the backend first writes the lock's key as it is. It
    /// needs no memory, and no key but the lock's. If the server rejects one lock's write, no other hold suffers.
    ///
    /// A fail-over then keeps every granted lock **if the replica that is promoted is one of those that acknowledged it**. That is
    /// certain only if the number is that of *all* replicas that may be promoted: 1 with one replica, 2 with two. With fewer, a
    /// replica that never had the lock may be promoted, and the lock is granted twice. With all of them, no lock is granted while
    /// one replica is away: [`with_restart_delay`](Self::with_restart_delay) protects without that price.
    ///
    /// With all of them, a former master that is cut off and still serves clients grants nothing once its replicas follow the new
    /// one. With fewer, it may: set `min-replicas-to-write` there. In a Redis Cluster no test cuts off a master.
    ///
    /// The user needs `+wait` and `+info`, which [`acl_rules`](Self::acl_rules) lists then.
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets for how long a server that may have forgotten locks gives no new ones. From 1 s to 24 h; it must be at least the
    /// longest TTL, and a longer TTL is refused. Defaults to 0: the server is trusted at once.
    ///
    /// A server may have forgotten locks if it was restarted, if it was a replica and was promoted, or if it does not have the
    /// mark that this backend writes (the key `PREFIX}member`). For `restart_delay` from the first connection to such a server,
    /// tries fail as [unavailable](lock_core::ErrorKind::Unavailable) and waiters wait. By then all holds that it may have forgotten have
    /// expired. A hold that lives is renewed meanwhile: if the server has forgotten it, the renewal puts it back, with the same
    /// token. So no lock is granted twice, and no hold is lost whose process renews it in time. To put a hold back takes the server
    /// the same time however many share the name. A release puts a forgotten hold back, too, and so reports no loss.
    ///
    /// Set the same in all processes that use the server: one without it takes a lock at once. The very first connection to a new
    /// server is delayed, too. A restart is always followed by the delay, also with `appendfsync always`, since nothing tells it
    /// from the restart of a replica as the master. With `appendfsync always` and no replica, leave it at 0: nothing is forgotten.
    ///
    /// It does not protect from data that is deleted while the server runs (`FLUSHALL`), and not from a former master that
    /// still serves clients, or returns, without having become a replica meanwhile.
    ///
    /// Each script that grants a lock looks whether the server was promoted since the connection was made, by `INFO replication`
    /// (two to three microseconds of the server's time). The user needs `+info`, which [`acl_rules`](Self::acl_rules) lists then.
    #[must_use]
    pub fn with_restart_delay(mut self, delay: Duration) -> Self {
        self.restart_delay = delay;
        self
    }

    pub(super) fn check_durability(&self) -> Result<()> {
        if !self.restart_delay.is_zero() && !(SHORTEST_DELAY..=LONGEST_DELAY).contains(&self.restart_delay) {
            return Err(misconfigured(format!(
                "restart_delay is {:?}: give it from 1s to 24h, or 0s for none",
                self.restart_delay
            )));
        }
        Ok(())
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.replicas
    }

    /// `None`: there is none.
    pub(crate) fn restart_delay(&self) -> Option<Duration> {
        Some(self.restart_delay).filter(|delay| !delay.is_zero())
    }
}
