//! Votes that are added to a hold that others made.

use std::sync::Arc;

use crate::clean_up;
use crate::client::Client;
use crate::rules;
use crate::votes::{Call, Vote, Votes};
use lock_core::Error;
use lock_core::backend::Attempt;
use tokio::time::sleep;

/// Adds the vote to the hold when it arrives, or undoes it if the hold has ended by then.
pub(crate) fn follow(client: &Arc<Client>, votes: &Arc<Votes>, vote: Arc<Vote>, call: Call) {
    let mut awaited = Awaited::new(client, votes, vote, call);
    clean_up::spawn(client, async move {
        match awaited.run().await {
            Arrived::Added => raise(&awaited.votes, &awaited.vote).await,
            Arrived::Failed(error) if error.is_retryable() => awaited.suspect(),
            _ => {}
        }
    });
}

/// The same as [`raise`], in a task of its own.
pub(crate) fn raise_in_background(client: &Arc<Client>, votes: &Arc<Votes>, vote: &Arc<Vote>) {
    let (votes, vote) = (votes.clone(), vote.clone());
    clean_up::spawn(client, async move { raise(&votes, &vote).await });
}

/// Has the vote's node store the hold's token, if the vote's own is lower. A majority stores it since the grant; the more nodes do,
/// the more of them may forget it. If it fails, the next renewal repeats it.
async fn raise(votes: &Votes, vote: &Vote) {
    let (Some(token), Some(hold)) = (votes.token(), vote.hold()) else {
        return;
    };
    if vote.token() >= Some(token) {
        return;
    }
    tokio::select! {
        biased;
        () = votes.over() => {}
        raised = hold.raise_token(token) => if raised.is_ok() {
            vote.raised(token);
        },
    }
}

/// The result of a vote that was awaited.
pub(crate) enum Arrived {
    Added,
    /// Somebody else holds the name at its node.
    Taken,
    /// The hold has ended meanwhile, or has a vote of that node.
    TooLate,
    Failed(Error),
}

/// A vote whose answer a task awaits. It is undone unless it becomes a part of the hold.
pub(crate) struct Awaited {
    client: Arc<Client>,
    votes: Arc<Votes>,
    vote: Arc<Vote>,
    call: Option<Call>,
}

impl Awaited {
    pub(crate) fn new(client: &Arc<Client>, votes: &Arc<Votes>, vote: Arc<Vote>, call: Call) -> Self {
        Self {
            client: client.clone(),
            votes: votes.clone(),
            vote,
            call: Some(call),
        }
    }

    /// Awaits the answer for as long as the vote could live. After that the vote is given back, so that the next renewal asks anew.
    pub(crate) async fn run(&mut self) -> Arrived {
        let Some(call) = &mut self.call else {
            return Arrived::TooLate;
        };
        let began = call.began;
        let attempt = tokio::select! {
            biased;
            () = self.votes.over() => return Arrived::TooLate,
            () = sleep(self.vote.lasts_at_node()) => return Arrived::Failed(clean_up::unanswered()),
            attempt = self.client.watch(&self.vote, began, &mut call.future) => attempt,
        };
        self.call = None;
        if attempt.is_ok() {
            self.client.has_answered(&self.vote, began);
        }
        let (arrived, is_at_node) = match attempt {
            Ok(Attempt::Granted(hold, _armed)) => {
                self.vote.granted(hold);
                match self.votes.add(&self.vote) {
                    true => return Arrived::Added,
                    false => (Arrived::TooLate, true),
                }
            }
            Ok(_) => (Arrived::Taken, self.vote.has_place),
            Err(error) => {
                let may_be_there = !self.vote.request.was_certainly_not_sent(&error);
                (Arrived::Failed(error), may_be_there)
            }
        };
        match is_at_node {
            true => clean_up::give_back(&self.client, &self.votes, &self.vote, None),
            false => self.votes.forget(&self.vote),
        }
        arrived
    }

    fn suspect(&self) {
        let suspicion = rules::suspicion(self.vote.request.ttl());
        self.client.nodes[self.vote.node].suspect(suspicion);
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            clean_up::give_back(&self.client, &self.votes, &self.vote, Some(call));
        }
    }
}
