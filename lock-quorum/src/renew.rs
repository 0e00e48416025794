//! A renewal: all votes at once, and new ones for those that are missing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::backend::Renewal;
use lock_core::backend::request::RequestOptions;
use lock_core::{Error, ErrorKind, FencingToken, Result};
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::error::NodeErrors;
use crate::late::{self, Arrived, Awaited};
use crate::rules;
use crate::terms::HoldTerms;
use crate::votes::{Call, Vote, Votes};
use crate::{clean_up, follow};

/// Keeps the hold if a majority of all nodes does, whoever voted for it before. What is unanswered by then goes on in the
/// background.
pub(crate) async fn renew(client: &Arc<Client>, votes: &Arc<Votes>, ttl: Duration) -> Result<Renewal> {
    clean_up::go_on(client);
    let Some(token) = votes.token() else {
        return Ok(Renewal::Lost);
    };
    if ttl > votes.request.ttl() {
        client.members.check(ttl).map_err(Error::not_executed)?;
    }
    let used = votes.clone();
    client.members.stay_seen(move || used.are_used());
    follow::follow(client, votes);
    let mut round = Round::begin(client, votes, ttl, token);
    loop {
        if rules::is_lost(round.gone.len(), client.nodes.len()) {
            round.lose();
            return Ok(Renewal::Lost);
        }
        if round.kept >= client.needed() {
            let armed = votes.request.lease().arm_by(&votes.leases(), client.needed())?;
            return Ok(Renewal::Renewed(armed));
        }
        if !round.step().await {
            let message = format!(
                "{} of {} nodes keep the hold, and a majority is needed",
                round.kept,
                client.nodes.len()
            );
            return Err(std::mem::take(&mut round.errors).into_error(message));
        }
    }
}

/// One renewal.
struct Round {
    client: Arc<Client>,
    votes: Arc<Votes>,
    ttl: Duration,
    token: FencingToken,
    calls: FuturesUnordered<BoxFuture<'static, (usize, Answer)>>,
    /// The number of nodes that keep the hold since this renewal began.
    kept: usize,
    /// The nodes at which the hold is somebody else's, or nobody's.
    gone: Vec<usize>,
    missing: Vec<Missing>,
    /// The number of calls that renew a vote. The others ask for one.
    renewing: usize,
    /// Until when new votes are not asked for, since it may turn out that the hold is lost.
    patience: Instant,
    errors: NodeErrors,
    /// Whether a task in the background drives it.
    is_rest: bool,
}

#[derive(Clone, Copy)]
struct Missing {
    node: usize,
    /// Whether our vote was live when its node had lost it.
    was_live: bool,
}

enum Answer {
    Kept,
    /// The node does not know the vote.
    Gone(Arc<Vote>),
    NotRenewed(Error),
    Arrived(Arrived),
    /// Of the vote for which a renewal beside this one has asked: it makes the hold.
    AddedBeside(Arc<Vote>),
    /// That one does not, or not in time.
    NotBeside,
}

impl Round {
    fn begin(client: &Arc<Client>, votes: &Arc<Votes>, ttl: Duration, token: FencingToken) -> Self {
        let mut round = Self {
            client: client.clone(),
            votes: votes.clone(),
            ttl,
            token,
            calls: FuturesUnordered::new(),
            kept: 0,
            gone: Vec::new(),
            missing: Vec::new(),
            renewing: 0,
            patience: Instant::now() + client.patience(ttl),
            errors: NodeErrors::default(),
            is_rest: false,
        };
        let mut of_hold = votes.of_hold();
        for vote in of_hold.extract_if(.., |vote| !vote.is_live()) {
            if vote.was_lost() {
                round.forget(&vote, true);
            } else {
                // Its node may still have it for a tenth of the TTL: a new vote is asked for when it was given back.
                clean_up::give_back(client, votes, &vote, None);
            }
        }
        for node in 0..client.nodes.len() {
            match of_hold.iter().find(|vote| vote.node == node) {
                Some(vote) => round.renew(vote),
                None if round.gone.contains(&node) => {}
                None if votes.was_revoked_at(node) => round.is_revoked_at(node),
                None if votes.may_be_at(node) => round.await_beside(node),
                None => {
                    let was_live = votes.has_lost(node);
                    round.missing.push(Missing { node, was_live });
                }
            }
        }
        round
    }

    fn renew(&mut self, vote: &Arc<Vote>) {
        if vote.token() < Some(self.token) {
            // The renewal does not wait for it.
            late::raise_in_background(&self.client, &self.votes, vote);
        }
        if self.client.nodes[vote.node].capabilities.session_renewal {
            self.kept += 1;
            return;
        }
        let (vote, ttl) = (vote.clone(), self.ttl);
        self.renewing += 1;
        self.calls.push(Box::pin(async move {
            let Some(hold) = vote.hold() else {
                return (vote.node, Answer::Gone(vote));
            };
            vote.prolongs(ttl);
            let answer = match hold.renew(ttl).await {
                Ok(Renewal::Renewed(_)) => Answer::Kept,
                Ok(_) => Answer::Gone(vote.clone()),
                Err(error) => Answer::NotRenewed(error),
            };
            (vote.node, answer)
        }));
    }

    /// Waits for the vote for which a renewal beside this one has asked, for as long as for a silent node. It is renewed then, since it
    /// was asked for with that renewal's TTL.
    fn await_beside(&mut self, node: usize) {
        let Some(vote) = self.votes.asked_at(node) else {
            return;
        };
        let (votes, patience) = (self.votes.clone(), self.patience);
        self.calls.push(Box::pin(async move {
            let is_added = tokio::select! {
                biased;
                is_added = votes.added(&vote) => is_added,
                () = sleep_until(patience) => false,
            };
            match is_added {
                true => (node, Answer::AddedBeside(vote)),
                false => (node, Answer::NotBeside),
            }
        }));
    }

