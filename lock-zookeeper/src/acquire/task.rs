//! The task that works on one acquisition, from its node's creation until that node is known to be gone.
//!
//! It runs where its session runs, and ends with it. No request that changes anything is dropped before its answer:
//! the driver would send it all the same.

use std::sync::Arc;

use lock_core::Error;
use lock_core::backend::{Busy, LostCause};
use tokio::sync::mpsc;
use tokio::time::sleep;
use zookeeper_client::Error as Driver;

use crate::claims::{Claim, Claims, Held, Outcome, Stage, TaskNumber};
use crate::config::ZooKeeperConfig;
use crate::connection::{Delete, Over, Session};
use crate::error::{self, Fate, PAUSE, caught};
use crate::hold::end::{HoldEnd, Orders, end_of_hold, finish_release};
use crate::protocol;

pub(super) struct Task {
    pub(super) claim: Arc<Claim>,
    pub(super) number: TaskNumber,
    pub(super) session: Arc<Session>,
    pub(super) config: Arc<ZooKeeperConfig>,
    /// What precedes the sequence in our node's name.
    pub(super) prefix: String,
    pub(super) node: Option<Node>,
    pub(super) directory_missing: bool,
    /// By which a hold sends us the delete that releases it.
    pub(super) release: mpsc::UnboundedSender<Delete>,
    pub(super) orders: Orders,
}

/// Our node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) czxid: i64,
    pub(super) data: Vec<u8>,
}

/// Why the work stops.
#[derive(Debug)]
pub(super) enum Stop {
    Undo,
    Busy(Busy),
    Failed(Error),
    Over,
}

pub(super) type Step<T> = Result<T, Stop>;

/// Starts the task, unless one works on this claim already.
pub(super) fn start(claims: &Arc<Claims>, claim: &Arc<Claim>, session: &Arc<Session>, config: &Arc<ZooKeeperConfig>) {
    let Some(number) = claim.begin(session) else {
        return;
    };
    let task = Task::new(claim, number, session, config);
    let mut end = End {
        claims: claims.clone(),
        claim: claim.clone(),
        number,
        outcome: Outcome::SessionEnded,
        session: session.clone(),
        config: config.clone(),
    };
    // Where the runtime refuses it, it is dropped at once.
    session.runtime.spawn(async move {
        let outcome = match caught(task.run()).await {
            Ok(outcome) => outcome,
            Err(panic) => end.clean_up(panic).await,
        };
        end.note(outcome);
    });
}

/// Tells how the task ended, also when its runtime has gone.
struct End {
    claims: Arc<Claims>,
    claim: Arc<Claim>,
    number: TaskNumber,
    outcome: Outcome,
    session: Arc<Session>,
    config: Arc<ZooKeeperConfig>,
}

impl End {
    fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// After a panic: leaves nothing behind that nobody looks after.
    async fn clean_up(&self, panic: Error) -> Outcome {
        self.session.forget(self.claim.holder());
        self.claim.request.lease().lose(LostCause::NotHeld);
        let mut task = Task::new(&self.claim, self.number, &self.session, &self.config);
        // Should that panic as well, the session's end does it.
        let _ = caught(task.leave()).await;
        Outcome::Failed(panic)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let holder = self.claim.holder();
        let was_held = matches!(self.claim.stage(), Stage::Held(_));
        if !self.claim.advance(self.number, Stage::Over(self.outcome.clone())) {
            // Another task has taken over.
            return;
        }
        match self.outcome {
            Outcome::Undone | Outcome::Released | Outcome::NotOurs => self.claims.retire(holder),
            // What is left of it ends with its session.
            _ if was_held && !self.claim.has_handles() => self.claims.close(holder),
            _ if !self.claim.has_residue() => self.claims.close(holder),
            // Somebody will ask again, or have it undone.
            _ => {}
        }
    }
}

impl Task {
    fn new(claim: &Arc<Claim>, number: TaskNumber, session: &Arc<Session>, config: &Arc<ZooKeeperConfig>) -> Self {
        let (release, releases) = mpsc::unbounded_channel();
        Self {
            claim: claim.clone(),
            number,
            session: session.clone(),
            config: config.clone(),
            prefix: protocol::prefix(claim.holder()),
            node: None,
            directory_missing: false,
            release,
            orders: Orders {
                releases,
                undo: claim.undo.subscribe(),
            },
        }
    }

    async fn run(mut self) -> Outcome {
        let stop = match self.queue().await {
            Ok(held) => return self.keep(held).await,
            Err(stop) => stop,
        };
        match self.leave().await {
            Ok(()) => stop.into(),
            Err(stop) => stop.into(),
        }
    }

