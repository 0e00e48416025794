//! What follows when a majority has voted, or when none can.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Armed, Renewal, rules as core_rules};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::Instant;

use super::{Asked, Change, Round};
use crate::error::NodeErrors;
use crate::rules::{self, Token};
use crate::votes::Vote;
use crate::{clean_up, late};

/// A node whose last answer took longer than twice the majority's by this is not waited for: to raise tokens is faster.
const MUCH_FASTER: Duration = Duration::from_micros(500);
/// The shortest time for an answer that may spare us to raise tokens.
const SHORTEST_STRAGGLING: Duration = Duration::from_millis(2);

impl Round<'_> {
    /// The votes that are live.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Vote>> {
        let granted = self.asked.iter().flatten().filter(|asked| asked.is_granted());
        granted.map(|asked| &asked.vote).filter(|vote| vote.is_live())
    }

    /// What is known of the token, once a majority has voted.
    pub(crate) fn token(&self) -> Option<Token> {
        match rules::token(self.live().filter_map(|vote| vote.token()), self.asked.len()) {
            Token::Undecided => None,
            token => Some(token),
        }
    }

    /// Until when to wait for answers that are on their way and may decide the token: about as long again as the majority took.
    /// `None` if there are none, or only from nodes that are slower by far.
    pub(crate) fn stragglers(&mut self) -> Option<Instant> {
        let took = self.asked.iter().flatten().filter_map(Asked::took).max();
        let took = took.unwrap_or_default();
        let is_open = |node: usize| {
            let (asked, node) = (self.asked[node].as_ref(), &self.client.nodes[node]);
            asked.is_some_and(|asked| asked.answer.is_none() && !asked.is_waiting())
                && !node.is_suspected()
                && node.round_trip().is_none_or(|time| time <= 2 * took + MUCH_FASTER)
        };
        if !(0..self.asked.len()).any(is_open) {
            return None;
        }
        let longest = took
            .min(self.request.ttl() / 20)
            .clamp(SHORTEST_STRAGGLING, self.patience().max(SHORTEST_STRAGGLING));
        let until = *self.stragglers_until.get_or_insert(Instant::now() + longest);
        (Instant::now() < until).then_some(until)
    }

    /// Has all lower votes raised to this token. Over slow lines, all votes are renewed meanwhile: the answer would find too
    /// little of their leases left.
    pub(crate) fn raise(&mut self, token: FencingToken) {
        let ttl = self.request.ttl();
        let took = self.asked.iter().flatten().filter_map(Asked::took).max();
        let is_slow = took.unwrap_or_default() > ttl / 6 && !self.request.is_fixed();
        for asked in self.asked.iter_mut().flatten() {
            let is_lower = asked.is_granted() && asked.vote.token() < Some(token);
            let renews = is_slow && !self.client.nodes[asked.vote.node].capabilities.session_renewal;
            let changes = asked.is_granted() && asked.change.is_none() && (is_lower || renews);
            if let Some(hold) = asked.vote.hold().filter(|_| changes) {
                asked.raised_to = is_lower.then_some(token);
                asked.change = Some(Box::pin(async move {
                    let raising = async {
                        match is_lower {
                            true => hold.raise_token(token).await,
                            false => Ok(()),
                        }
                    };
                    let renewing = async {
                        match renews {
                            true => hold
                                .renew(ttl)
                                .await
                                .map(|renewal| matches!(renewal, Renewal::Renewed(_))),
                            false => Ok(true),
                        }
                    };
                    let (raised, renewed) = futures_util::future::join(raising, renewing).await;
                    raised?;
                    Ok(match renewed? {
                        true if is_lower => Change::Raised(token),
                        true => Change::Renewed,
                        false => Change::Lost,
                    })
                }));
            }
        }
    }

    /// The token to which a vote is being raised, if it is larger than `token`. Its node may store it by now, so a lower one is no
    /// longer the hold's: a status would show the larger one.
    pub(crate) fn raises_above(&self, token: FencingToken) -> Option<FencingToken> {
        let raised = self.asked.iter().flatten().filter_map(|asked| asked.raised_to);
        raised.filter(|raised| *raised > token).max()
    }

    /// Renews votes of which too little is left, because the anchor was waited for. Returns whether one is being renewed.
    pub(crate) fn renew_short_votes(&mut self) -> bool {
        let (ttl, needed) = (self.request.ttl(), self.client.needed());
        let half = core_rules::lease_time(ttl) / 2;
        let is_long = |vote: &Arc<Vote>| vote.lease().valid_for() >= half;
        if self.request.is_fixed() || self.live().filter(|vote| is_long(vote)).count() >= needed {
            return false;
        }
        for asked in self.asked.iter_mut().flatten() {
            let renews = !self.client.nodes[asked.vote.node].capabilities.session_renewal;
            let is_short = asked.is_granted() && !is_long(&asked.vote) && renews && asked.change.is_none();
            if let Some(hold) = asked.vote.hold().filter(|_| is_short) {
                asked.change = Some(Box::pin(async move {
                    Ok(match hold.renew(ttl).await? {
                        Renewal::Renewed(_) => Change::Renewed,
                        _ => Change::Lost,
                    })
                }));
            }
        }
        self.asked.iter().flatten().any(|asked| asked.change.is_some())
    }

    /// Whether so many nodes have failed that no majority is left.
    pub(crate) fn is_unavailable(&self) -> bool {
        let failed = self.failed.iter().flatten().count();
        self.asked.len() - failed < self.client.needed()
    }

    pub(crate) fn unavailable(&self) -> Error {
        let errors = self.errors();
        let (failed, nodes) = (errors.iter().count(), self.asked.len());
        let message = format!("{failed} of {nodes} nodes cannot be asked, and a majority is needed");
        let error = errors.into_error(message);
        match self.may_be_sent() {
            true => error,
            false => error.not_executed(),
        }
    }

    /// Whether anything may have reached a node by now. What is sent later, because its call is still open, is undone in the
    /// background.
    pub(crate) fn may_be_sent(&self) -> bool {
        self.votes.was_sent() || self.asked.iter().flatten().any(|asked| asked.vote.may_be_sent())
    }

    /// Why each node that failed did.
    pub(crate) fn errors(&self) -> NodeErrors {
        let mut errors = NodeErrors::default();
        for (node, failed) in self.failed.iter().enumerate() {
            let kind = self.client.nodes[node].kind();
            if let Some(error) = failed {
                errors.add(node, kind, error.clone());
            } else if self.is_silent(node) {
                let message = format!("no answer within {:?}", self.patience());
                errors.add(node, kind, Error::new(ErrorKind::Unavailable, message));
            }
        }
        errors
    }

    /// Makes the votes those of a hold, and arms its lease. Answers that are on their way still count.
    ///
    /// # Errors
    /// If the request has ended, or too many votes have.
    pub(crate) fn becomes_hold(mut self, token: FencingToken) -> Result<Armed> {
        let live: Vec<_> = self.live().cloned().collect();
        let armed = self.votes.grant(token, &live, self.client.needed())?;
        for node in 0..self.asked.len() {
            let Some(mut asked) = self.asked[node].take() else {
                continue;
            };
            if let Some(change) = asked.change.take() {
                clean_up::spawn(self.client, async move { drop(change.await) });
            }
            match asked.call.take() {
                Some(call) => late::follow(self.client, self.votes, asked.vote, call),
                None if live.iter().any(|vote| Arc::ptr_eq(vote, &asked.vote)) => {}
                None => {
                    self.asked[node] = Some(asked);
                    self.take_back(node);
                }
            }
        }
        Ok(armed)
    }
}
