//! The task that works on one acquisition, from its node's creation until that node is known to be gone.
//!
//! It runs where its session runs, and ends with it. No request that changes anything is dropped before its answer:
//! the driver would send it all the same.

use std::sync::{Arc, Weak};

use lock_core::Error;
use lock_core::backend::Busy;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Error as DriverError, Stat};

use super::task_end::TaskEnd;
use crate::claims::{Claim, Claims, Grant, Outcome, TaskNumber};
use crate::config::ZooKeeperConfig;
use crate::connection::{Connection, Room, Session, SessionEnded};
use crate::error::{self, Failure, RETRY_DELAY, catch_panic};
use crate::hold::TokenMark;
use crate::hold::end::{EndRequests, HoldEnd, end_of_hold};
use crate::hold::keep::{Keep, SeenKept};
use crate::hold::release::Release;
use crate::protocol::{NodeData, ServerTime};

pub(super) struct ClaimTask {
    pub(super) claim: Arc<Claim>,
    pub(super) number: TaskNumber,
    pub(super) session: Arc<Session>,
    pub(super) config: Arc<ZooKeeperConfig>,
    /// The node of which we know that its hold was downgraded.
    pub(super) downgraded: Option<String>,
    pub(super) node: Option<Node>,
    /// The path of our kept node, if there may be one.
    pub(super) kept: Option<String>,
    /// Our kept node as it is for our grant, if our request has a minimum.
    pub(super) keep: Option<Keep>,
    /// The kept node in front of the queue.
    pub(super) seen: Option<SeenKept>,
    pub(super) directory_missing: bool,
    /// The handles to the hold send its release through this.
    pub(super) releases: mpsc::UnboundedSender<Release>,
    pub(super) end_requests: EndRequests,
}

/// Our node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) path: String,
    /// The transaction id of its creation.
    pub(super) czxid: i64,
    /// The same, with the leader's time.
    pub(super) created: ServerTime,
    /// The moment when this process had received that time.
    pub(super) created_read: Instant,
    /// The connection over which it was created; none if the answer got lost.
    pub(super) created_over: Weak<Connection>,
    /// The transaction id of our last write, if we have written it since it was admitted.
    pub(super) written: Option<i64>,
    pub(super) version: i32,
    pub(super) data: NodeData,
}

/// Why the task stops before a grant.
#[derive(Debug)]
pub(super) enum Stop {
    Undo,
    Busy(Busy),
    Failed(Error),
    SessionEnded,
}

pub(super) type Step<T> = Result<T, Stop>;

/// Starts a task on this session, unless one works on this claim already. It needs room there if it may create a node.
pub(super) fn start(
    claims: &Arc<Claims>,
    claim: &Arc<Claim>,
    session: &Arc<Session>,
    room: Option<Room>,
    config: &Arc<ZooKeeperConfig>,
) {
    let Some(number) = claim.begin(session, room) else {
        return;
    };
    let task = ClaimTask::new(claim, number, session, config);
    let end = TaskEnd::new(claims, &task);
    // A runtime that is shutting down drops it at once.
    session.runtime.spawn(run(task, end));
}

async fn run(task: ClaimTask, mut end: TaskEnd) {
    let outcome = match catch_panic(task.run()).await {
        Ok(outcome) => outcome,
        Err(panic) => end.clean_up(panic).await,
    };
    end.note(outcome);
}

impl ClaimTask {
    pub(super) fn new(
        claim: &Arc<Claim>,
        number: TaskNumber,
        session: &Arc<Session>,
        config: &Arc<ZooKeeperConfig>,
    ) -> Self {
        let (releases, received) = mpsc::unbounded_channel();
        Self {
            claim: claim.clone(),
            number,
            session: session.clone(),
            config: config.clone(),
            downgraded: None,
            node: None,
            kept: None,
            keep: None,
            seen: None,
            directory_missing: false,
            releases,
            end_requests: EndRequests {
                releases: received,
                undo: claim.undo.subscribe(),
            },
        }
    }

    async fn run(mut self) -> Outcome {
        let stop = match self.wait_for_grant().await {
            Ok(grant) => return self.until_hold_ends(grant).await,
            Err(stop) => stop,
        };
        match self.undo_node().await {
            Ok(()) => stop.into(),
            Err(stop) => stop.into(),
        }
    }

