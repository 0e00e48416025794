//! One acquire, as its caller sees it: a session, a claim, and a task that works on the claim until it is granted.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::claims::{Claim, Grant, Outcome, Stage};
use crate::client::Client;
use crate::connection::Session;
use crate::error;
use crate::hold::ZooKeeperHold;
use crate::names;

mod enqueue;
mod task;

/// How often a request learns why there is no session.
const REPORT: Duration = Duration::from_millis(100);

enum Answer {
    Attempt(Attempt),
    SessionEnded(Error),
}

impl Client {
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let began = Instant::now();
        // Core repeats only requests that wait.
        let may_repeat = || request.wait() == Wait::No && began.elapsed() < self.config.connect_timeout();
        loop {
            match self.attempt(request).await? {
                Answer::Attempt(attempt) => return Ok(attempt),
                Answer::SessionEnded(_) if may_repeat() && !request.is_given_up() => {}
                Answer::SessionEnded(error) => return Err(error),
            }
        }
    }

    async fn attempt(self: &Arc<Self>, request: &AcquireRequest) -> Result<Answer> {
        let holder = request.holder();
        if self.claims.is_retired(holder) {
            return Err(retired());
        }
        if let Some(claim) = self.claims.get(holder)
            && let Stage::Granted(grant) = claim.stage()
        {
            return self.grant_again(&claim, grant).await.map(Answer::Attempt);
        }
        // A request that never had a session leaves nothing in memory.
        let session = self.session_for(request).await?;
        let directory = || names::directory(self.config.root(), request.name());
        let claim = self.claims.open(request, directory).ok_or_else(retired)?;
        task::start(&self.claims, &claim, &session, &self.config);
        let session = claim.session().unwrap_or(session);
        let limit = self.config.connect_timeout();
        let stage = tokio::select! {
            biased;
            stage = claim.answer(limit) => stage,
            () = self.supervisor.unserved(&session) => {
                claim.detach_task(&session);
                Some(claim.stage())
            }
        };
        let attempt = match stage {
            Some(Stage::Granted(grant)) => {
                let hold = ZooKeeperHold::new(self.clone(), claim.clone(), grant);
                let armed = hold.arm()?;
                Attempt::Granted(Arc::new(hold), armed)
            }
            Some(Stage::Ended(Outcome::Busy(busy))) => Attempt::Busy(busy),
            Some(Stage::Ended(Outcome::Failed(error))) => return Err(error),
            Some(Stage::Ended(Outcome::Released | Outcome::Undone | Outcome::NotOurs)) => return Err(retired()),
            Some(Stage::Ended(Outcome::SessionEnded) | Stage::Idle | Stage::Asking | Stage::Queued) => {
                return Ok(Answer::SessionEnded(error::session_ended(session.outage())));
            }
            None => return Err(error::no_answer(limit, session.outage())),
        };
        Ok(Answer::Attempt(attempt))
    }

    /// Waits for a session to send the request over, and notes meanwhile why there is none.
    async fn session_for(&self, request: &AcquireRequest) -> Result<Arc<Session>> {
        let reporting = async {
            loop {
                if let Some(why) = self.supervisor.outage() {
                    request.note_unreachable(why);
                }
                sleep(REPORT).await;
            }
        };
        let reached = tokio::select! {
            biased;
            session = self.supervisor.session() => session,
            () = request.given_up() => Err(error::given_up(self.supervisor.outage())),
            never = reporting => never,
        };
        reached.map_err(|error| match self.claims.get(request.holder()) {
            // An earlier call may have sent the request.
            Some(claim) if claim.has_leftover() => error,
            _ => error.not_executed(),
        })
    }

    async fn grant_again(self: &Arc<Self>, claim: &Arc<Claim>, grant: Arc<Grant>) -> Result<Attempt> {
        let hold = ZooKeeperHold::new(self.clone(), claim.clone(), grant);
        match hold.confirm().await? {
            Some(armed) => Ok(Attempt::Granted(Arc::new(hold), armed)),
            None => Err(Error::new(ErrorKind::Lost, "the hold was lost")),
        }
    }

    pub(crate) async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let holder = request.holder();
        let Some(claim) = self.claims.get(holder) else {
            self.claims.retire(holder);
            return Ok(());
        };
        claim.undo.send_replace(true);
        self.outcome(&claim).await?;
        if claim.has_leftover() {
            // Its session has ended: a task on another session deletes what is left.
            let session = self.supervisor.session().await?;
            task::start(&self.claims, &claim, &session, &self.config);
            match self.outcome(&claim).await? {
                Outcome::Failed(error) if claim.has_leftover() => return Err(error),
                _ if claim.has_leftover() => return Err(error::session_ended(session.outage())),
                _ => {}
            }
        }
        self.claims.retire(holder);
        Ok(())
    }
}

fn retired() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        "this holder id was released or abandoned: start a new request",
    )
}
