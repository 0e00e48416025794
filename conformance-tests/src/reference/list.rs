//! Pages of names, at the server.

use lock_core::backend::{ListFrom, ListPage};
use lock_core::{LockName, Result};
use tokio::time::Instant;

use super::server::ReferenceServer;
use super::state::Entry;
use crate::mutant::Mutant;

impl ReferenceServer {
    /// The next names in their order.
    pub(super) fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let now = Instant::now();
        let state = self.up()?;
        let is_used = |entry: &Entry| {
            let status = entry.status(None, now);
            status.is_held() || status.waiting != Some(0) || self.has(Mutant::ListShowsFreeNames)
        };
        let has_prefix = |name: &str| match self.has(Mutant::ListTakesAPrefixForAPart) {
            true => name.contains(from.name_prefix()),
            false => name.starts_with(from.name_prefix()),
        };
        let by_count = self.has(Mutant::ListCountsNames);
        let mut names: Vec<&String> = state
            .names
            .iter()
            .filter(|(name, entry)| has_prefix(name) && is_used(entry))
            .map(|(name, _)| name)
            .collect();
        names.sort_unstable();
        let skipped = match from.after() {
            None => 0,
            Some(after) if by_count => after.parse().unwrap_or(0),
            Some(after) => names.partition_point(|name| name.as_str() <= after),
        };
        let mut page = names.split_off(skipped.min(names.len()));
        let is_last = page.len() <= at_most;
        page.truncate(at_most);
        let next = page.last().filter(|_| !is_last).map(|last| match by_count {
            true => (skipped + page.len()).to_string(),
            false => (*last).clone(),
        });
        if self.has(Mutant::ListDropsTheLastOfAPage) && !is_last {
            page.pop();
        }
        let names: Result<Vec<_>> = page.into_iter().map(|name| self.shown(name)).collect();
        Ok(ListPage::new(names?, next.map(|note| from.go_on_after(note))))
    }

    fn shown(&self, name: &str) -> Result<LockName> {
        match self.has(Mutant::ListShowsEscapedNames) {
            true => LockName::new(name.replace('%', "%25").replace('{', "%7B")),
            false => LockName::new(name),
        }
    }
}
