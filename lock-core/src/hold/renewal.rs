//! The renewals of a hold: when they are sent, what happens if an answer is late, and what the answers mean.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, poll_fn};
use tracing::Instrument;

use self::upgrades::Upgrades;
use super::Grant;
use crate::backend::{Hold, Lease, Renewal, SentAt};
use crate::background::call::panicked;
use crate::error::{Error, ErrorKind, Result};
use crate::lost::LostCause;
use crate::mutant::{Mutant, is_active};
use crate::name::LockName;
use crate::observe::{self, BackendRequest, RenewalOutcome};
use crate::options::CheckedLock;
use crate::sync::time::{Instant, timeout_at};
use crate::sync::{Arc, AtomicUsize, Mutex, Notify, Ordering};
use crate::token::FencingToken;

/// A hold is renewed after this part of its ttl: two more renewals fit before the lease ends if the first one fails.
const RENEW_AFTER: u32 = 3;
/// With another hold that is due, it may be renewed earlier by this part of the ttl, but no more: they can go out together.
const EARLY_BY: u32 = 60;
const EARLY_AT_MOST: Duration = Duration::from_millis(100);
/// If a renewal is unanswered for this part of the ttl, the hold is suspect and the next renewal is sent.
const REPEAT_AFTER: u32 = 6;
/// After a failed renewal, the next one is sent after this part of the ttl: early enough for several.
const RETRY_AFTER: u32 = 12;

/// The party that prolongs a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewedBy {
    /// Core, one hold at a time.
    Core,
    /// The backend's session.
    Session,
    /// Nobody: the lease is fixed.
    Nobody,
}

/// The renewals of one hold.
pub(crate) struct Renewals {
    pub(crate) by: RenewedBy,
    name: LockName,
    ttl: Duration,
    lease: Lease,
    /// The number of the keeper's runner that renews it, or [`NOBODY`]. Not behind the lock, which is held while a renewal
    /// is polled: the keeper asks for it under its own.
    runner: AtomicUsize,
    state: Mutex<State>,
    upgrade_settled: Notify,
}

const NOBODY: usize = 0;

/// Those under way live here and not in the keeper, so that a release can drop them on the spot.
struct State {
    hold: Arc<dyn Hold>,
    token: FencingToken,
    upgrades: Upgrades,
    /// In the order in which they were sent.
    unanswered: VecDeque<Unanswered>,
    waker: Option<Waker>,
    stopped: bool,
}

impl State {
    fn earliest(&self) -> Option<SentAt> {
        self.unanswered.front().map(|renewal| renewal.sent)
    }
}

struct Unanswered {
    asked: Instant,
    sent: SentAt,
    answer: BoxFuture<'static, Result<Renewal>>,
}

/// The answer to a single renewal.
struct Answered {
    asked: Instant,
    /// The sending time of the earliest renewal that was unanswered until now.
    earliest: SentAt,
    answer: Result<Renewal>,
}

impl Renewals {
    pub(super) fn new(lock: &CheckedLock, grant: &Grant, lease: &Lease, by: RenewedBy) -> Self {
        if by == RenewedBy::Core {
            lease.renewed_by_core(lock.options.ttl);
        }
        Self {
            by,
            name: lock.name.clone(),
            ttl: lock.options.ttl,
            lease: lease.clone(),
            runner: AtomicUsize::new(NOBODY),
            state: Mutex::new(State {
                hold: grant.hold.clone(),
                token: grant.token,
                upgrades: Upgrades::default(),
                unanswered: VecDeque::new(),
                waker: None,
                stopped: false,
            }),
            upgrade_settled: Notify::new(),
        }
    }

    /// The end of the lease, as of now.
    pub(super) fn end(&self) -> Instant {
        self.lease.end().expect("only an armed lease makes a hold")
    }

    /// The first check of the hold. Counted from before the grant was sent, as the lease is: the line may be slow.
    pub(super) fn first_due(&self) -> Instant {
        self.due_after(self.lease.armed_from().unwrap_or_else(Instant::now))
    }

    /// The next check of the hold, if its last renewal was asked for at `asked`.
    pub(super) fn due_after(&self, asked: Instant) -> Instant {
        match self.by {
            RenewedBy::Core => self.within_lease(asked, RENEW_AFTER),
            RenewedBy::Session | RenewedBy::Nobody => self.end(),
        }
    }

    /// The time by which the renewal may be early if another hold is due.
    pub(super) fn may_be_early(&self) -> Duration {
        match self.by {
            RenewedBy::Core => (self.ttl / EARLY_BY).min(EARLY_AT_MOST),
            RenewedBy::Session | RenewedBy::Nobody => Duration::ZERO,
        }
    }

    /// The moment this part of the ttl after `start`, or the end of the lease if that comes first.
    fn within_lease(&self, start: Instant, part: u32) -> Instant {
        let end = self.end();
        start.checked_add(self.ttl / part).map_or(end, |moment| moment.min(end))
    }

    /// Renews, polled by this runner of the keeper, until a renewal is answered and none is unanswered. While one is
    /// unanswered it sends the next one and still listens for the earlier answers: a slow line answers late. Answers
    /// change the lease; an error, or no answer, makes the hold suspect.
    ///
    /// Returns the next check of the hold.
    pub(super) async fn renew(&self, runner: usize) -> Instant {
        self.begin(runner);
        // Also if this is dropped, or panics: then it is renewed anew.
        let _ending = EndingBy(self, runner);
        self.drive(runner).await
    }

