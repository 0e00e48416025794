//! The looks at all nodes of a request that waits in the anchor's queue. A look finds whether the anchor answers, and
//! whether the holder of its vote has a majority.

use std::sync::Arc;
use std::time::Instant;

use super::Round;
use crate::protocol::decisions::Decisions;
use crate::protocol::messages::{Command, Seen, Situation};
use crate::rules;

/// The looks of a request at all nodes while it waits at one.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Where it waits.
    anchor: Option<usize>,
    next: Option<Instant>,
    /// The number of looks that found nothing wrong.
    number: u32,
    /// The number of looks that have begun, at all anchors, and the one that is under way.
    begun: u32,
    under_way: Option<u32>,
    /// Who had the anchor's vote and no majority when it looked last.
    without_majority: Vec<Arc<str>>,
}

impl Looks {
    /// None, after others. A look that is still under way is for nobody.
    pub(super) fn after(others: &Self) -> Self {
        Self {
            begun: others.begun,
            ..Self::default()
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }
}

impl<D: Decisions> Round<D> {
    /// Looks at the nodes if it is time to.
    pub(super) fn look_around(&mut self, anchor: usize, situation: &Situation<'_>) {
        let now = situation.now;
        let patience = self.configured_patience(situation);
        if self.looks.anchor != Some(anchor) {
            self.looks = Looks {
                anchor: Some(anchor),
                next: Some(now + rules::look_after(patience, 0)),
                ..Looks::after(&self.looks)
            };
        }
        if !self.decisions.looks_around() || self.looks.next.is_none_or(|next| now < next) {
            return;
        }
        self.looks.next = None;
        self.looks.begun += 1;
        self.looks.under_way = Some(self.looks.begun);
        // Each look would wait for those that are down.
        let is_asked = |node: &usize| *node == anchor || !situation.known.is_suspected(*node, now);
        self.commands.push_back(Command::Look {
            look: self.looks.begun,
            nodes: (0..self.asked.len()).filter(is_asked).collect(),
            patience,
        });
    }

    /// The request waits nowhere any more.
    pub(super) fn stop_looking(&mut self) {
        self.looks = Looks::after(&self.looks);
    }

    pub(super) fn looked_around(&mut self, look: u32, seen: &[Seen], situation: &mut Situation<'_>) {
        let Some(anchor) = self.looks.anchor.filter(|_| self.looks.under_way == Some(look)) else {
            return;
        };
        self.looks.under_way = None;
        for (node, seen) in seen.iter().enumerate() {
            match seen {
                Seen::Holders(_) => situation.known.has_answered(node),
                Seen::Silent => self.suspect(node, situation),
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
        let patience = self.configured_patience(situation);
        if at_anchor.is_empty() || !at_anchor.iter().all(has_no_majority) {
            self.looks.number += 1;
            self.looks.without_majority.clear();
            self.looks.next = Some(situation.now + rules::look_after(patience, self.looks.number));
            return;
        }
        // Whoever was granted a moment ago has the anchor's vote first.
        let was_so = |holder: &Arc<str>| self.looks.without_majority.contains(holder);
        if at_anchor.iter().all(was_so) {
            self.commands.push_back(Command::NotePassedBy(anchor));
            situation.known.pass_by(&self.wanted.name, anchor, situation.now);
        }
        self.looks.without_majority = at_anchor.to_vec();
        self.looks.next = Some(situation.now + rules::look_after(patience, 0));
    }
}
