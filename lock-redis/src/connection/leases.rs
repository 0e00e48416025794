//! The leases of the holds that the connection serves: a connection that ends makes them suspect.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::backend::{HolderId, Lease};

#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<HashMap<HolderId, Entry>>>);

struct Entry {
    lease: Lease,
    /// How many holds there are of it: an acquire that is repeated gives another one.
    holds: usize,
}

/// A lease is told of for as long as this lives.
pub(crate) struct Watched {
    leases: Leases,
    holder: HolderId,
}

impl Leases {
    pub(super) fn add(&self, holder: HolderId, lease: &Lease) -> Watched {
        let entry = |lease: &Lease| Entry {
            lease: lease.clone(),
            holds: 0,
        };
        self.lock().entry(holder).or_insert_with(|| entry(lease)).holds += 1;
        Watched {
            leases: self.clone(),
            holder,
        }
    }

    pub(super) fn suspect(&self) {
        for entry in self.lock().values() {
            entry.lease.suspect();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Entry>> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut leases = self.leases.lock();
        if let Some(entry) = leases.get_mut(&self.holder) {
            entry.holds -= 1;
            if entry.holds == 0 {
                leases.remove(&self.holder);
            }
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.holder).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::backend::SentAt;
    use lock_core::{HoldState, LockName};

    use super::*;

    #[test]
    fn as_long_as_any_hold_of_it_lives() {
        let (leases, holder) = (Leases::default(), HolderId::random());
        let lease = Lease::new(LockName::new("a").unwrap());
        lease.arm(SentAt::now(), Duration::from_secs(60)).unwrap();
        let (first, second) = (leases.add(holder, &lease), leases.add(holder, &lease));
        drop(first);
        leases.suspect();
        assert_eq!(lease.state(), HoldState::Suspect);
        drop(second);
        assert!(leases.lock().is_empty());
    }
}
