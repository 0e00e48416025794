//! What a request sees that waits in the anchor's queue, and looks whether the hold that the anchor names is one.

use std::time::Duration;

use lock_quorum::rules;

use super::message::Mail;

/// The looks of one attempt.
#[derive(Debug)]
pub(super) struct Looks {
    /// When the next one begins, or the one that began ends, by the client's clock.
    pub(super) next: Option<Duration>,
    /// How many have found nothing wrong.
    pub(super) number: u32,
    /// Whether one has begun.
    pub(super) asked: bool,
    /// The numbers of its requests, and who holds the name at each node that has answered.
    nodes: Vec<(Option<u64>, Option<Option<u64>>)>,
    /// A holder that had no majority in the last look.
    suspicious: Option<u64>,
}

/// What a look amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    NothingWrong,
    /// The holder at the anchor has no majority: look once more.
    Suspicious,
    /// The same, twice.
    PassAnchor,
    AnchorIsSilent,
}

impl Looks {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            next: None,
            number: 0,
            asked: false,
            nodes: vec![(None, None); nodes],
            suspicious: None,
        }
    }

    pub(super) fn ask(&mut self, node: usize, number: u64) {
        self.nodes[node] = (Some(number), None);
    }

    pub(super) fn take(&mut self, mail: &Mail, holder: Option<u64>) {
        let (asked, answer) = &mut self.nodes[mail.node];
        if *asked == Some(mail.request.number) {
            *answer = Some(holder);
        }
    }

    /// Ends a look.
    pub(super) fn see(&mut self, anchor: usize) -> Seen {
        let nodes = self.nodes.clone();
        self.nodes.fill((None, None));
        self.asked = false;
        let Some(at_anchor) = nodes[anchor].1 else {
            return Seen::AnchorIsSilent;
        };
        let answers = nodes.iter().filter_map(|(_, answer)| *answer);
        let foreign = answers.filter(|holder| *holder != at_anchor).count();
        let alone = at_anchor.filter(|_| rules::is_lost(foreign, nodes.len()));
        let before = std::mem::replace(&mut self.suspicious, alone);
        match alone {
            None => {
                self.number += 1;
                Seen::NothingWrong
            }
            Some(_) if before == alone => Seen::PassAnchor,
            Some(_) => Seen::Suspicious,
        }
    }
}
