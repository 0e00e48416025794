//! The input and the output of an acquire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::backend::Busy;
use lock_core::{Error, FencingToken, LockName, Result};

use super::known::Known;
use crate::rules;

/// A vote of an acquire: a request to one node. Each has a holder id of its own, and an answer counts for its own vote alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VoteId(pub(super) u64);

/// The terms of an acquire, which do not change while it lasts.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of the lock.
    pub name: LockName,
    /// All nodes, in the order in which they are asked.
    pub order: Vec<usize>,
    /// Whether the acquire waits for a name that is taken.
    pub waits: bool,
    /// Whether the hold is never renewed.
    pub is_fixed: bool,
    /// For how long a node may be silent, before the TTL bounds it.
    pub patience: Duration,
    /// By node: whether a session of its own renews votes.
    pub has_session: Vec<bool>,
}

impl Wanted {
    pub(super) fn nodes(&self) -> usize {
        self.order.len()
    }

    pub(super) fn needed(&self) -> usize {
        rules::majority(self.nodes())
    }
}

/// An order for the driver. The driver never drops a request half-way: a request that was sent continues until it is
/// answered.
#[derive(Clone, Debug)]
pub enum Command {
    /// With a vote.
    Vote(VoteId, Order),
    /// Asks `nodes` who holds the name, and waits for their answers for the `patience`.
    Look {
        /// Which look it is.
        look: u32,
        /// The nodes.
        nodes: Vec<usize>,
        /// For how long to wait.
        patience: Duration,
    },
    /// Reports to the caller that the name is taken.
    ReportBusy(Busy),
    /// Notes that this node's vote is of a holder without a majority: the acquire goes on without the node.
    NotePassedBy(usize),
}

/// An order for the driver that concerns a vote.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Asks `node` for it, a new one. Its token is at least `adopts`, if that is there; then the node's clock has no part in it.
    Ask {
        /// The node.
        node: usize,
        /// The way in which the node is asked.
        ask: Ask,
        /// The largest token of the votes so far.
        adopts: Option<FencingToken>,
    },
    /// Asks for it again: it waits in its node's queue.
    AskAgain,
    /// Gives its request the terms that the caller has now.
    PassTermsOn,
    /// Gives its request up: the backend answers soon. Whatever is there is still there.
    GiveUp,
    /// Ends it at its node, whatever became of it. Its answers do not count any more.
    GiveBack,
    /// Changes it, once it was granted: raises its token, renews it, or both.
    Change {
        /// The node is to store this token.
        raise: Option<FencingToken>,
        /// Whether the vote is renewed.
        renew: bool,
    },
}

/// The way in which a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Without waiting.
    Once,
    /// With an entry in its queue, for so long.
    Within(Duration),
    /// With an entry in its queue, for as long as the caller waits.
    Forever,
}

/// An event of an acquire.
#[derive(Clone, Debug)]
pub enum Event {
    /// To a vote.
    Vote(VoteId, News),
    /// A look is over: what it has seen, by node.
    Looked(u32, Vec<Seen>),
}

/// An event of a vote.
#[derive(Clone, Debug)]
pub enum News {
    /// The node voted for us.
    Granted(FencingToken),
    /// Somebody else has the name there, and the request is over.
    Busy(Busy),
    /// The request waits in the node's queue. It is handed in before each step, as the node said last.
    Queued(Busy),
    /// The request waits, and its node cannot be asked at the moment.
    Unreachable(Error),
    /// The request has failed.
    Failed {
        /// Why.
        error: Error,
        /// Whether nothing of the request can be at the node, so that nothing is given back.
        is_gone: bool,
    },
    /// A [change](Order::Change) is over.
    Changed(Result<Changed>),
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The node stores this token.
    Raised(FencingToken),
    /// The vote was renewed, and its token stays.
    Renewed,
    /// The node does not know the vote any more.
    Lost,
}

/// The state of a node, as a look has seen it.
#[derive(Clone, Debug)]
pub enum Seen {
    /// Who has its vote: what tells a hold from others at all nodes.
    Holders(Vec<Arc<str>>),
    /// It was not asked, or could not tell.
    Unknown,
    /// It has not answered in time.
    Silent,
}

/// By what a step is decided, besides the answers.
#[derive(Debug)]
pub struct Situation<'a> {
    /// One time for the whole step.
    pub now: Instant,
    /// The process's knowledge of its nodes.
    pub known: &'a mut Known,
    /// The TTL that the caller wants now.
    pub ttl: Duration,
    /// For how long the vote of each node still counts, by its own lease. Zero without a vote, and if it has expired.
    pub left: &'a [Duration],
    /// The time for which the caller still waits. `None` without a deadline.
    pub time_left: Option<Duration>,
    /// Whether the caller has given the acquire up.
    pub is_given_up: bool,
    /// The last report to the caller.
    pub reported: Option<Busy>,
    /// A random number from 0 to 1.
    pub random: f64,
}

/// The next action of the driver after a step, once it has carried out the commands.
#[derive(Clone, Debug)]
pub enum Step {
    /// Waits for the next event, a change of the situation, or this time.
    Wait(Instant),
    /// The acquire is over.
    Done(Outcome),
}

/// The result of an acquire.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The live votes are a hold with this token. What is unanswered may still become a part of it.
    Granted(FencingToken),
    /// Somebody else has the name. The driver gives back what is left.
    Busy(Busy),
    /// It is not known who has it. The driver gives back what is left.
    Failed(Failure),
}

/// Why an acquire failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Whether the caller's time was over before a majority had answered. Otherwise so many nodes cannot be asked, or
    /// are silent, that no majority is left.
    pub is_given_up: bool,
    /// The nodes that failed, and why.
    pub nodes: Vec<(usize, Error)>,
}
