//! The prepared statements of a connection.

use std::collections::HashMap;

/// By the addresses of the statements, which live as long as their backend. `None`: it is being prepared.
pub(super) struct Prepared<S>(HashMap<usize, Option<S>>);

impl<S: Clone> Prepared<S> {
    pub(super) fn get(&self, key: usize) -> Option<S> {
        self.0.get(&key).cloned().flatten()
    }

    /// Returns whether the caller is to prepare it: nobody does, and nobody has.
    pub(super) fn begin(&mut self, key: usize) -> bool {
        let is_new = !self.0.contains_key(&key);
        if is_new {
            self.0.insert(key, None);
        }
        is_new
    }

    /// Notes the end of what was begun. After a failure the next one tries again.
    pub(super) fn end(&mut self, key: usize, prepared: Option<S>) {
        match prepared {
            Some(prepared) => self.0.insert(key, Some(prepared)),
            None => self.0.remove(&key),
        };
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<S> Default for Prepared<S> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_prepared_once_and_stays_so() {
        let mut statements = Prepared::default();
        assert!(statements.begin(1) && statements.begin(2));
        assert!(statements.get(1).is_none());
        // Requests that were sent before it was ready come back after that.
        assert!(!statements.begin(1));
        statements.end(1, Some("s1"));
        assert!(!statements.begin(1));
        assert_eq!(statements.get(1), Some("s1"));
        statements.end(2, None);
        assert!(statements.begin(2), "it failed");
        statements.clear();
        assert!(statements.get(1).is_none() && statements.begin(1));
    }
}