    /// Queues until the grant, and reports meanwhile when the server cannot be asked.
    async fn queue(&mut self) -> Step<Arc<Held>> {
        let (session, request) = (self.session.clone(), self.claim.request.clone());
        let reporting = async {
            let mut outages = session.outages();
            loop {
                let outage = outages.borrow_and_update().clone();
                outage.into_iter().for_each(|why| request.note_unreachable(why));
                if outages.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            entered = self.enter() => entered,
            never = reporting => never,
        }
    }

    /// Waits until the hold ends, and deletes its node.
    async fn keep(mut self, held: Arc<Held>) -> Outcome {
        let claim = self.claim.clone();
        let end = end_of_hold(&claim, &held, &mut self.orders).await;
        self.session.forget(claim.holder());
        match end {
            HoldEnd::Release(delete) => {
                let outcome = finish_release(&self.session, &held.path, delete).await;
                if !matches!(outcome, Outcome::Failed(_)) {
                    self.forget_node();
                }
                outcome
            }
            HoldEnd::Undo => self.leave().await.map_or_else(Outcome::from, |()| Outcome::Undone),
            HoldEnd::LeaseEnded => self.leave().await.map_or_else(Outcome::from, |()| Outcome::NotOurs),
            HoldEnd::TakenAway => {
                claim.request.lease().lose(LostCause::NotHeld);
                self.forget_node();
                Outcome::NotOurs
            }
            HoldEnd::SessionEnded => Outcome::SessionEnded,
        }
    }

    /// Deletes our node, until it is known to be gone.
    pub(super) async fn leave(&mut self) -> Step<()> {
        if self.node.is_none() && self.claim.has_residue() {
            self.find().await?;
        }
        while let Some(node) = &self.node {
            let connection = self.session.connected().await?;
            match connection.client.delete(&node.path, None).await {
                Ok(()) | Err(Driver::NoNode) => self.forget_node(),
                Err(error) => self.bear(error).await?,
            }
        }
        Ok(())
    }

    /// Looks for nodes of ours after an unknown outcome: ours is the one of this session. One of an earlier session
    /// is as good as dead, and is deleted.
    ///
    /// What was sent on the broken connection cannot come later: a server closes a session's old connection before it
    /// lets it have a new one, the leader refuses what a session sent through another server, and the `sync` goes
    /// behind whatever the leader has accepted.
    pub(super) async fn find(&mut self) -> Step<()> {
        'again: loop {
            let connection = self.session.connected().await?;
            let client = &connection.client;
            let sync = self.session.sync(&connection);
            let list = client.list_children(&self.claim.directory);
            let children = match tokio::join!(sync, list) {
                (Ok(()), Ok(children)) => children,
                (Ok(()), Err(Driver::NoNode)) => Vec::new(),
                (Err(error), _) | (_, Err(error)) => {
                    self.bear(error).await?;
                    continue;
                }
            };
            self.node = None;
            for name in children.into_iter().filter(|child| child.starts_with(&self.prefix)) {
                let path = format!("{}/{name}", self.claim.directory);
                let done = match client.get_data(&path).await {
                    Ok((data, stat)) if self.session.owns(&stat) && self.node.is_none() => {
                        let czxid = stat.czxid;
                        self.node = Some(Node {
                            name,
                            path,
                            czxid,
                            data,
                        });
                        Ok(())
                    }
                    Ok(_) => client.delete(&path, None).await,
                    Err(error) => Err(error),
                };
                match done {
                    Ok(()) | Err(Driver::NoNode) => {}
                    Err(error) => {
                        self.bear(error).await?;
                        continue 'again;
                    }
                }
            }
            self.set_residue(self.node.is_some());
            return Ok(());
        }
    }

    /// After a request failed without a known outcome: waits before it is repeated.
    pub(super) async fn bear(&self, error: Driver) -> Step<()> {
        match error::fate(&error) {
            Fate::Refused => Err(Stop::Failed(error::from_driver(error))),
            Fate::SessionEnded => Err(Stop::Over),
            Fate::Unknown => {
                sleep(PAUSE).await;
                Ok(())
            }
        }
    }

    pub(super) fn set_residue(&self, residue: bool) {
        self.claim.set_residue(self.number, residue);
    }

    fn forget_node(&mut self) {
        self.node = None;
        self.set_residue(false);
    }
}

impl From<Over> for Stop {
    fn from(Over: Over) -> Self {
        Self::Over
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Undo => Self::Undone,
            Stop::Busy(busy) => Self::Busy(busy),
            Stop::Failed(error) => Self::Failed(error),
            Stop::Over => Self::SessionEnded,
        }
    }
}
