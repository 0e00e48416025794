//! One or two connections that any number of callers share for small jobs of one kind.
//!
//! Jobs that wait at the same time go out together, so that one connection serves them all. With a second one, a job need
//! not wait for the answer to another, which on a slow line takes long. Unless it is made ahead, it is made if the first has
//! not answered for a while: its packets may be lost, or the server waits for a row.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::backend::AcquireRequest;
use lock_core::{Error, Result};
use lock_kit::dial_limiter::{DialLimiter, Turn};
use parking_lot::Mutex;
use tokio::runtime::Handle;

pub(crate) use self::member::Member;

use self::member::WaitingJob;
use super::dial::Dialer;
use super::session::Session;
use crate::error::{ConnectError, SqlError};
use crate::protocol::{Autocommit, Job, JobDone};

mod member;

/// A connection that has not answered for so long gets no new jobs, if there is or can be another one.
const SLOW_AFTER: Duration = Duration::from_millis(500);

/// A connection to a read-only server is used for so long at least: waiting acquires are refused several times a second, and
/// each must not cost a login.
const RETIRE_AFTER: Duration = Duration::from_secs(1);

/// Checks whether a connection that was just made may be used: it may lead to another server than the one before.
pub(crate) type CheckNew = Box<dyn Fn(Arc<Session>) -> BoxFuture<'static, Result<()>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct ConnectionGroup(Arc<Shared>);

struct Shared {
    dialer: Arc<Dialer>,
    check_new: Option<CheckNew>,
    most: usize,
    /// The number of connections that are made ahead.
    ahead: usize,
    limiter: DialLimiter<ConnectError>,
    members: Mutex<Vec<Arc<Member>>>,
    used: AtomicBool,
    /// True if a second connection is being made.
    is_dialling: AtomicBool,
}

impl ConnectionGroup {
    /// One of so many connections at most. So many of them are made before they are needed. A new one is
    /// used only if it passes the check, if there is one.
    pub(crate) fn new(dialer: Arc<Dialer>, most: usize, ahead: usize, check_new: Option<CheckNew>) -> Self {
        Self(Arc::new(Shared {
            dialer,
            check_new,
            most,
            ahead,
            limiter: DialLimiter::serial(),
            members: Mutex::default(),
            used: AtomicBool::new(false),
            is_dialling: AtomicBool::new(false),
        }))
    }

    /// True if it never had a connection.
    pub(crate) fn is_unused(&self) -> bool {
        !self.0.used.load(Ordering::Relaxed)
    }

    /// A connection that answers, or a new one, which on behalf of a request is dialled for as long as that waits. If the
    /// only one is slow, the job goes there all the same, and the next ones to a second one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn member(&self, request: Option<&AcquireRequest>) -> Result<Arc<Member>> {
        match self.0.usable() {
            Usable::Good(member) => Ok(member),
            Usable::Slow(member) => {
                self.open_in_background();
                Ok(member)
            }
            Usable::None => match request {
                Some(request) => self.0.dialer.retry_while_waiting(request, || self.0.dial()).await,
                None => self.0.dial().await.map_err(Error::from),
            },
        }
    }

    /// A connection that has nothing to do, if there is one.
    pub(crate) fn idle(&self) -> Option<Arc<Member>> {
        let members = self.0.members.lock();
        let mut idle = members.iter().filter(|member| member.is_idle());
        idle.find(|member| !member.session.has_ended()).cloned()
    }

    /// True if all connections have answered a short while ago.
    pub(crate) fn is_fresh(&self) -> bool {
        let members = self.0.members.lock();
        members.len() >= self.0.ahead && members.iter().all(|member| member.is_fresh())
    }

    /// Makes connections before they are needed: on a line that becomes slow, connecting takes long. Waits for them if there
    /// is none, and on behalf of a request for as long as that waits.
    ///
    /// # Errors
    /// If there can be none.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn make_ready(&self, request: Option<&AcquireRequest>) -> Result<()> {
        if self.0.has_members() {
            self.open_in_background();
            return Ok(());
        }
        self.member(request).await?;
        if let Some(dialling) = self.begin_dialling() {
            // One is enough.
            let _ = dialling.0.open().await;
        }
        Ok(())
    }

    /// The same, without waiting. Outside a runtime it does nothing.
    pub(crate) fn open_in_background(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // Made before the task is, which a runtime that shuts down drops.
        let Some(dialling) = self.begin_dialling() else {
            return;
        };
        runtime.spawn(async move {
            // A caller that needs a connection learns why there is none.
            while !dialling.0.is_complete() && dialling.0.open().await.is_ok() {}
        });
    }

    /// `None` if nothing is missing, or if somebody is about it.
    fn begin_dialling(&self) -> Option<Dialling> {
        if self.0.is_complete() || self.0.is_dialling.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Dialling(self.0.clone()))
    }

    /// Runs a job on a connection of this group. If the connection answers nothing for `limit`, it is ended. If its server is
    /// read-only, and the connection at least a second old, it gets no new jobs, and ends when those that it has are answered.
    ///
    /// # Cancel safety
    /// If it is dropped, the job may be sent or not.
    pub(crate) async fn run(&self, member: &Member, job: Job, limit: Option<Duration>) -> Result<JobDone, SqlError> {
        let mut waiting = WaitingJob::begin(member);
        let answer = tokio::select! {
            biased;
            answer = member.session.gather(job) => answer,
            limit = member.is_silent_for(limit) => Err(SqlError::TimedOut(limit)),
        };
        match &answer {
            Err(error) if !error.is_refusal() && !error.is_interrupted() => {
                // Nobody else is to wait for it.
                member.session.abort();
                self.0.forget(member);
                if error.is_disconnect() {
                    self.0.dialer.suspect_outage();
                }
            }
            // It was the primary. Where the address leads now may be the server that is.
            Err(error) if error.is_read_only() => {
                waiting.is_answered = true;
                if may_retire(member.opened.elapsed()) {
                    self.0.forget(member);
                    member.retire();
                }
            }
            _ => waiting.is_answered = true,
        }
        answer
    }
}

