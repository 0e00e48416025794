//! The end of a hold or of a request, at all nodes that were ever asked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::{AcquireRequest, Hold, ReleaseOptions, ReleaseOutcome};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clean_up;
use crate::client::Client;
use crate::error::NodeErrors;
use crate::rules::{self, Released};
use crate::votes::{Vote, Votes};

/// Releases all votes. It is over when a majority has answered, and the others had time to.
pub(crate) async fn release(client: &Arc<Client>, votes: &Arc<Votes>, how: ReleaseOptions) -> Result<ReleaseOutcome> {
    clean_up::go_on(client);
    votes.end();
    if votes.was_release_reported() {
        return Ok(ReleaseOutcome::AlreadyLost);
    }
    let mut calls = Calls::new();
    for vote in votes.asked().into_iter().filter(|vote| !vote.is_cleaned_up()) {
        // A vote without an answer is undone by the task that awaits it.
        if let Some(hold) = vote.hold() {
            let votes = votes.clone();
            calls.push(
                vote.clone(),
                async move { release_vote(&votes, &vote, &*hold, how).await },
            );
        }
    }
    let outcome = || {
        let (ended, foreign) = votes.released();
        rules::released(ended, foreign, client.nodes.len())
    };
    let failed = calls.settle(client, votes, || outcome() != Released::Unknown).await;
    let outcome = match outcome() {
        Released::Now => ReleaseOutcome::Released,
        Released::Before => ReleaseOutcome::AlreadyLost,
        Released::Unknown => {
            let error = unknown(client, failed, "released");
            // If only a minority has executed the release, the hold is not released.
            return Err(match votes.perhaps_released() < client.needed() {
                true => error.not_executed(),
                false => error,
            });
        }
    };
    votes.note_release_reported();
    calls.go_on(client, votes, failed, Some(how));
    Ok(outcome)
}

