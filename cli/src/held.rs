//! One lock, or several that are held together.

use std::time::Duration;

use polylock::{FencingToken, Guard, LockName, Lost, MultiGuard};
use tokio::time::sleep;

/// The locks that are held while the command runs.
#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    All(MultiGuard),
}

/// Why the command must end.
#[derive(Debug)]
pub(crate) enum Loss {
    Lost(Lost),
    /// The lease ends within this time.
    Ending(Duration),
}

impl Held {
    /// Waits until the lock is lost, or until its lease ends within `stop_before`.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn lost(&self, stop_before: Duration) -> Loss {
        tokio::select! {
            biased;
            lost = self.ended() => Loss::Lost(lost),
            () = self.ending(stop_before) => Loss::Ending(stop_before),
        }
    }

    async fn ended(&self) -> Lost {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::All(guards) => guards.lost().await,
        }
    }

    /// A renewal moves the end: so it is looked at again whenever it could have come.
    async fn ending(&self, stop_before: Duration) {
        if stop_before.is_zero() {
            return std::future::pending().await;
        }
        while let Some(rest) = self.valid_for().checked_sub(stop_before).filter(|rest| !rest.is_zero()) {
            sleep(rest).await;
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        match self {
            Self::One(guard) => guard.valid_for(),
            Self::All(guards) => guards.valid_for(),
        }
    }

    /// Names and tokens.
    pub(crate) fn tokens(&self) -> Vec<(LockName, FencingToken)> {
        let guards = match self {
            Self::One(guard) => std::slice::from_ref(guard),
            Self::All(guards) => guards.guards(),
        };
        guards
            .iter()
            .map(|guard| (guard.name().clone(), guard.token()))
            .collect()
    }

    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// If it is dropped, the release goes on in the background.
    pub(crate) async fn release(self) -> polylock::Result<()> {
        match self {
            Self::One(guard) => guard.release().await.map(drop),
            Self::All(guards) => guards.release().await,
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(lost) => write!(f, "{lost}"),
            Self::Ending(rest) => write!(f, "the lock was not renewed, and its lease ends within {rest:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use polylock::{Locker, MemoryBackend};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stops_before_the_lease_ends_and_not_while_it_is_renewed() {
        let server = MemoryBackend::new();
        let locks = Locker::new(server.clone()).with_ttl(Duration::from_secs(30));
        let held = Held::One(locks.lock("a").acquire().await.unwrap());
        let hour = Duration::from_secs(3600);
        let renewed = tokio::time::timeout(hour, held.lost(Duration::from_secs(15))).await;
        assert!(renewed.is_err(), "{renewed:?}");
        server.set_available(false);
        let loss = held.lost(Duration::from_secs(5)).await;
        assert!(matches!(loss, Loss::Ending(_)), "{loss:?}");
        assert!(!held.valid_for().is_zero(), "there is time to end the command");
        let loss = held.lost(Duration::ZERO).await;
        assert!(matches!(loss, Loss::Lost(_)), "{loss:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_at_the_server_is_one_at_once() {
        let server = MemoryBackend::new();
        let locks = Locker::new(server.clone());
        let held = Held::One(locks.lock("a").acquire().await.unwrap());
        server.take_away("a").unwrap();
        let loss = held.lost(Duration::from_secs(5)).await;
        assert!(matches!(loss, Loss::Lost(_)), "{loss:?}");
    }
}