impl ConnectionGroup {
    /// Asks the server over each connection of which nothing is heard, in the background: others have broken. One that has
    /// broken as well serves no job any more. Outside a runtime it does nothing.
    pub(crate) fn check(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let members = self.0.members.lock().clone();
        for member in members.into_iter().filter(|member| member.silent_for().is_zero()) {
            let (group, limit) = (self.clone(), self.0.dialer.config().response_timeout);
            runtime.spawn(async move {
                let ping = Job::Statement("DO 0".to_owned());
                // If it fails, the group forgets the connection.
                drop(group.run(&member, ping, Some(limit)).await);
            });
        }
    }
}

/// True if a connection of this age to a read-only server is worth a new one.
fn may_retire(age: Duration) -> bool {
    age >= RETIRE_AFTER
}

/// The connection for a new job.
enum Usable {
    Good(Arc<Member>),
    /// It may be lost, and there may be another one.
    Slow(Arc<Member>),
    None,
}

impl Shared {
    fn usable(&self) -> Usable {
        let mut members = self.members.lock();
        members.retain(|member| !member.session.has_ended());
        let Some(best) = members.iter().min_by_key(|member| member.rank()).cloned() else {
            return Usable::None;
        };
        if best.silent_for() < SLOW_AFTER {
            return Usable::Good(best);
        }
        if members.len() < self.most {
            return Usable::Slow(best);
        }
        let limit = self.dialer.config().response_timeout;
        if let Some(lost) = members.iter().position(|member| member.silent_for() >= limit) {
            members.remove(lost).session.abort();
            let rest = members.first().cloned();
            return rest.map_or(Usable::None, Usable::Slow);
        }
        Usable::Good(best)
    }

    fn good(&self) -> Option<Arc<Member>> {
        match self.usable() {
            Usable::Good(member) => Some(member),
            Usable::Slow(_) | Usable::None => None,
        }
    }

    fn has_members(&self) -> bool {
        self.members.lock().iter().any(|member| !member.session.has_ended())
    }

    /// True if there are as many connections as are made ahead, one of them good.
    fn is_complete(&self) -> bool {
        self.good().is_some() && self.members.lock().len() >= self.ahead
    }

    async fn dial(&self) -> Result<Arc<Member>, ConnectError> {
        let attempt = match self.limiter.turn(|| self.good()).await? {
            Turn::Served(member) => return Ok(member),
            Turn::Dial(attempt) => attempt,
        };
        let opened = self.open().await;
        attempt.finish(opened.as_ref().map(|_| ()).map_err(Clone::clone));
        opened
    }

    async fn open(&self) -> Result<Arc<Member>, ConnectError> {
        let session = self.dialer.open(Autocommit::On).await?;
        if let Some(check_new) = &self.check_new {
            check_new(session.clone()).await.map_err(Error::not_executed)?;
        }
        // Until it is used, it ends before the server ends it.
        session.gather_nothing();
        let member = Arc::new(Member::new(session));
        self.used.store(true, Ordering::Relaxed);
        let mut members = self.members.lock();
        members.retain(|member| !member.session.has_ended());
        // Two that were made at the same time.
        if members.len() < self.most {
            members.push(member.clone());
        }
        Ok(member)
    }

    fn forget(&self, member: &Member) {
        self.members.lock().retain(|kept| !std::ptr::eq(&**kept, member));
    }
}

/// A connection that is being made in the background.
struct Dialling(Arc<Shared>);

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.is_dialling.store(false, Ordering::Release);
    }
}

impl fmt::Debug for ConnectionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGroup")
            .field("members", &self.0.members.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_server_is_dialled_at_most_once_a_second_for_each_connection() {
        assert!(!may_retire(Duration::ZERO) && !may_retire(Duration::from_millis(999)));
        assert!(may_retire(Duration::from_secs(1)) && may_retire(Duration::from_secs(60)));
    }
}