    async fn drive(&self, runner: usize) -> Instant {
        let Some(asked) = self.send(runner) else {
            return Instant::now();
        };
        let mut next = self.within_lease(asked, REPEAT_AFTER);
        loop {
            match timeout_at(next, poll_fn(|context| self.poll(runner, context))).await {
                // The release has begun, or another runner has taken over.
                Ok(None) => return Instant::now(),
                Ok(Some(Answered {
                    asked,
                    answer: Ok(Renewal::Renewed(_)),
                    ..
                })) => {
                    observe::renewed(RenewalOutcome::Renewed);
                    if !self.is_under_way() {
                        return self.due_after(asked);
                    }
                }
                Ok(Some(Answered {
                    answer: Ok(Renewal::Lost),
                    ..
                })) => {
                    observe::renewed(RenewalOutcome::Lost);
                    self.lease.lose(LostCause::NotHeld);
                    return Instant::now();
                }
                Ok(Some(Answered {
                    asked,
                    earliest,
                    answer: Err(error),
                })) => {
                    observe::renewal_failed(&self.name, &error);
                    self.lease.renewal_failed(earliest, error);
                    let retry = self.within_lease(Instant::now(), RETRY_AFTER);
                    if !self.is_under_way() {
                        return self.due_after(asked).min(retry);
                    }
                    next = next.min(retry);
                }
                Err(_unanswered) => {
                    if !self.lease.is_live() {
                        return Instant::now();
                    }
                    if let Some(earliest) = self.earliest_unanswered() {
                        observe::renewal_unanswered(&self.name);
                        self.lease.renewal_unanswered(earliest, || self.unanswered_error());
                    }
                    match self.send(runner) {
                        Some(asked) => next = self.within_lease(asked, REPEAT_AFTER),
                        None => return Instant::now(),
                    }
                }
            }
        }
    }

    /// From here on this runner polls the renewals. Those under way are given up: their runner's runtime has gone, or nobody
    /// drives it.
    pub(super) fn begin(&self, runner: usize) {
        let mut state = self.state.lock();
        self.runner.store(runner, Ordering::SeqCst);
        let given_up = std::mem::take(&mut state.unanswered);
        drop(state);
        drop(given_up);
    }

    /// This runner renews it no more, unless another one has taken its place before.
    fn end_by(&self, runner: usize) {
        let _ = self
            .runner
            .compare_exchange(runner, NOBODY, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Asks for one more renewal; when that was. `None` once the release has begun or another runner has taken over.
    fn send(&self, runner: usize) -> Option<Instant> {
        let mut state = self.state.lock();
        if !self.is_by(runner) || state.stopped && !is_active(Mutant::RenewsAfterRelease) {
            return None;
        }
        let (hold, ttl, name) = (state.hold.clone(), self.ttl, self.name.clone());
        let span = observe::renew_span(&self.name, state.token);
        let renewal = AssertUnwindSafe(async move { hold.renew(ttl).await }.instrument(span)).catch_unwind();
        let answer = renewal.map(move |answer| {
            answer.unwrap_or_else(|_| {
                observe::renewal_panicked(&name);
                Err(panicked())
            })
        });
        self.lease.renewing();
        let (asked, sent) = (Instant::now(), SentAt::now());
        observe::requested(BackendRequest::Renew);
        state.unanswered.push_back(Unanswered {
            asked,
            sent,
            answer: Box::pin(answer),
        });
        Some(asked)
    }

    fn unanswered_error(&self) -> Error {
        let message = format!("a renewal was not answered within {:?}", self.ttl / REPEAT_AFTER);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn is_under_way(&self) -> bool {
        !self.state.lock().unanswered.is_empty()
    }

    /// Whether this runner renews the hold.
    pub(super) fn is_by(&self, runner: usize) -> bool {
        self.runner.load(Ordering::SeqCst) == runner
    }

    /// Whether another runner renews the hold, or did until it was stopped.
    pub(super) fn is_by_another(&self, runner: usize) -> bool {
        !self.is_by(runner) && !self.is_by(NOBODY)
    }

    fn earliest_unanswered(&self) -> Option<SentAt> {
        self.state.lock().earliest()
    }

    /// The next answer to any renewal. `None` when nothing of this runner's is under way any more.
    fn poll(&self, runner: usize, context: &mut Context<'_>) -> Poll<Option<Answered>> {
        let mut state = self.state.lock();
        if !self.is_by(runner) {
            return Poll::Ready(None);
        }
        let Some(earliest) = state.earliest() else {
            return Poll::Ready(None);
        };
        let mut answered = None;
        for (index, renewal) in state.unanswered.iter_mut().enumerate() {
            if let Poll::Ready(answer) = renewal.answer.as_mut().poll(context) {
                answered = Some((index, renewal.asked, answer));
                break;
            }
        }
        let Some((index, asked, answer)) = answered else {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        // One that was sent before a success could only arm for less.
        let first = if answer.is_ok() { 0 } else { index };
        let over: Vec<_> = state.unanswered.drain(first..=index).collect();
        let answer = state.understood(answer);
        drop(state);
        drop(over);
        Poll::Ready(Some(Answered {
            asked,
            earliest,
            answer,
        }))
    }

    /// From here on no renewal is sent. Safe to call anywhere: it reads no clock.
    pub(super) fn stop(&self) {
        let (unanswered, waker) = {
            let mut state = self.state.lock();
            state.stopped = true;
            (std::mem::take(&mut state.unanswered), state.waker.take())
        };
        drop(unanswered);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct EndingBy<'a>(&'a Renewals, usize);

impl Drop for EndingBy<'_> {
    fn drop(&mut self) {
        self.0.end_by(self.1);
    }
}

mod upgrades;
