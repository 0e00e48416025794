//! The observers that hear when a name changes hands.

use std::collections::HashMap;

use crate::name::LockName;
use crate::sync::{Arc, Notify, Weak};

/// Empty as long as nobody follows a name.
#[derive(Debug, Default)]
pub(super) struct Followers(HashMap<LockName, Vec<Weak<Notify>>>);

impl Followers {
    /// Adds a follower. It is notified of the next change, if the result still lives then.
    pub(super) fn add(&mut self, name: &LockName) -> Arc<Notify> {
        let is_alive = |follower: &Weak<Notify>| follower.strong_count() > 0;
        self.0.retain(|_, followers| {
            followers.retain(is_alive);
            !followers.is_empty()
        });
        let changed = Arc::new(Notify::new());
        self.0.entry(name.clone()).or_default().push(Arc::downgrade(&changed));
        changed
    }

    /// Notifies all followers of the name, and removes them.
    pub(super) fn tell(&mut self, name: &LockName) {
        if self.0.is_empty() {
            return;
        }
        let followers = self.0.remove(name).unwrap_or_default();
        for changed in followers.iter().filter_map(Weak::upgrade) {
            changed.notify_one();
        }
    }
}
