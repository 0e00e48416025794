//! The task that works on one acquisition, from its node's creation until that node is known to be gone.
//!
//! It runs where its session runs, and ends with it. No request that changes anything is dropped before its answer:
//! the driver would send it all the same.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use lock_core::backend::Busy;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use zookeeper_client::Error as Driver;

use crate::claim::{Claim, Claims, Delete, Outcome, Stage};
use crate::config::ZooKeeperConfig;
use crate::error::{self, Fate};
use crate::queue;
use crate::session::{Over, Session};

mod enter;
mod keep;

/// Between two tries of a request whose connection broke, so that an odd answer cannot make a busy loop.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Worker {
    claim: Arc<Claim>,
    session: Arc<Session>,
    config: Arc<ZooKeeperConfig>,
    /// What precedes the sequence in our node's name.
    prefix: String,
    node: Option<Node>,
    directory_missing: bool,
    undo: watch::Receiver<bool>,
    release: mpsc::UnboundedSender<Delete>,
    releases: mpsc::UnboundedReceiver<Delete>,
}

/// Our node.
struct Node {
    name: String,
    path: String,
    czxid: i64,
    data: Vec<u8>,
}

/// Why the work stops.
#[derive(Debug)]
enum Stop {
    Undo,
    Busy(Busy),
    Failed(Error),
    Over,
}

type Step<T> = Result<T, Stop>;

/// Starts the task, unless one works on this claim already.
pub(crate) fn start(claims: &Arc<Claims>, claim: &Arc<Claim>, session: &Arc<Session>, config: &Arc<ZooKeeperConfig>) {
    if !claim.begin() {
        return;
    }
    let (release, releases) = mpsc::unbounded_channel();
    let worker = Worker {
        claim: claim.clone(),
        session: session.clone(),
        config: config.clone(),
        prefix: queue::prefix(claim.holder()),
        node: None,
        directory_missing: false,
        undo: claim.undo.subscribe(),
        release,
        releases,
    };
    let mut end = End {
        claims: claims.clone(),
        claim: claim.clone(),
        outcome: Outcome::SessionEnded,
    };
    session.runtime.spawn(async move {
        let outcome = worker.run().await;
        end.note(outcome);
    });
}

/// Tells how the task ended, also when its runtime has gone.
struct End {
    claims: Arc<Claims>,
    claim: Arc<Claim>,
    outcome: Outcome,
}

impl End {
    fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let holder = self.claim.holder();
        let was_held = matches!(*self.claim.stage.borrow(), Stage::Held(_));
        self.claim.stage.send_replace(Stage::Over(self.outcome.clone()));
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

impl Worker {
    async fn run(mut self) -> Outcome {
        let stop = match self.enter().await {
            Ok(held) => return self.keep(held).await,
            Err(stop) => stop,
        };
        match self.leave().await {
            Ok(()) => stop.into(),
            Err(stop) => stop.into(),
        }
    }

    /// Deletes our node, until it is known to be gone.
    async fn leave(&mut self) -> Step<()> {
        if self.node.is_none() && self.claim.has_residue() {
            self.find().await?;
        }
        while let Some(node) = &self.node {
            self.session.connected().await?;
            match self.session.client.delete(&node.path, None).await {
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
    async fn find(&mut self) -> Step<()> {
        'again: loop {
            self.session.connected().await?;
            let sync = self.session.sync();
            let list = self.session.client.list_children(&self.claim.directory);
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
                let done = match self.session.client.get_data(&path).await {
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
                    Ok(_) => self.session.client.delete(&path, None).await,
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
            self.claim.set_residue(self.node.is_some());
            return Ok(());
        }
    }

    /// After a request failed without a known outcome: waits until it makes sense to go on.
    async fn bear(&self, error: Driver) -> Step<()> {
        match error::fate(&error) {
            Fate::Refused => Err(Stop::Failed(error::from_driver(error))),
            Fate::SessionEnded => Err(Stop::Over),
            Fate::Unknown => {
                sleep(PAUSE).await;
                Ok(self.session.connected().await?)
            }
        }
    }

    fn forget_node(&mut self) {
        self.node = None;
        self.claim.set_residue(false);
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
