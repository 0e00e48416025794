//! Names whose row somebody keeps locked who is no client of ours, such as a transaction that somebody forgot to end.
//!
//! A statement of an acquire or a release waits for a row for up to a second, and all that is sent over its
//! connection waits behind it. MySQL knows no shorter wait, and none at all is no choice: clients of ours lock rows for a moment.
//! So the first request that fails by this notes the name. Later ones try to lock the row without waiting, until one of them
//! succeeds. Renewals never wait for a row, and do not try again for long if the name is noted.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::LockName;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The names, and when their row was locked last.
#[derive(Debug, Default)]
pub(super) struct LockedRows(Mutex<HashMap<LockName, Instant>>);

/// The time for which a name is remembered, unless something is heard of it.
const KEPT: Duration = Duration::from_secs(60);
/// The most names that are remembered.
const MOST: usize = 1000;

impl LockedRows {
    pub(super) fn contains(&self, name: &LockName) -> bool {
        self.0.lock().get(name).is_some_and(|seen| seen.elapsed() < KEPT)
    }

    /// Its row was locked just now.
    pub(super) fn insert(&self, name: &LockName) {
        let mut names = self.0.lock();
        if names.len() >= MOST {
            names.retain(|_, seen| seen.elapsed() < KEPT);
        }
        // Beyond that, each acquire waits as the first one does.
        if names.len() < MOST {
            names.insert(name.clone(), Instant::now());
        }
    }

    /// Its row could be locked.
    pub(super) fn remove(&self, name: &LockName) {
        self.0.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_are_forgotten_when_their_row_is_free_or_after_a_while() {
        let name = |number: usize| LockName::new(format!("name {number}")).unwrap();
        let rows = LockedRows::default();
        (0..2 * MOST).for_each(|number| rows.insert(&name(number)));
        assert_eq!(rows.0.lock().len(), MOST);
        assert!(rows.contains(&name(0)) && !rows.contains(&name(MOST)));
        rows.remove(&name(0));
        assert!(!rows.contains(&name(0)));
        tokio::time::advance(KEPT).await;
        assert!(!rows.contains(&name(1)));
        rows.insert(&name(MOST));
        rows.insert(&name(MOST + 1));
        assert_eq!(rows.0.lock().len(), 2);
    }
}