    /// Takes the next answer. Returns false if there is nothing to wait for.
    async fn step(&mut self) -> bool {
        let may_ask = self.renewing == 0 || Instant::now() >= self.patience;
        if may_ask && !self.missing.is_empty() {
            for missing in std::mem::take(&mut self.missing) {
                self.ask(missing);
            }
        }
        let waits = !self.missing.is_empty();
        tokio::select! {
            biased;
            answer = self.calls.next() => match answer {
                Some((node, answer)) => self.answered(node, answer),
                None => return waits,
            },
            () = sleep_until(self.patience), if waits => {}
        }
        true
    }

    fn answered(&mut self, node: usize, answer: Answer) {
        let own = &self.client.nodes[node];
        match answer {
            Answer::Kept => {
                self.renewing -= 1;
                self.kept += 1;
                own.has_answered();
            }
            Answer::Gone(vote) => {
                self.renewing -= 1;
                own.has_answered();
                let was_live = vote.is_live();
                self.forget(&vote, was_live);
            }
            Answer::NotRenewed(error) => {
                self.renewing -= 1;
                self.fails(node, error);
            }
            Answer::Arrived(Arrived::Added) => {
                self.kept += 1;
                own.has_answered();
            }
            Answer::Arrived(Arrived::Taken) => {
                own.has_answered();
                self.votes.note_taken(node);
                if !self.gone.contains(&node) {
                    self.gone.push(node);
                }
                let error = Error::new(ErrorKind::Lost, "somebody else holds the name there");
                self.errors.add(node, own.kind(), error.retryable(true));
            }
            Answer::Arrived(Arrived::TooLate) => {}
            Answer::Arrived(Arrived::Failed(error)) => self.fails(node, error),
            // Enough have kept it without this one.
            Answer::AddedBeside(_) if self.is_rest => {}
            Answer::AddedBeside(vote) => self.renew(&vote),
            Answer::NotBeside => {}
        }
    }

    /// The node does not know the vote any more. If somebody revoked it, the node is not asked again, or revokes at one node after the
    /// other would never end the hold.
    fn forget(&mut self, vote: &Arc<Vote>, was_live: bool) {
        let node = vote.node;
        if vote.was_revoked() {
            self.votes.revoke(vote);
            return self.is_revoked_at(node);
        }
        // If this renewal does not get a new one, a later one asks for it in the same way.
        let until = was_live.then(|| Instant::now() + vote.lease().valid_for());
        self.votes.lose(vote, until);
        self.gone.push(node);
        self.missing.push(Missing { node, was_live });
    }

    fn is_revoked_at(&mut self, node: usize) {
        self.gone.push(node);
        let error = Error::new(ErrorKind::Lost, "somebody has revoked the hold's vote there");
        self.errors
            .add(node, self.client.nodes[node].kind(), error.retryable(true));
    }

    fn fails(&mut self, node: usize, error: Error) {
        let own = &self.client.nodes[node];
        if error.is_retryable() {
            own.suspect(rules::suspicion(self.ttl));
        }
        self.errors.add(node, own.kind(), error);
    }

    /// Asks for a new vote, which never displaces anybody. A renewal beside this one may have asked for it.
    fn ask(&mut self, missing: Missing) {
        // Its answer says whether the hold is somebody else's there.
        self.gone.retain(|node| *node != missing.node);
        let request = &self.votes.request;
        let terms = HoldTerms {
            ttl: self.ttl,
            ..HoldTerms::of(request)
        };
        let mut options = RequestOptions::new(request.name().clone(), terms.terms())
            .mode(request.mode())
            .fixed(request.is_fixed())
            .shows_token(request.shows_token())
            .waits(false)
            .token_at_least(self.token);
        if missing.was_live {
            options = options.reinstates();
        }
        let vote = Arc::new(Vote::new(missing.node, options.start(), false));
        if !self.votes.record_missing(&vote) {
            return self.await_beside(missing.node);
        }
        let call = Call::new(&self.client.nodes[missing.node], &vote);
        let mut awaited = Awaited::new(&self.client, &self.votes, vote, call);
        self.calls.push(Box::pin(
            async move { (missing.node, Answer::Arrived(awaited.run().await)) },
        ));
    }

    /// The hold is lost. What is left of it is given back.
    fn lose(&mut self) {
        self.votes.end();
        self.missing.clear();
        for vote in self.votes.of_hold() {
            clean_up::give_back(&self.client, &self.votes, &vote, None);
        }
    }

    /// The rest of a renewal whose outcome is known, or that was dropped.
    fn rest(&mut self) -> Self {
        Self {
            client: self.client.clone(),
            votes: self.votes.clone(),
            ttl: self.ttl,
            token: self.token,
            calls: std::mem::take(&mut self.calls),
            kept: self.kept,
            gone: Vec::new(),
            missing: std::mem::take(&mut self.missing),
            renewing: self.renewing,
            patience: self.patience,
            errors: NodeErrors::default(),
            is_rest: true,
        }
    }
}

/// New votes that were asked for are not dropped half-way.
impl Drop for Round {
    fn drop(&mut self) {
        if self.is_rest || self.calls.is_empty() && self.missing.is_empty() {
            return;
        }
        let (votes, mut rest) = (self.votes.clone(), self.rest());
        clean_up::spawn(&self.client, async move {
            let going_on = async { while rest.step().await {} };
            tokio::select! {
                biased;
                () = votes.over() => {}
                () = going_on => {}
            }
        });
    }
}
