//! Acquiring: one statement that takes the name or says how long it stays taken.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, LockName, Result};
use tokio::time::{sleep, timeout};

use super::Shared;
use super::hold::LeaseHold;
use crate::connection::Member;
use crate::error::SqlError;
use crate::protocol::JobDone;
use crate::protocol::lease_table::{Acquired, LeaseTerms, Mark, Taken, acquired, holder};

/// How many times a statement may fail for reasons that a repetition cures.
const MAX_RETRIES: u32 = 20;

/// If a question has no answer for so long, the server counts as silent.
const SILENT_AFTER: Duration = Duration::from_millis(1500);

/// What the server decided.
enum Asked {
    Granted(Attempt),
    Taken(Taken, Arc<Member>),
}

impl Shared {
    /// Asks until the name is granted or the request is given up. In between it waits: until another client wakes it, or
    /// until it has to ask by itself.
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        loop {
            let calls = self.waits.calls();
            let sleeper = match request.wait() {
                Wait::No => None,
                _ => self.sleeper(),
            };
            let (taken, member) = match self.ask_and_watch(request, sleeper).await? {
                Asked::Granted(attempt) => return Ok(attempt),
                Asked::Taken(taken, member) => (taken, member),
            };
            let label = self.label_of_holder(request, &member).await;
            let busy = match &label {
                Some(label) => Busy::new().with_holder(label.clone()),
                None => Busy::new(),
            };
            if request.wait() == Wait::No {
                return Ok(Attempt::Busy(busy));
            }
            let (pause, woken) = self.waits.refused(request, label, taken, sleeper.is_some());
            request.note_busy(busy.clone());
            let pause = match self.waits.calls() == calls {
                true => pause,
                false => Duration::ZERO,
            };
            tokio::select! {
                biased;
                () = request.given_up() => return Ok(Attempt::Busy(busy)),
                () = woken.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Asks, and reports it if the server falls silent while the request waits.
    async fn ask_and_watch(self: &Arc<Self>, request: &AcquireRequest, sleeper: Option<u64>) -> Result<Asked> {
        let mut asking = pin!(self.ask_on(request, sleeper));
        if let Ok(asked) = timeout(SILENT_AFTER, &mut asking).await {
            return asked;
        }
        if request.last_busy().is_some() {
            request.note_unreachable(SqlError::TimedOut(SILENT_AFTER).into_lock_error());
        }
        asking.await
    }

    /// Asks until the server decides.
    async fn ask_on(self: &Arc<Self>, request: &AcquireRequest, sleeper: Option<u64>) -> Result<Asked> {
        for _ in 0..MAX_RETRIES {
            let member = self.asking.member(Some(request)).await?;
            request.note_connected();
            // Whatever is granted must be kept and ended.
            self.keeping.make_ready(Some(request)).await?;
            if request.is_given_up() {
                let message = "given up before the MySQL server was asked";
                return Err(Error::new(ErrorKind::Unavailable, message).not_executed());
            }
            if !self.is_prepared() {
                self.prepare(&self.asking, &member).await?;
            }
            let terms = LeaseTerms::new(request);
            match self.ask(request, &terms, sleeper, &member).await {
                Ok(done) => match acquired(&done.result).map_err(SqlError::into_lock_error)? {
                    Acquired::Granted(token) => {
                        self.waits.remove(request.holder());
                        self.clean_up_if_due();
                        let armed = request.lease().arm(done.sent, terms.ttl)?;
                        let hold = LeaseHold::new(self, request, &terms, token);
                        return Ok(Asked::Granted(Attempt::Granted(Arc::new(hold), armed)));
                    }
                    Acquired::Taken(taken) => return Ok(Asked::Taken(taken, member)),
                },
                Err(error) if error.is_deadlock() => {}
                Err(error) if error.is_missing_table() => self.set_prepared(false),
                Err(error) if error.is_refusal() => return Err(error.into_lock_error().not_executed()),
                // The server had closed it while it was idle. Under the same holder id it does no harm twice.
                Err(error) if error.is_disconnect() && member.is_reused() => {
                    if request.wait() != Wait::No {
                        request.note_unreachable(error.into_lock_error());
                    }
                }
                Err(error) => return Err(error.into_lock_error()),
            }
        }
        let message = "the MySQL server refuses to change the lock's row again and again: see who locks it";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Asks once. An acquire without an answer leaves a claim.
    async fn ask(
        &self,
        request: &AcquireRequest,
        terms: &LeaseTerms,
        sleeper: Option<u64>,
        member: &Member,
    ) -> Result<JobDone, SqlError> {
        let mark = (request.wait() != Wait::No).then(|| Mark {
            lasts: self.waits.mark_lasts(sleeper.is_some()),
            sleeper: sleeper.unwrap_or(0),
        });
        let sql = self.statements.acquire(request.name(), terms, mark);
        let in_flight = self.claims.sending(request.holder(), member.session());
        request.sending();
        let answer = self.run(&self.asking, member, sql).await;
        // What had ended before was not sent.
        if answer
            .as_ref()
            .err()
            .is_none_or(|error| error.is_refusal() || matches!(error, SqlError::NotConnected))
        {
            in_flight.answered();
        }
        answer
    }

    /// The label of the holder that refused this request.
    async fn label_of_holder(&self, request: &AcquireRequest, member: &Member) -> Option<Arc<str>> {
        match self.waits.needs_label(request.holder()) {
            // The name was taken, whatever becomes of this.
            true => self.label(request.name(), member).await.unwrap_or_default(),
            false => self.waits.label(request.holder()),
        }
    }

    /// The label of whoever has the name.
    async fn label(&self, name: &LockName, member: &Member) -> Result<Option<Arc<str>>, SqlError> {
        let found = self.run(&self.asking, member, self.statements.holder(name)).await?;
        let holder = found.result.rows.first().map(holder).transpose()?;
        Ok(holder.and_then(|holder| holder.label))
    }
}
