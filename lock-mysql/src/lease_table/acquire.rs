//! Acquiring: one statement that takes the name or says how long it stays taken.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, LockName, Result};

use super::Shared;
use super::hold::LeaseHold;
use crate::connection::Member;
use crate::error::SqlError;
use crate::protocol::JobDone;
use crate::protocol::lease_table::{Acquired, LeaseTerms, acquired, holder};

/// How many times a statement may fail for reasons that a repetition cures.
const MAX_RETRIES: u32 = 20;

impl Shared {
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
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
            match self.ask(request, &terms, &member).await {
                Ok(done) => match acquired(&done.result).map_err(SqlError::into_lock_error)? {
                    Acquired::Granted(token) => {
                        self.waits.remove(request.holder());
                        self.clean_up_if_due();
                        let armed = request.lease().arm(done.sent, terms.ttl)?;
                        let hold = LeaseHold::new(self, request, &terms, token);
                        return Ok(Attempt::Granted(Arc::new(hold), armed));
                    }
                    Acquired::Taken(rest) => return Ok(Attempt::Busy(self.busy(request, rest, &member).await)),
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
    async fn ask(&self, request: &AcquireRequest, terms: &LeaseTerms, member: &Member) -> Result<JobDone, SqlError> {
        let mark = (request.wait() != Wait::No).then(|| self.waits.mark_lasts());
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

    /// The answer that the name is taken.
    async fn busy(&self, request: &AcquireRequest, rest: Duration, member: &Member) -> Busy {
        let waiter = request.holder();
        let label = match self.waits.needs_label(waiter) {
            // It was taken, whatever became of this.
            true => self.label(request.name(), member).await.unwrap_or_default(),
            false => self.waits.label(waiter),
        };
        let busy = match &label {
            Some(label) => Busy::new().with_holder(label.clone()),
            None => Busy::new(),
        };
        if request.wait() == Wait::No {
            return busy;
        }
        let random = rand::random();
        busy.with_ask_again(self.waits.refused(waiter, label, rest, random))
    }

    /// The label of whoever has the name.
    async fn label(&self, name: &LockName, member: &Member) -> Result<Option<Arc<str>>, SqlError> {
        let found = self.run(&self.asking, member, self.statements.holder(name)).await?;
        let holder = found.result.rows.first().map(holder).transpose()?;
        Ok(holder.and_then(|holder| holder.label))
    }
}
