//! Looks for the marks of other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, LockName, Result};
use tokio::time::{Instant, timeout_at};

use super::marks::Marked;
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
    let own = {
        let mut state = members.state.lock();
        state.must_look = false;
        state.marks.clone()
    };
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
    members.note(began, own, &answered, others);
}

impl Members {
    /// Notes what a look means that `began` then, when this process had its `own` marks.
    fn note(
        &self,
        began: Instant,
        mut own: Vec<Arc<Marked>>,
        answered: &BTreeSet<usize>,
        others: BTreeMap<Mark, BTreeSet<usize>>,
    ) {
        let is_whole = answered.len() == self.nodes.len();
        let mut state = self.state.lock();
        state.must_look |= !is_whole;
        // Another look may have begun after this one, and seen more.
        state.refusals.retain(|mark, refusal| {
            let is_over = is_whole || refusal.has_ended(mark, answered);
            !is_over || others.contains_key(mark) || refusal.seen > began
        });
        let seen_own = others.get(&self.own).cloned().unwrap_or_default();
        own.retain(|mark| mark.is_live() && seen_own.contains(&mark.node));
        let is_known = |mark: &&Arc<Marked>| mark.is_known.load(Ordering::Relaxed);
        let known_at = own.iter().filter(is_known).map(|mark| mark.node).collect();
        let nowhere = BTreeSet::new();
        let is_beside_longer = others.keys().any(|mark| mark.has_longer_delay_than(&self.own));
        state.is_beside_longer = is_beside_longer || !is_whole && state.is_beside_longer;
        let mut limit = None;
        let mut refused_at: BTreeSet<usize> = BTreeSet::new();
        for (mark, seen_at) in others {
            // A process that was not limited may hold locks for longer.
            let known_at = match state.refusals.contains_key(&mark) {
                true => &nowhere,
                false => &known_at,
            };
            match self.own.beside(&mark, &self.addresses, &seen_at, answered, known_at) {
                Ok(longest) => {
                    limit = [limit, longest].into_iter().flatten().min();
                    if is_whole {
                        state.refusals.remove(&mark);
                    }
                }
                Err(error) => {
                    refused_at.extend(&seen_at);
                    state.refuse(mark, error, seen_at);
                }
            }
        }
        if !is_whole {
            limit = [state.longest_ttl, limit].into_iter().flatten().min();
        }
        if refused_at.is_empty() {
            state.longest_ttl = limit;
        }
        // A process with a longer delay that comes to the node from now on looks after it has left its mark. One that was there sees our
        // other marks, and so looks at every renewal.
        for mark in own {
            if answered.contains(&mark.node) && !refused_at.contains(&mark.node) {
                mark.is_known.store(true, Ordering::Relaxed);
            }
        }
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
