//! Releases that have no answer yet. An acquire of the same name takes effect after them.

use std::collections::HashMap;
use std::sync::Arc;

use lock_core::LockName;
use parking_lot::Mutex;

use crate::connection::Connection;

/// The connections of releases that have no answer, by the names of their locks: one for each such release. `C` is a connection.
#[derive(Debug)]
pub(super) struct Releases<C = Connection>(Mutex<HashMap<LockName, Vec<Arc<C>>>>);

impl<C> Default for Releases<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Releases<C> {
    /// The connections over which releases of this name were sent that have no answer.
    pub(super) fn connections(&self, name: &LockName) -> Vec<Arc<C>> {
        self.0.lock().get(name).cloned().unwrap_or_default()
    }

    /// Call this before a release is sent, and keep what it returns until that has its answer.
    pub(super) fn begin(&self, name: &LockName, connection: &Arc<C>) -> Release<'_, C> {
        self.0.lock().entry(name.clone()).or_default().push(connection.clone());
        Release {
            releases: self,
            name: name.clone(),
            connection: connection.clone(),
        }
    }
}

/// A release that has no answer yet.
#[derive(Debug)]
pub(super) struct Release<'a, C> {
    releases: &'a Releases<C>,
    name: LockName,
    connection: Arc<C>,
}

impl<C> Drop for Release<'_, C> {
    fn drop(&mut self) {
        let mut names = self.releases.0.lock();
        let Some(connections) = names.get_mut(&self.name) else {
            return;
        };
        let of_this = connections
            .iter()
            .position(|other| Arc::ptr_eq(other, &self.connection));
        if let Some(of_this) = of_this {
            connections.swap_remove(of_this);
        }
        if connections.is_empty() {
            names.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_releases_until_they_are_answered() {
        let name = |name| LockName::new(name).expect("a name");
        let (releases, one, two) = (Releases::default(), Arc::new(1), Arc::new(2));
        let first = releases.begin(&name("a"), &one);
        let second = releases.begin(&name("a"), &two);
        let third = releases.begin(&name("a"), &one);
        assert_eq!(
            releases.connections(&name("a")),
            [one.clone(), two.clone(), one.clone()]
        );
        assert!(releases.connections(&name("b")).is_empty());
        drop(first);
        let mut left = releases.connections(&name("a"));
        left.sort();
        assert_eq!(left, [one, two.clone()], "one over each has no answer yet");
        drop(third);
        assert_eq!(releases.connections(&name("a")), [two]);
        drop(second);
        assert!(releases.0.lock().is_empty(), "nothing is kept of a name");
    }
}
