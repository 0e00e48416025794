//! What a request that waits in the anchor's queue learns of all nodes meanwhile: whether the anchor answers, and whether whoever
//! has its vote has a majority.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, join_all};
use lock_core::backend::LockStatus;
use tokio::time::{Instant, timeout};

use super::Round;
use crate::label;
use crate::rules;

/// The looks of a request at all nodes while it waits at one.
#[derive(Default)]
pub(super) struct Looks {
    /// Where it waits.
    anchor: Option<usize>,
    next: Option<Instant>,
    /// How many of them found nothing wrong.
    number: u32,
    under_way: Option<BoxFuture<'static, Vec<Seen>>>,
    /// Who had the anchor's vote and no majority when it looked last.
    without_majority: Vec<Arc<str>>,
}

/// What a look has seen of a node.
enum Seen {
    /// Who has its vote.
    Holders(Vec<Arc<str>>),
    /// It was not asked, or could not tell.
    Unknown,
    Silent,
}

impl Round<'_> {
    /// Looks at the nodes if it is time to.
    pub(crate) fn look_around(&mut self, anchor: usize) {
        let now = Instant::now();
        let patience = self.client.patience(self.request.ttl());
        if self.looks.anchor != Some(anchor) {
            self.looks = Looks {
                anchor: Some(anchor),
                next: Some(now + rules::look_after(patience, 0)),
                ..Looks::default()
            };
        }
        if self.looks.next.is_none_or(|next| now < next) {
            return;
        }
        self.looks.next = None;
        let asked = self.client.nodes.iter().enumerate().map(|(number, node)| {
            let (backend, name) = (node.backend.clone(), self.request.name().clone());
            // Each look would wait for those that are down.
            let is_asked = number == anchor || !node.is_suspected();
            async move {
                if !is_asked {
                    return Seen::Unknown;
                }
                match timeout(patience, backend.status(&name)).await {
                    Ok(Ok(status)) => Seen::Holders(holders(&status)),
                    Ok(Err(_)) => Seen::Unknown,
                    Err(_) => Seen::Silent,
                }
            }
        });
        self.looks.under_way = Some(Box::pin(join_all(asked)));
    }

    /// The request waits nowhere any more.
    pub(crate) fn stop_looking(&mut self) {
        self.looks = Looks::default();
    }

    pub(super) fn next_look_around(&self) -> Option<Instant> {
        self.looks.next
    }

    pub(super) fn poll_look(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (Some(look), Some(anchor)) = (&mut self.looks.under_way, self.looks.anchor) else {
            return Poll::Pending;
        };
        let Poll::Ready(seen) = look.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.looks.under_way = None;
        self.looked_around(anchor, &seen);
        Poll::Ready(())
    }

    fn looked_around(&mut self, anchor: usize, seen: &[Seen]) {
        let ttl = self.request.ttl();
        for (node, seen) in self.client.nodes.iter().zip(seen) {
            match seen {
                Seen::Holders(_) => node.has_answered(),
                Seen::Silent => node.suspect(rules::suspicion(ttl)),
                Seen::Unknown => {}
            }
        }
        let has_no_majority = |holder: &Arc<str>| {
            let is_without = |seen: &&Seen| matches!(seen, Seen::Holders(holders) if !holders.contains(holder));
            rules::is_lost(seen.iter().filter(is_without).count(), seen.len())
        };
        let at_anchor: &[Arc<str>] = match &seen[anchor] {
            Seen::Holders(holders) => holders,
            _ => &[],
        };
        let patience = self.client.patience(ttl);
        if at_anchor.is_empty() || !at_anchor.iter().all(has_no_majority) {
            self.looks.number += 1;
            self.looks.without_majority.clear();
            self.looks.next = Some(Instant::now() + rules::look_after(patience, self.looks.number));
            return;
        }
        // Whoever was granted a moment ago has the anchor's vote first.
        let was_so = |holder: &Arc<str>| self.looks.without_majority.contains(holder);
        if at_anchor.iter().all(was_so) {
            tracing::debug!(target: "polylock", name = self.request.name().as_str(), node = anchor + 1,
                "a node's vote is of a holder without a majority: going on without this node");
            self.client.pass_by(self.request.name(), anchor);
        }
        self.looks.without_majority = at_anchor.to_vec();
        self.looks.next = Some(Instant::now() + rules::look_after(patience, 0));
    }
}

/// Who has the node's vote: by the mark of a quorum's hold, or else by the label.
fn holders(status: &LockStatus) -> Vec<Arc<str>> {
    let holders = status.holders.iter();
    holders.map(|holder| mark(holder.label.as_ref())).collect()
}

/// What tells a hold from others at all nodes.
pub(super) fn mark(label: Option<&Arc<str>>) -> Arc<str> {
    match label {
        None => "".into(),
        Some(label) => label::split(label).1.map_or_else(|| label.clone(), Into::into),
    }
}