    /// Queues until the grant, and notes meanwhile when the server is unreachable.
    async fn wait_for_grant(&mut self) -> Step<Arc<Grant>> {
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
            granted = self.queue_until_granted() => granted,
            never = reporting => never,
        }
    }

    /// Waits until the hold ends, and deletes its node.
    async fn until_hold_ends(mut self, grant: Arc<Grant>) -> Outcome {
        let mark = self.token_mark(&grant);
        let end = end_of_hold(&self.claim, &grant, mark, &mut self.end_requests).await;
        self.session.unbind_lease(self.claim.holder());
        self.end_hold(&grant, end).await
    }

    /// The write that shows the token.
    fn token_mark(&self, grant: &Grant) -> Option<TokenMark> {
        let node = self.node.as_ref()?;
        Some(TokenMark::new(&node.data, grant.token.number, node.version))
    }

    async fn end_hold(&mut self, grant: &Grant, end: HoldEnd) -> Outcome {
        match end {
            HoldEnd::Release(release) => {
                let outcome = release.finish().await;
                self.released(outcome)
            }
            HoldEnd::Undo => self.undo_node().await.map_or_else(Outcome::from, |()| Outcome::Undone),
            HoldEnd::LeaseEnded => self.lost(grant).await,
            HoldEnd::TakenAway => {
                self.claim.lose_hold();
                self.lost(grant).await
            }
            HoldEnd::SessionEnded => Outcome::SessionEnded,
        }
    }

    /// The hold has ended without a release. The minimum is kept if its caller was told of the grant.
    async fn lost(&mut self, grant: &Grant) -> Outcome {
        let gone = match self.claim.was_received() {
            true => {
                grant.keep_minimum();
                self.delete_node().await
            }
            false => self.undo_node().await,
        };
        gone.map_or_else(Outcome::from, |()| Outcome::NotOurs)
    }

    fn released(&mut self, outcome: Outcome) -> Outcome {
        if !matches!(outcome, Outcome::Failed(_)) {
            self.forget_node();
        }
        outcome
    }

    /// Deletes our node, until it is known to be gone.
    pub(super) async fn delete_node(&mut self) -> Step<()> {
        if self.node.is_none() && self.claim.has_leftover() {
            self.find_node().await?;
        }
        while let Some(node) = &self.node {
            let connection = self.session.connected().await?;
            match connection.client.delete(&node.path, None).await {
                Ok(()) | Err(DriverError::NoNode) => self.forget_node(),
                Err(error) => self.wait_out(error).await?,
            }
        }
        Ok(())
    }

    /// Finds our node after an ambiguous failure: the one that this session owns. Deletes nodes of earlier sessions.
    ///
    /// A request that was sent on the broken connection cannot arrive later. A server closes a session's old connection
    /// before it lets it have a new one, and the leader refuses requests that a session sent through another server.
    /// The `sync` follows all that the leader has accepted.
    pub(super) async fn find_node(&mut self) -> Step<()> {
        'again: loop {
            let connection = self.session.connected().await?;
            let client = &connection.client;
            let sync = self.session.sync(&connection);
            let list = client.list_children(&self.claim.directory);
            let children = match tokio::join!(sync, list) {
                (Ok(()), Ok(children)) => children,
                (Ok(()), Err(DriverError::NoNode)) => Vec::new(),
                (Err(error), _) | (_, Err(error)) => {
                    self.wait_out(error).await?;
                    continue;
                }
            };
            self.node = None;
            let kept = self.our_kept(&children);
            for name in children
                .into_iter()
                .filter(|child| child.starts_with(&self.claim.prefix))
            {
                let path = format!("{}/{name}", self.claim.directory);
                let done = match client.get_data(&path).await {
                    Ok((data, stat)) if self.session.owns(&stat) && self.node.is_none() => {
                        self.node = Some(Node {
                            name,
                            path,
                            czxid: stat.czxid,
                            created: creation(&stat),
                            created_read: Instant::now(),
                            created_over: Weak::new(),
                            written: None,
                            version: stat.version,
                            data: NodeData::parse(&data),
                        });
                        Ok(())
                    }
                    Ok(_) => client.delete(&path, None).await,
                    Err(error) => Err(error),
                };
                match done {
                    Ok(()) | Err(DriverError::NoNode) => {}
                    Err(error) => {
                        self.wait_out(error).await?;
                        continue 'again;
                    }
                }
            }
            if let Err(error) = self.find_kept(client, kept).await {
                self.wait_out(error).await?;
                continue;
            }
            self.set_leftover(self.node.is_some());
            return Ok(());
        }
    }

    /// Waits before a request is repeated whose failure was ambiguous. Other failures stop the task.
    pub(super) async fn wait_out(&self, error: DriverError) -> Step<()> {
        match error::classify(&error) {
            Failure::Rejected => Err(Stop::Failed(error::lock_error(error))),
            Failure::SessionEnded => Err(Stop::SessionEnded),
            Failure::Ambiguous => {
                sleep(RETRY_DELAY).await;
                Ok(())
            }
        }
    }

    pub(super) fn set_leftover(&self, leftover: bool) {
        self.claim.set_leftover(self.number, leftover);
    }

    pub(super) fn forget_node(&mut self) {
        self.node = None;
        self.set_leftover(false);
    }
}

/// The time at which a node was created.
pub(super) fn creation(stat: &Stat) -> ServerTime {
    ServerTime {
        zxid: stat.czxid,
        at: stat.ctime,
    }
}

impl From<SessionEnded> for Stop {
    fn from(_: SessionEnded) -> Self {
        Self::SessionEnded
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Undo => Self::Undone,
            Stop::Busy(busy) => Self::Busy(busy),
            Stop::Failed(error) => Self::Failed(error),
            Stop::SessionEnded => Self::SessionEnded,
        }
    }
}
