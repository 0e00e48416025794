//! Asks the server until it grants the name, or until the caller's time is up.

use std::pin::Pin;
use std::time::Duration;

use super::pending::PendingAcquire;
use super::shared::Shared;
use super::too_late::too_late;
use crate::backend::{Armed, Attempt, Hold};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{Mutant, is_active};
use crate::observe;
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::last_word::{LastWord, Since};
use crate::retry::pauses;
use crate::sync::Arc;
use crate::sync::time::Instant;
use crate::time::until;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Shorter than that of releases: after an outage, somebody waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A caller that acquires or upgrades.
pub(super) struct Driver<'a, F> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) lock: &'a CheckedLock,
    /// The verb of its errors: `acquired` or `upgraded`.
    pub(super) verb: &'static str,
    pub(super) wait: WaitLimit,
    pub(super) deadline: Option<Instant>,
    /// The count of answers about the name when the caller came.
    pub(super) news: u64,
    /// Completes when the caller stops waiting.
    pub(super) stopped: Pin<&'a mut F>,
}

/// Why an acquire ends without an answer.
pub(super) enum StopReason {
    TooLate,
    /// The locker was shut down, or the hold that was to be upgraded has ended.
    Failed(Error),
}

/// The grant of the server; `None` if the name is taken and the caller asks once.
type Driven = Option<(Arc<dyn Hold>, Armed)>;

impl<F: Future<Output = StopReason>> Driver<'_, F> {
    /// Polls the pending acquire until the server grants it.
    pub(super) async fn drive(&mut self, pending: &mut PendingAcquire) -> Result<Driven> {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut last_error = None;
        // A try may overtake releases of this process. Once they are answered, it asks again.
        let mut overtaken = match self.wait.is_patient() || is_active(Mutant::AsksOnce) {
            true => None,
            false => pending.releases_answered(),
        };
        loop {
            let attempt = tokio::select! {
                biased;
                attempt = pending.attempt() => attempt,
                stop = &mut self.stopped => return self.stop(stop, pending.last_word(last_error, self.since())),
            };
            let pause = match self.if_kept(attempt) {
                Ok(Attempt::Granted(hold, armed)) => {
                    self.shared.backend.note_reached();
                    self.shared.check_open()?;
                    return Ok(Some((hold, armed)));
                }
                // The backend has given up, whatever the server would have said.
                Ok(Attempt::Busy(_)) if pending.is_given_up() => {
                    let stop = (&mut self.stopped).await;
                    return self.stop(stop, pending.last_word(last_error, self.since()));
                }
                Err(error) if self.is_no_news(pending, &error) => {
                    pending.unanswered(&error);
                    let stop = (&mut self.stopped).await;
                    let word = match pending.last_word(last_error, self.since()) {
                        LastWord::Nothing if !self.wait.was_spent_waiting() => {
                            LastWord::Failed(error.about(&self.lock.name))
                        }
                        word => word,
                    };
                    return self.stop(stop, word);
                }
                Ok(Attempt::Busy(busy)) => {
                    self.shared.backend.note_reached();
                    last_error = None;
                    // A backend that says "at once" must not keep us spinning.
                    let pause = busy.ask_again.map(|pause| pause.max(SHORTEST_PAUSE));
                    let holder = busy.holder.clone();
                    if let Some(answered) = overtaken.take() {
                        // A hold of this process may have the name, because its release was sent again or had to
                        // wait. Until this is known, nobody else in the queue is refused.
                        pending.nothing_left();
                        tokio::select! {
                            biased;
                            _closed = answered => continue,
                            stop = &mut self.stopped => return self.stop(stop, LastWord::Taken(holder)),
                        }
                    }
                    pending.refused(busy);
                    if !self.wait.is_patient() {
                        pending.nothing_left();
                        return self.taken(holder);
                    }
                    pause
                }
                // The grant was over before its answer came. Or the hold that was to be upgraded has ended.
                Err(error) if error.is_lost() => {
                    pending.anew(self.lock, (self.wait, self.deadline))?;
                    last_error = Some(error.about(&self.lock.name));
                    None
                }
                Err(error) => {
                    last_error = Some(self.failed(pending, error)?);
                    None
                }
            };
            let pause = pause
                .or_else(|| pauses.next())
                .and_then(|pause| Instant::now().checked_add(pause));
            tokio::select! {
                biased;
                stop = &mut self.stopped => return self.stop(stop, pending.last_word(last_error, self.since())),
                () = until(pause) => {}
            }
        }
    }

    /// Refuses a grant if the server does not keep a required guarantee: the backend may have connected to it just now.
    /// The grant is then undone like a failed attempt.
    fn if_kept(&self, attempt: Result<Attempt>) -> Result<Attempt> {
        if let Ok(Attempt::Granted(..)) = &attempt {
            self.shared.backend.check_required(self.lock.required.as_ref())?;
        }
        attempt
    }

    /// True if the error only says that a waiting request was given up: the backend had no time left to ask the server, and has
    /// [reported](crate::backend::AcquireRequest::note_unreachable) a server that cannot be asked.
    fn is_no_news(&self, pending: &PendingAcquire, error: &Error) -> bool {
        self.wait.is_patient() && pending.is_given_up() && error.is_retryable() && pending.was_reached()
    }

    /// Returns the error if the request is to be repeated. Fails with it if a repetition cannot help.
    fn failed(&self, pending: &mut PendingAcquire, error: Error) -> Result<Error> {
        let error = error.about(&self.lock.name);
        pending.attempt_failed(&error);
        let reached = pending.was_reached();
        if self.wait.is_patient() && reached && error.is_retryable() {
            observe::acquire_failed(&self.lock.name, &error);
            return Ok(error);
        }
        let is_everybodys = match error.kind() {
            // If the time of this caller was up, others may wait for longer.
            ErrorKind::Unavailable => !reached && !pending.is_given_up(),
            kind => kind == ErrorKind::Denied,
        };
        pending.failed(&error, is_everybodys);
        Err(error)
    }

    /// The outcome for a caller that was stopped, given the last known state of the name.
    pub(super) fn stop(&self, stop: StopReason, word: LastWord) -> Result<Driven> {
        match (stop, word) {
            (StopReason::Failed(error), _) => Err(error),
            (StopReason::TooLate, LastWord::Taken(_)) if self.wait == WaitLimit::Once => Ok(None),
            (StopReason::TooLate, word) => Err(too_late(self.lock, self.verb, self.wait, word)),
        }
    }

    /// The outcome if the name is taken: an error for callers with a limit, also of zero.
    pub(super) fn taken(&self, holder: Option<Arc<str>>) -> Result<Driven> {
        self.stop(StopReason::TooLate, LastWord::Taken(holder))
    }

    pub(super) fn since(&self) -> Since {
        let limit = self.wait.time_limit(self.lock.limits.operation_timeout);
        let half_time = self
            .deadline
            .zip(limit)
            .and_then(|(deadline, limit)| deadline.checked_sub(limit / 2));
        Since {
            news: self.news,
            half_time,
        }
    }
}
