//! Which names this process is releasing: a try that is sent meanwhile may overtake the release, where that is sent once
//! more or has to wait for a connection.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Releases that have begun and are not answered.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    hasher: RandomState,
    /// How many there are of a key. Two keys of one hash would cost no more than a try that is asked again.
    of: Mutex<HashMap<u64, usize>>,
    answered: Notify,
}

/// A release of a lock, from its beginning until it is answered or given up.
#[derive(Debug)]
pub(crate) struct Ending {
    ends: Arc<Ends>,
    hash: u64,
}

impl Ends {
    /// To be called before a release may have to wait.
    pub(crate) fn begin(self: &Arc<Self>, key: &str) -> Ending {
        let hash = self.hasher.hash_one(key);
        *self.lock().entry(hash).or_default() += 1;
        Ending {
            ends: self.clone(),
            hash,
        }
    }

    /// Whether a release of this lock is under way.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.lock().contains_key(&self.hasher.hash_one(key))
    }

    /// Returns as soon as none is.
    pub(crate) async fn over(&self, key: &str) {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if !self.has(key) {
                return;
            }
            answered.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        // Every critical section leaves it whole.
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut of = self.ends.lock();
        if let Some(count) = of.get_mut(&self.hash) {
            *count -= 1;
            if *count == 0 {
                of.remove(&self.hash);
            }
        }
        drop(of);
        self.ends.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_being_released_until_its_last_release_is_over() {
        let ends = Arc::new(Ends::default());
        assert!(!ends.has("a"));
        let (first, second, other) = (ends.begin("a"), ends.begin("a"), ends.begin("b"));
        drop(first);
        assert!(ends.has("a") && ends.has("b") && !ends.has("c"));
        ends.over("c").await;
        let over = tokio::spawn({
            let ends = ends.clone();
            async move { ends.over("a").await }
        });
        tokio::task::yield_now().await;
        drop(other);
        tokio::task::yield_now().await;
        assert!(!over.is_finished() && ends.has("a"));
        drop(second);
        over.await.expect("no panic");
        assert!(!ends.has("a") && ends.lock().is_empty());
    }
}