async fn release_vote(votes: &Votes, vote: &Arc<Vote>, hold: &dyn Hold, how: ReleaseOptions) -> Result<()> {
    let may_be_released = vote.begin_release();
    match hold.release(how).await {
        // An earlier request did it, whose answer was lost.
        Ok(ReleaseOutcome::AlreadyLost) if may_be_released && vote.is_live() => {
            votes.note_released(vote, ReleaseOutcome::Released);
        }
        Ok(outcome) => votes.note_released(vote, outcome),
        Err(error) => {
            if error.is_not_executed() && !may_be_released {
                vote.was_not_released();
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Undoes whatever this request may have left at any node. It is over when a majority has nothing of it, and the others had
/// time to answer.
pub(crate) async fn abandon(client: &Arc<Client>, request: &AcquireRequest) -> Result<()> {
    clean_up::go_on(client);
    let Some(votes) = client.known_votes_of(request) else {
        return Ok(());
    };
    votes.end();
    let patience = client.patience(request.ttl());
    let mut calls = Calls::new();
    for vote in votes.asked() {
        let (client, votes, vote_asked) = (client.clone(), votes.clone(), vote.clone());
        calls.push(vote, async move {
            let vote = vote_asked;
            if vote.is_cleaned_up() || vote.hold().is_none() {
                tokio::select! {
                    biased;
                    () = votes.forgotten(&vote) => return Ok(()),
                    () = sleep(patience) => {}
                }
            }
            client.nodes[vote.node].backend.abandon(&vote.request).await?;
            votes.forget(&vote);
            Ok(())
        });
    }
    let is_enough = || votes.clean_nodes() >= client.needed();
    let failed = calls.settle(client, &votes, is_enough).await;
    if !is_enough() {
        return Err(unknown(client, failed, "given back"));
    }
    calls.go_on(client, &votes, failed, None);
    Ok(())
}

fn unknown(client: &Client, failed: Vec<(Arc<Vote>, Error)>, what: &str) -> Error {
    let mut errors = NodeErrors::default();
    for (vote, error) in failed {
        errors.add(vote.node, client.nodes[vote.node].kind(), error);
    }
    let message = format!("it is not known whether the lock was {what}: too few nodes have answered");
    let error = errors.into_error(message);
    match error.kind() {
        // Of a node that does not know the vote any more.
        ErrorKind::Lost => error.retryable(true),
        _ => error,
    }
}

/// Requests that end votes.
struct Calls {
    /// The votes whose requests are under way.
    open: Vec<Arc<Vote>>,
    under_way: FuturesUnordered<BoxFuture<'static, (Arc<Vote>, Result<()>)>>,
}

impl Calls {
    fn new() -> Self {
        Self {
            open: Vec::new(),
            under_way: FuturesUnordered::new(),
        }
    }

    fn push(&mut self, vote: Arc<Vote>, call: impl Future<Output = Result<()>> + Send + 'static) {
        self.open.push(vote.clone());
        self.under_way.push(Box::pin(async move { (vote, call.await) }));
    }

    /// The next answer, or `None` after the last one.
    async fn next(&mut self) -> Option<(Arc<Vote>, Result<()>)> {
        let (vote, result) = self.under_way.next().await?;
        self.open.retain(|open| !Arc::ptr_eq(open, &vote));
        Some((vote, result))
    }

    /// Waits until all have answered; or until enough have, and those that are not suspected had time to; or until nothing of the
    /// votes can be left at the nodes. Returns what failed.
    async fn settle(
        &mut self,
        client: &Client,
        votes: &Votes,
        is_enough: impl Fn() -> bool,
    ) -> Vec<(Arc<Vote>, Error)> {
        let mut failed = Vec::new();
        let ttl = votes.request.ttl();
        let until = Instant::now() + client.patience(ttl);
        let mut expired = pin!(sleep(self.last_at_nodes()));
        loop {
            let is_awaited = |vote: &Arc<Vote>| !client.nodes[vote.node].is_suspected();
            let enough = is_enough();
            if enough && (!self.open.iter().any(is_awaited) || Instant::now() >= until) {
                break;
            }
            let answer = tokio::select! {
                biased;
                answer = self.next() => answer,
                () = sleep_until(until), if enough => continue,
                () = &mut expired => {
                    failed.extend(self.open.iter().map(|vote| (vote.clone(), clean_up::unanswered())));
                    break;
                }
            };
            let Some((vote, result)) = answer else { break };
            let node = &client.nodes[vote.node];
            match result {
                Ok(()) => node.has_answered(),
                Err(error) => {
                    if error.is_retryable() {
                        node.suspect(rules::suspicion(ttl));
                    }
                    failed.push((vote, error));
                }
            }
        }
        if Instant::now() >= until {
            for vote in &self.open {
                client.nodes[vote.node].suspect(rules::suspicion(ttl));
            }
        }
        failed
    }

    /// For how long anything of the votes whose requests are under way may be at their nodes at most.
    fn last_at_nodes(&self) -> Duration {
        let open = self.open.iter().map(|vote| vote.lasts_at_node());
        open.max().unwrap_or_default()
    }

    /// Awaits the rest in the background. What fails there, or ends with the runtime, is ended again until its node answers, and so
    /// is what `failed` before.
    fn go_on(
        self,
        client: &Arc<Client>,
        votes: &Arc<Votes>,
        failed: Vec<(Arc<Vote>, Error)>,
        release: Option<ReleaseOptions>,
    ) {
        if !self.open.is_empty() {
            let mut rest = Rest {
                client: client.clone(),
                votes: votes.clone(),
                calls: self,
                release,
            };
            clean_up::spawn(client, async move { rest.run().await });
        }
        for (vote, _error) in failed {
            clean_up::end(client, votes, &vote, release);
        }
        client.tidy(votes);
    }
}

/// The requests that are still unanswered when the outcome is known.
struct Rest {
    client: Arc<Client>,
    votes: Arc<Votes>,
    calls: Calls,
    /// If the votes are released instead of abandoned, how.
    release: Option<ReleaseOptions>,
}

impl Rest {
    /// Awaits them for as long as the votes may live. A node that has not answered by then has nothing of them.
    async fn run(&mut self) {
        let last = self.calls.last_at_nodes();
        let answers = async {
            while let Some((vote, result)) = self.calls.next().await {
                if result.is_err() {
                    clean_up::end(&self.client, &self.votes, &vote, self.release);
                }
            }
        };
        if timeout(last, answers).await.is_err() {
            for vote in std::mem::take(&mut self.calls.open) {
                clean_up::expired(&vote, &clean_up::unanswered());
                clean_up::ended(&self.client, &self.votes, &vote);
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        for vote in std::mem::take(&mut self.calls.open) {
            clean_up::end(&self.client, &self.votes, &vote, self.release);
        }
    }
}
