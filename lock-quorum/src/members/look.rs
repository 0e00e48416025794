//! Looks for the marks of other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, LockName, Result};
use tokio::time::{Instant, timeout_at};

use super::{Members, NAMES, PATIENCE, State};
use crate::mark::Mark;
use crate::rules;

/// A mark of another process beside which this one must not acquire anything.
pub(super) struct Refusal {
    pub(super) error: Error,
    /// The nodes at which the mark was ever seen.
    seen_at: BTreeSet<usize>,
    /// When it was last seen.
    seen: Instant,
}

impl Refusal {
    /// Whether the other process has certainly no lock, although some nodes did not answer: it has no majority without the nodes where
    /// its mark was seen, and none of these has the mark any more.
    fn has_ended(&self, mark: &Mark, answered: &BTreeSet<usize>) -> bool {
        self.seen_at.is_subset(answered) && mark.needs_one_of(self.seen_at.len())
    }
}

/// Looks at the marks of others, and notes what they mean. Until every node has answered, the keeper looks again, and what was found
/// before still counts, unless the other process has [certainly ended](Refusal::has_ended).
pub(super) async fn look(members: &Members, nodes: &[usize], rest: Duration) {
    let began = Instant::now();
    members.state.lock().must_look = false;
    let looks = nodes
        .iter()
        .flat_map(|node| (0..NAMES).map(move |number| (*node, number)));
    let looks = looks.map(|(node, number)| async move {
        let status = async { members.nodes[node].backend.status(&name(number)?).await };
        (node, status.await)
    });
    let mut answered: BTreeSet<usize> = BTreeSet::new();
    let mut others: BTreeMap<Mark, BTreeSet<usize>> = BTreeMap::new();
    for (node, statuses) in answers(members, NAMES, rest, looks).await {
        if statuses.len() == NAMES {
            answered.insert(node);
        }
        let holders = statuses.iter().filter_map(|status| status.holders.first());
        for mark in holders.filter_map(|holder| Mark::parse(holder.label.as_deref()?)) {
            others.entry(mark).or_default().insert(node);
        }
    }
    let is_whole = answered.len() == members.nodes.len();
    let mut state = members.state.lock();
    state.must_look |= !is_whole;
    state.refusals.retain(|mark, refusal| {
        let is_over = is_whole || !others.contains_key(mark) && refusal.has_ended(mark, &answered);
        // Another look may have begun after this one, and seen more.
        !is_over || refusal.seen > began
    });
    let mut limit = None;
    let mut is_refused = false;
    for (mark, seen_at) in others {
        match members.own.beside(&mark, &members.addresses, &seen_at, &answered) {
            Ok(longest) => limit = [limit, longest].into_iter().flatten().min(),
            Err(error) => {
                is_refused = true;
                state.refuse(mark, error, seen_at);
            }
        }
    }
    if !is_whole {
        limit = [state.longest_ttl, limit].into_iter().flatten().min();
    }
    if !is_refused {
        state.longest_ttl = limit;
    }
}

impl State {
    fn refuse(&mut self, mark: Mark, error: Error, seen_at: BTreeSet<usize>) {
        let seen = Instant::now();
        let refusal = self.refusals.entry(mark).or_insert(Refusal {
            error: error.clone(),
            seen_at: BTreeSet::new(),
            seen,
        });
        (refusal.error, refusal.seen) = (error, seen);
        refusal.seen_at.extend(seen_at);
    }
}

/// The answers by node, of nodes that are each asked `each` times. Waits for [`PATIENCE`], but once a majority has given all
/// answers, only for the `rest`.
pub(super) async fn answers<T>(
    members: &Members,
    each: usize,
    rest: Duration,
    asked: impl IntoIterator<Item = impl Future<Output = (usize, Result<T>)>>,
) -> BTreeMap<usize, Vec<T>> {
    let mut asked: FuturesUnordered<_> = asked.into_iter().collect();
    let mut until = Instant::now() + PATIENCE;
    let mut answers: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    while let Ok(Some((node, answer))) = timeout_at(until, asked.next()).await {
        if let Ok(answer) = answer {
            answers.entry(node).or_default().push(answer);
        }
        let whole = answers.values().filter(|answers| answers.len() == each).count();
        if whole >= rules::majority(members.nodes.len()) {
            until = until.min(Instant::now() + rest);
        }
    }
    answers
}

/// A reserved name.
pub(super) fn name(number: usize) -> Result<LockName> {
    LockName::new(format!("polylock-quorum-member-{number}"))
}
