//! Acquiring: one request that takes the name or says how long it stays taken.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Mode, SentAt};
use lock_core::{Error, ErrorKind, LockName, Result};
use lock_kit::lease_rows::LeaseHold;
use lock_kit::pacing::Wakes;
use lock_kit::requests::{check_not_given_up, note_silence};
use tokio::time::sleep;

use super::Shared;
use super::sleeper::Awaited;
use crate::connection::Member;
use crate::error::{SqlError, silent};
use crate::protocol::lease_table::sharing::{Sharing, shared};
use crate::protocol::lease_table::{Acquired, LeaseTerms, Mark, Taken, acquired, granted, holder};
use crate::protocol::{Job, JobDone};

/// The most repetitions of a statement that failed for reasons which a repetition cures.
const MAX_RETRIES: u32 = 20;

/// The server's decision.
enum Asked {
    Granted(Attempt),
    /// With the label of the holder that refused this request.
    Taken(Taken, Option<Arc<str>>),
}

/// The answer to one request, when it was sent, and the label of the holder if it was refused.
struct Answered {
    sent: SentAt,
    acquired: Acquired,
    label: Option<Arc<str>>,
}

impl Shared {
    /// Asks until the name is granted or the request is given up. In between it waits: until another client wakes it, or
    /// until it has to ask by itself.
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        loop {
            let calls = self.waits.calls();
            let sleeper = match request.waits() {
                true => self.sleeper(),
                false => Awaited::No,
            };
            let (taken, label) = match note_silence(request, self.ask_on(request, sleeper), silent).await? {
                Asked::Granted(attempt) => return Ok(attempt),
                Asked::Taken(taken, label) => (taken, label),
            };
            let busy = match &label {
                Some(label) => Busy::new().with_holder(label.clone()),
                None => Busy::new(),
            };
            if !request.waits() {
                return Ok(Attempt::Busy(busy));
            }
            let woken = self.waits.refused(request, label, taken);
            request.note_busy(busy.clone());
            let wakes = match (sleeper, taken.is_marked) {
                (Awaited::No, _) => Wakes::Nobody,
                (Awaited::Soon, _) => Wakes::Connection,
                (Awaited::By(_), _) if request.mode() != Mode::Exclusive => self.queue_up(request).await,
                (Awaited::By(_), true) => {
                    self.give_back_entry(request.name(), request.holder());
                    Wakes::Release
                }
                (Awaited::By(_), false) => self.queue_up(request).await,
            };
            let pause = self.waits.pause(request.holder(), taken.rest, wakes);
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

    /// Asks until the server decides.
    async fn ask_on(self: &Arc<Self>, request: &AcquireRequest, sleeper: Awaited) -> Result<Asked> {
        let sharing = Sharing::of(request.mode())?;
        for _ in 0..MAX_RETRIES {
            let member = self.asking.member(Some(request)).await?;
            request.note_connected();
            // Whatever is granted must be kept and ended.
            self.keeping.make_ready(Some(request)).await?;
            check_not_given_up(request, "MySQL")?;
            if !self.is_prepared() {
                self.prepare(&member).await?;
            }
            let terms = LeaseTerms::new(request);
            let asked = match sharing {
                None => self.ask(request, &terms, sleeper, &member).await,
                Some(sharing) => self.ask_to_share(request, &terms, sharing, sleeper, &member).await,
            };
            match &asked {
                Ok(_) => self.locked_rows.remove(request.name()),
                Err(error) if error.is_busy() => self.locked_rows.insert(request.name()),
                Err(_) => {}
            }
            match asked {
                Ok(Answered { sent, acquired, label }) => match acquired {
                    Acquired::Granted(token) => {
                        self.stop_waiting(request.name(), request.holder());
                        self.clean_up_if_due();
                        let armed = request.lease().arm(sent, terms.ttl)?;
                        let hold = LeaseHold::new(self, request, token, terms.reserved(token));
                        return Ok(Asked::Granted(Attempt::Granted(Arc::new(hold), armed)));
                    }
                    Acquired::Taken(taken) => return Ok(Asked::Taken(taken, label)),
                },
                Err(error) if error.is_deadlock() => {}
                Err(error) if error.is_missing_table() => self.set_prepared(false),
                Err(error) if error.is_refusal() => return Err(error.into_lock_error().not_executed()),
                // The server had closed it while it was idle. Under the same holder id it does no harm twice.
                Err(error) if error.is_disconnect() && member.is_reused() => {
                    if request.waits() {
                        request.note_unreachable(error.into_lock_error());
                    }
                }
                Err(error) => return Err(error.into_lock_error()),
            }
        }
        let message = "the MySQL server refuses to change the lock's row again and again: see who locks it";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Asks once: takes a free name with one statement, and needs a second one for all others. One that was refused before
    /// asks by the second one alone. An acquire without an answer leaves a claim.
    async fn ask(
        &self,
        request: &AcquireRequest,
        terms: &LeaseTerms,
        sleeper: Awaited,
        member: &Arc<Member>,
    ) -> Result<Answered, SqlError> {
        let is_locked = self.locked_rows.contains(request.name());
        if !is_locked && !self.waits.contains(request.holder()) {
            let sql = self.statements.take_free(request.name(), terms);
            let done = self.send(request, member, Job::Statement(sql)).await?;
            if let Some(token) = granted(&done.result)? {
                return Ok(Answered {
                    sent: done.sent,
                    acquired: Acquired::Granted(token),
                    label: None,
                });
            }
        }
        let mark = self.mark(request, sleeper, Wakes::Release);
        let sql = self.statements.acquire(request.name(), terms, mark);
        let job = match is_locked {
            true => Job::Transaction(vec![self.statements.lock_row_at_once(request.name()), sql]),
            false => Job::Statement(sql),
        };
        // They go out together.
        let (done, label) = tokio::join!(self.send(request, member, job), self.label_of_holder(request, member));
        let done = done?;
        Ok(Answered {
            sent: done.sent,
            acquired: acquired(&done.result)?,
            label,
        })
    }

    async fn ask_to_share(
        &self,
        request: &AcquireRequest,
        terms: &LeaseTerms,
        sharing: Sharing,
        sleeper: Awaited,
        member: &Arc<Member>,
    ) -> Result<Answered, SqlError> {
        let mark = self.mark(request, sleeper, Wakes::Turn);
        let mut statements = self.statements.share(request.name(), terms, sharing, mark);
        if self.locked_rows.contains(request.name()) {
            statements.insert(0, self.statements.lock_row_at_once(request.name()));
        }
        for _ in 0..MAX_RETRIES {
            let job = Job::Transaction(statements.clone());
            let done = self.send(request, member, job).await?;
            if let Some(acquired) = shared(&done.result)? {
                let label = match acquired {
                    Acquired::Granted(_) => None,
                    Acquired::Taken(_) => self.label_of_holder(request, member).await,
                };
                return Ok(Answered {
                    sent: done.sent,
                    acquired,
                    label,
                });
            }
            // A clean-up may delete it again.
            let make = self.statements.make_row(request.name());
            self.run(&self.asking, member, make).await?;
        }
        Err(SqlError::UnexpectedAnswer("row of the name"))
    }

    /// The mark of a request that waits, which is woken as this says if it can be.
    fn mark(&self, request: &AcquireRequest, sleeper: Awaited, wakes: Wakes) -> Option<Mark> {
        let (wakes, sleeper) = match sleeper {
            Awaited::By(number) => (wakes, number),
            Awaited::Soon => (Wakes::Connection, 0),
            Awaited::No => (Wakes::Nobody, 0),
        };
        request.waits().then(|| Mark {
            lasts: self.waits.mark_lasts(wakes, request.mode()),
            sleeper,
        })
    }

    async fn send(&self, request: &AcquireRequest, member: &Member, job: Job) -> Result<JobDone, SqlError> {
        let in_flight = self.claims.sending(request.holder(), member.session().clone());
        request.sending();
        let limit = Some(self.config.response_timeout);
        let answer = self.run_job(&self.asking, member, job, limit).await;
        // A member that had ended before did not send the job.
        if answer
            .as_ref()
            .err()
            .is_none_or(|error| error.is_refusal() || matches!(error, SqlError::NotConnected))
        {
            in_flight.answered();
        }
        answer
    }

    /// The label of the holder that refuses this request.
    async fn label_of_holder(&self, request: &AcquireRequest, member: &Member) -> Option<Arc<str>> {
        match self.waits.needs_label(request.holder()) {
            // The name was taken, whatever becomes of this.
            true => self.label(request.name(), member).await.unwrap_or_default(),
            false => self.waits.label(request.holder()),
        }
    }

    /// The label of whoever has the name, or of one of them.
    async fn label(&self, name: &LockName, member: &Member) -> Result<Option<Arc<str>>, SqlError> {
        let found = self.run(&self.asking, member, self.statements.holders(name)).await?;
        let holder = found.result.rows.first().map(holder).transpose()?;
        Ok(holder.and_then(|holder| holder.label))
    }
}
