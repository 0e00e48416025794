//! The decisions that the rules make.

use std::time::Duration;

use lock_core::FencingToken;

use crate::rules::{self, Answer, Outcome, Token};

/// The decisions of an acquire that are [rules](crate::rules). The simulator replaces single ones, to show that it notices.
pub trait Decisions {
    /// The number of nodes that count. A majority of these has to vote.
    fn nodes_that_count(&self, answers: &[Answer]) -> usize {
        answers.len()
    }

    /// The result of the answers of all nodes.
    fn outcome(&self, answers: &[Answer], anchor: usize, asked_again: bool) -> Outcome {
        rules::outcome(answers, anchor, asked_again)
    }

    /// The token, by those of the live votes in the order of their nodes.
    fn token(&self, live: &[FencingToken], nodes: usize) -> Token {
        rules::token(live.iter().copied(), nodes)
    }

    /// The node that decides.
    fn anchor(&self, order: &[usize], is_out: &dyn Fn(usize) -> bool) -> Option<usize> {
        rules::anchor(order.iter().copied(), is_out)
    }

    /// For how long a request waits for a node's answer.
    fn patience(&self, configured: Duration, ttl: Duration) -> Duration {
        rules::patience(configured, ttl)
    }

    /// For how long a silent node is suspected.
    fn suspicion(&self, ttl: Duration) -> Duration {
        rules::suspicion(ttl)
    }

    /// For how long a request that has the anchor's vote waits for the others, at most.
    fn yield_time(&self, round_trip: Duration, patience: Duration, left: Option<Duration>, _ttl: Duration) -> Duration {
        rules::yield_time(round_trip, patience, left)
    }

    /// Whether a token to which a vote is being raised counts when an answer in between decides a lower one.
    fn heeds_raises(&self) -> bool {
        true
    }

    /// Whether votes that wait in vain for a silent majority are given back.
    fn gives_back_in_vain(&self) -> bool {
        true
    }

    /// Whether a request that waits at the anchor looks at all nodes from time to time.
    fn looks_around(&self) -> bool {
        true
    }
}

/// The rules as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Decisions for Sound {}
