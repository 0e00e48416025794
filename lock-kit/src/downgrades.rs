//! Exclusive holds that become readers'.

use std::collections::HashSet;

use lock_core::backend::HolderId;
use parking_lot::Mutex;

/// The holder ids of exclusive requests whose holds may share their names by now: whatever ends such an id looks for both.
///
/// # Examples
/// ```
/// # use lock_core::backend::HolderId;
/// # use lock_kit::downgrades::Downgrades;
/// let (downgrades, holder) = (Downgrades::default(), HolderId::random());
/// downgrades.insert(holder);
/// assert!(downgrades.contains(holder));
/// downgrades.remove(holder);
/// assert!(!downgrades.contains(holder));
/// ```
#[derive(Debug, Default)]
pub struct Downgrades(Mutex<HashSet<HolderId>>);

impl Downgrades {
    /// Returns whether a downgrade of this id was begun.
    pub fn contains(&self, holder: HolderId) -> bool {
        self.0.lock().contains(&holder)
    }

    /// Notes that a downgrade of this id begins.
    pub fn insert(&self, holder: HolderId) {
        self.0.lock().insert(holder);
    }

    /// Forgets this id: its hold has ended.
    pub fn remove(&self, holder: HolderId) {
        self.0.lock().remove(&holder);
    }
}
