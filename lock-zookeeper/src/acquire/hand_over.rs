//! A hand-over: one write of our own node, after which it is the next holder's.
//!
//! The write carries the node's version, and a node that is gone is not written: so a late one revives nothing. The node keeps its
//! name; its data says whose it is. The next holder's task goes on where the giver's ends.
//!
//! If the answer gets lost, the node's data tells. What was sent over the broken connection cannot arrive after that: see
//! [`find_node`](ClaimTask::find_node).

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::SentAt;
use zookeeper_client::{Error as DriverError, Stat};

use super::task::{ClaimTask, Step, Stop};
use super::task_end::TaskEnd;
use super::token::{exhausted, floor};
use crate::claims::{Grant, Outcome, Stage, SuccessorRequest, Token};
use crate::error::{self, Failure};
use crate::hold::end::HoldEnd;
use crate::protocol::{self, NodeData};

/// What became of a hand-over, for the giver's task.
pub(super) enum HandedOver {
    To(Box<Successor>),
    /// The hold is as it was.
    Nothing,
    /// The giver's hold has ended.
    Ended(HoldEnd),
}

/// The next holder's task, and what it begins with.
pub(super) struct Successor {
    task: ClaimTask,
    end: TaskEnd,
    grant: Arc<Grant>,
}

impl Successor {
    /// Publishes the grant.
    pub(super) fn take_over(self) -> (ClaimTask, TaskEnd) {
        let Self { mut task, end, grant } = self;
        // If nobody waits for it any more, the next holder is undone.
        task.claim.advance(task.number, Stage::Granted(grant.clone()));
        task.granted = Some(grant);
        (task, end)
    }
}

/// What became of the write.
enum Written {
    Done(Successful),
    /// Somebody waits at the server, and comes first. Or readers may be beside a hold that was downgraded.
    Yields,
    /// The giver's hold has ended, or is to end.
    Ended(HoldEnd),
}

/// A write that made the node the next holder's.
struct Successful {
    stat: Stat,
    data: NodeData,
    offset: i64,
    sent: SentAt,
    ttl: Duration,
}

impl ClaimTask {
    /// Hands the hold over to the next claim.
    pub(super) async fn hand_over(&mut self, grant: &Grant, request: SuccessorRequest) -> HandedOver {
        match self.write_successor(grant, &request).await {
            // The giver's delete was sent meanwhile: it ends the hold, whose ever it is.
            Ok(Written::Done(_)) if !grant.hand_over() => {
                request.end(Outcome::NotOurs);
                HandedOver::Nothing
            }
            Ok(Written::Done(written)) => self.succeed(written, request),
            Ok(Written::Yields) => {
                let outcome = self.release_now(grant).await;
                request.end(outcome.clone());
                HandedOver::Ended(HoldEnd::Released(outcome))
            }
            Ok(Written::Ended(end)) => {
                request.end(Outcome::NotOurs);
                HandedOver::Ended(end)
            }
            Err(Stop::Failed(error)) => {
                request.end(Outcome::Failed(error));
                HandedOver::Nothing
            }
            Err(_) => {
                request.end(Outcome::SessionEnded);
                HandedOver::Ended(HoldEnd::SessionEnded)
            }
        }
    }

    /// The node is the next holder's: makes its task.
    fn succeed(&mut self, written: Successful, request: SuccessorRequest) -> HandedOver {
        let (next, session) = (request.next.clone(), self.session.clone());
        let fixed = next.request.is_fixed().then_some((written.sent, written.ttl));
        let granted = protocol::token(written.stat.mzxid, written.offset)
            .ok_or_else(exhausted)
            .and_then(|number| {
                session.bind_lease(next.holder(), next.request.lease(), fixed)?;
                Ok(Token {
                    number,
                    base: written.stat.mzxid,
                    offset: written.offset,
                })
            });
        let (token, node) = match (granted, self.node.take()) {
            (Ok(token), Some(node)) => (token, node),
            (granted, node) => {
                // The giver's task deletes the node.
                self.node = node;
                let error = granted.err().unwrap_or_else(|| error::session_ended(session.outage()));
                request.end(Outcome::Failed(error));
                return HandedOver::Ended(HoldEnd::Undo);
            }
        };
        session.unbind_lease(self.claim.holder());
        self.claim.give_room(&next);
        let mut task = Self::new(&next, request.number, &session, &self.config);
        let path = node.path.clone();
        task.node = Some(super::task::Node {
            written: Some(written.stat.mzxid),
            version: written.stat.version,
            data: written.data,
            ..node
        });
        let end = TaskEnd::new(&request.claims, &task);
        request.succeed();
        let grant = Grant::new(session, path, token, task.requests.clone());
        let grant = Arc::new(grant.with_keep(task.keep()));
        HandedOver::To(Box::new(Successor { task, end, grant }))
    }

