//! Pages of names, at the server.

use lock_core::backend::{ListFrom, ListPage};
use lock_core::{LockName, Result};
use tokio::time::Instant;

use super::server::ReferenceServer;
use super::state::State;
use crate::mutant::Mutant;

impl ReferenceServer {
    /// The next names in their order.
    pub(super) fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let (state, now) = (self.up()?, Instant::now());
        let at_most = match self.has(Mutant::ListHasOnePage) {
            true => usize::MAX,
            false => at_most,
        };
        let mut page = match self.mutant() {
            Some(mutant) => state.list(mutant, from, at_most, now),
            None => state.server.list(from, at_most, now),
        };
        if self.has(Mutant::ListDropsTheLastOfAPage) && page.next.is_some() {
            page.names.pop();
        }
        if self.has(Mutant::ListShowsEscapedNames) {
            let escaped = |name: &LockName| LockName::new(name.as_str().replace('%', "%25").replace('{', "%7B"));
            page.names = page.names.iter().map(escaped).collect::<Result<_>>()?;
        }
        Ok(page)
    }
}

impl State {
    fn list(&self, mutant: Mutant, from: &ListFrom, at_most: usize, now: Instant) -> ListPage {
        let used = || self.server.list(&ListFrom::all(), usize::MAX, now).names;
        let mut names: Vec<LockName> = match mutant {
            Mutant::ListShowsFreeNames => self.notes.asked.iter().cloned().collect(),
            Mutant::ListTakesAPrefixForAPart | Mutant::ListCountsNames => used(),
            _ => return self.server.list(from, at_most, now),
        };
        names.retain(|name| match mutant {
            Mutant::ListTakesAPrefixForAPart => name.as_str().contains(from.name_prefix()),
            _ => name.as_str().starts_with(from.name_prefix()),
        });
        let by_count = mutant == Mutant::ListCountsNames;
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
            false => last.as_str().to_owned(),
        });
        ListPage::new(page, next.map(|note| from.go_on_after(note)))
    }
}
