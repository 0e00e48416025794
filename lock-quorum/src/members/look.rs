//! Looks for the marks of other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{LockName, Result};
use tokio::time::{Instant, timeout_at};

use super::{Members, NAMES, PATIENCE};
use crate::mark::Mark;
use crate::rules;

/// Looks at the marks of others, and notes what they mean. Until every node has answered, the keeper looks again, and what was found
/// before still counts.
pub(super) async fn look(members: &Members, nodes: &[usize], rest: Duration) {
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
    let judged = others
        .iter()
        .map(|(mark, seen_at)| members.own.beside(mark, &members.addresses, seen_at, &answered));
    let judged: Result<Vec<Option<Duration>>> = judged.collect();
    let is_whole = answered.len() == members.nodes.len();
    let mut state = members.state.lock();
    state.must_look |= !is_whole;
    match judged {
        Err(error) => state.refused = Some(error),
        Ok(limits) => {
            let limit = limits.into_iter().flatten().min();
            if is_whole {
                (state.longest_ttl, state.refused) = (limit, None);
            } else {
                state.longest_ttl = [state.longest_ttl, limit].into_iter().flatten().min();
            }
        }
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