    /// Writes our node, with the next holder's label and id.
    async fn write_successor(&mut self, grant: &Grant, next: &SuccessorRequest) -> Step<Written> {
        let request = &next.next.request;
        let ttl = request.ttl();
        if ttl < self.session.timeout {
            let error = error::ttl_too_short(ttl, self.session.timeout);
            return Err(Stop::Failed(error.not_executed()));
        }
        self.session.fresh().await?;
        if request.yields() && self.is_awaited().await? {
            return Ok(Written::Yields);
        }
        let offset = self.offset_for_hand_over(grant.token, floor(request)).await;
        let offset = offset.map_err(not_executed)?;
        let data = NodeData {
            holder: Some(request.holder().to_string().into()),
            ..NodeData::labelled(request.label())
        };
        let sent = request.sending();
        next.next.set_leftover(next.number, true);
        Ok(match self.write_until_answered(&data.encode()).await? {
            Ok(stat) => Written::Done(Successful {
                stat,
                data,
                offset,
                sent,
                ttl,
            }),
            Err(other) => other,
        })
    }

    /// Repeats the write of our node until its outcome is known, or until the hold is to end. Does not write over the mark of a
    /// downgrade.
    async fn write_until_answered(&mut self, data: &[u8]) -> Step<Result<Stat, Written>> {
        let ended = |end| Ok(Err(Written::Ended(end)));
        let mut is_unsure = false;
        loop {
            let connection = tokio::select! {
                biased;
                connection = self.session.connected() => connection?,
                end = self.end_requests.end() => return ended(end),
            };
            let Some(node) = &self.node else {
                return ended(HoldEnd::TakenAway);
            };
            let path = node.path.clone();
            let error = match connection.client.set_data(&path, data, Some(node.version)).await {
                Ok(stat) => return Ok(Ok(stat)),
                Err(error) => error,
            };
            match (error::classify(&error), error) {
                (_, DriverError::NoNode) => return ended(HoldEnd::TakenAway),
                (_, DriverError::BadVersion) => {}
                (Failure::Rejected, error) if !is_unsure => return Err(Stop::Failed(error::rejected(error))),
                (_, error) => {
                    is_unsure = true;
                    self.wait_out(error).await?;
                }
            }
            // An earlier write may have been answered by nobody. Or somebody else wrote the node.
            let sync = self.session.sync(&connection);
            let read = connection.client.get_data(&path);
            match tokio::join!(sync, read) {
                (Ok(()), Ok((found, stat))) if found == data => return Ok(Ok(stat)),
                (Ok(()), Ok((found, _))) if NodeData::parse(&found).is_downgraded => return Ok(Err(Written::Yields)),
                (Ok(()), Ok((_, stat))) => {
                    if let Some(node) = &mut self.node {
                        node.version = stat.version;
                    }
                }
                (Ok(()), Err(DriverError::NoNode)) => return ended(HoldEnd::TakenAway),
                // The connection has ended: the version tells after the next write.
                _ => {}
            }
        }
    }

    /// Whether anybody waits at the server.
    async fn is_awaited(&self) -> Step<bool> {
        loop {
            let connection = self.session.connected().await?;
            let sync = self.session.sync(&connection);
            let list = connection.client.list_children(&self.claim.directory);
            match tokio::join!(sync, list) {
                (Ok(()), Ok(children)) => {
                    return Ok(protocol::holders(&children, None).1 > 0);
                }
                // Our node is gone with it: the write finds out.
                (Ok(()), Err(DriverError::NoNode)) => return Ok(false),
                (Err(error), _) | (_, Err(error)) => self.wait_out(error).await.map_err(not_executed)?,
            }
        }
    }

    /// Releases the hold. The next holder's caller is the one who learns of it.
    async fn release_now(&mut self, grant: &Grant) -> Outcome {
        grant.begin_release(None);
        let outcome = self.end_requests.release().await.finish().await;
        grant.report_release();
        outcome
    }
}

fn not_executed(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(error) => Stop::Failed(error.not_executed()),
        other => other,
    }
}
