//! The ttls of a case, and the times that follow from them.

use std::time::Duration;

use super::Cx;
use crate::subject::Ask;

/// The least ttl of cases in which nothing is to expire, if the backend keeps it.
const LONG_TTL: Duration = Duration::from_secs(60);

impl Cx {
    /// The ttl of cases that wait for its end.
    pub(crate) fn ttl(&self) -> Duration {
        self.timing().ttl
    }

    /// The ttl of cases in which nothing is to expire, however busy the machine.
    pub(crate) async fn long_ttl(&self) -> Duration {
        let capabilities = self.observer().await.capabilities();
        let long = LONG_TTL.max(3 * self.patience());
        long.clamp(capabilities.shortest_ttl, capabilities.longest_ttl)
    }

    /// So many ttls, if the backend keeps a hold for so long.
    pub(crate) async fn ttls(&self, many: u32) -> Duration {
        let capabilities = self.observer().await.capabilities();
        (many * self.ttl()).min(capabilities.longest_ttl)
    }

    /// The ttl of a hold that must last while a machine stands still, and whose end is waited for in part.
    pub(crate) async fn lasting_ttl(&self) -> Duration {
        self.ttls(4).await
    }

    /// By when the hold of a dead client must be free: its ttl, a tick, and patience.
    pub(crate) fn freed_by(&self, ttl: Duration) -> Duration {
        ttl + self.timing().tick + self.patience()
    }

    /// By when a name must be free whose holds were all released or undone.
    pub(crate) async fn freed_soon(&self) -> Duration {
        self.before_expiry(self.patience()).await
    }

    /// The bound, or less: a hold of the long ttl that is left behind must still be there, also where the longest ttl is short.
    /// Where a session renews, such a hold does not expire.
    pub(crate) async fn before_expiry(&self, bound: Duration) -> Duration {
        let capabilities = self.observer().await.capabilities();
        match capabilities.session_renewal {
            true => bound,
            false => bound.min(self.long_ttl().await * 3 / 4),
        }
    }

    /// An acquire that waits for ever, for a hold that expires no time soon.
    pub(crate) async fn ask(&self, name: &str) -> Ask {
        Ask::new(name, self.long_ttl().await)
    }

    /// An acquire that waits for ever, with the ttl that can be waited out.
    pub(crate) fn brief(&self, name: &str) -> Ask {
        Ask::new(name, self.ttl())
    }

    /// An acquire that waits for ever, with the ttl of a hold that is taken away: it must not be over before.
    pub(crate) async fn lasting(&self, name: &str) -> Ask {
        Ask::new(name, self.lasting_ttl().await)
    }
}
