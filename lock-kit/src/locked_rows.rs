//! Names whose row in a database somebody keeps locked who is no client of ours, such as a transaction that somebody forgot to
//! end.
//!
//! A statement waits for such a row for a second, and all that is sent over its connection waits behind it. Not to wait at all is no
//! choice: clients of ours lock rows for a moment. So the first request that fails by this notes the name. Later ones try to lock the
//! row, and wait for a moment at most, until one of them succeeds.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::LockName;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The names, and when their row was locked last.
///
/// # Examples
/// ```
/// # use lock_kit::locked_rows::LockedRows;
/// let (rows, name) = (LockedRows::default(), lock_core::LockName::new("orders/42")?);
/// rows.insert(&name);
/// assert!(rows.contains(&name));
/// rows.remove(&name);
/// assert!(!rows.contains(&name));
/// # Ok::<(), lock_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LockedRows(Mutex<HashMap<LockName, Instant>>);

/// Pauses before a renewal tries again that waits for no row and found its own locked, in milliseconds.
pub const PAUSES: [u64; 7] = [5, 10, 20, 40, 80, 160, 320];
/// The time for which a name is remembered, unless something is heard of it.
const KEPT: Duration = Duration::from_secs(60);
/// The most names that are remembered.
const MOST: usize = 1000;

impl LockedRows {
    /// Returns whether its row was locked when something was last heard of it, a minute ago at most.
    pub fn contains(&self, name: &LockName) -> bool {
        self.0.lock().get(name).is_some_and(|seen| seen.elapsed() < KEPT)
    }

    /// Notes that its row was locked just now. Of more than 1,000 names nothing is noted.
    pub fn insert(&self, name: &LockName) {
        let mut names = self.0.lock();
        if names.len() >= MOST {
            names.retain(|_, seen| seen.elapsed() < KEPT);
        }
        // Beyond that, each acquire waits as the first one does.
        if names.len() < MOST {
            names.insert(name.clone(), Instant::now());
        }
    }

    /// Notes that its row could be locked.
    pub fn remove(&self, name: &LockName) {
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
