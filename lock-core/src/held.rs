//! A hold as core keeps it: what guard, keeper and release share.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_fn};
use tracing::Instrument;

use crate::backend::lease::HoldState;
use crate::backend::rules::Moment;
use crate::backend::{AcquireRequest, Hold, Lease, Renewal, RequestControl, Sent};
use crate::clock::Time;
use crate::error::{Error, ErrorKind, Lost, LostCause, Result};
use crate::guard::Guard;
use crate::keeper::Keeper;
use crate::locker::Server;
use crate::observe::{self, Asked, Renewed};
use crate::plan::Plan;
use crate::plant::{Plant, is_planted};
use crate::queue::{Answer, Turn, UnansweredRelease, Waiting};
use crate::sync::time::{Instant, sleep, timeout_at};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, Weak};
use crate::token::FencingToken;

pub(crate) struct Held {
    pub(crate) plan: Plan,
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) lease: Lease,
    pub(crate) token: FencingToken,
    pub(crate) renewal: RenewalPlan,
    pub(crate) server: Arc<Server>,
    /// Weak, since the keeper's timetable holds this.
    pub(crate) keeper: Weak<Keeper>,
    /// The keeper's, changed under its lock alone.
    pub(crate) slot: Mutex<Slot>,
    /// Until when the name stays taken, whatever happens to the hold.
    pub(crate) kept_until: Option<Time>,
    /// Whether a release was ever sent: its answer may have got lost with a runtime or in a panic.
    pub(crate) release_sent: AtomicBool,
    /// How many share it.
    guards: AtomicUsize,
    pub(crate) holding: observe::Holding,
    /// How many local waiters in a row have had the name before.
    pub(crate) passes: u32,
    succession: Mutex<Succession>,
    renewing: Mutex<Renewing>,
}

/// Who has the name after this hold.
#[derive(Default)]
pub(crate) struct Succession {
    /// The process's right to the name, until the hold has ended.
    pub(crate) turn: Option<Turn>,
    /// To whom the hold is being handed over.
    pub(crate) heir: Option<Heir>,
    /// Where the turn was passed on before the release was answered, until that is over.
    pub(crate) unanswered: Option<UnansweredRelease>,
}

/// Who is to have a hold next.
pub(crate) struct Heir {
    /// `None` once it has the turn instead, while the outcome is still unknown.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) request: AcquireRequest,
    pub(crate) _control: RequestControl,
}

/// Who prolongs a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalPlan {
    /// Core does, one hold at a time.
    PerHold,
    /// The backend's session does.
    BySession,
    /// Nobody does.
    Fixed,
}

/// Where a hold stands in the keeper's timetable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Nowhere: it is new, or being looked after.
    #[default]
    None,
    /// To be looked after then; the number tells holds of the same moment apart.
    Due(Instant, u64),
    /// Struck off: it is being released, or was lost.
    Gone,
}

/// The renewals under way. They live here and not in the keeper, so that a release can drop them on the spot.
#[derive(Default)]
struct Renewing {
    /// Those that are not answered yet, in the order in which they were sent.
    unanswered: VecDeque<UnansweredRenewal>,
    /// The number of the keeper's runner that polls them.
    runner: usize,
    waker: Option<Waker>,
    stopped: bool,
}

struct UnansweredRenewal {
    asked: Instant,
    sent: Sent,
    answer: BoxFuture<'static, Result<Renewal>>,
}

/// What a single renewal came to, and when it had been asked for.
type Answered = (Instant, Result<Renewal>);

/// A renewal without an answer after this part of the ttl is suspicious: the next one is sent.
const REPEAT_AFTER: u32 = 6;
/// One that failed is repeated after this part of the ttl.
const RETRY_AFTER: u32 = 12;
/// A hold is renewed after this part of the ttl: twice more before the end of its lease if the first one fails.
const RENEW_AFTER: u32 = 3;

impl Held {
    /// A hold whose lease was armed.
    pub(crate) fn new(
        (hold, token, lease): (Arc<dyn Hold>, FencingToken, Lease),
        plan: Plan,
        server: &Arc<Server>,
        keeper: Weak<Keeper>,
        (turn, passes): (Turn, u32),
    ) -> Arc<Self> {
        let renewal = match (plan.fixed, server.capabilities.session_renewal) {
            (true, _) => RenewalPlan::Fixed,
            (false, true) => RenewalPlan::BySession,
            (false, false) => RenewalPlan::PerHold,
        };
        let kept_until = plan.minimum.and_then(|minimum| Time::now().after(minimum));
        let held = Arc::new(Self {
            plan,
            hold,
            lease,
            token,
            renewal,
            server: server.clone(),
            keeper,
            slot: Mutex::default(),
            kept_until,
            release_sent: AtomicBool::new(false),
            guards: AtomicUsize::new(1),
            holding: observe::Holding::begin(),
            passes,
            succession: Mutex::new(Succession {
                turn: Some(turn),
                ..Succession::default()
            }),
            renewing: Mutex::default(),
        });
        held.lease.tell_of_loss(Waker::from(held.clone()));
        held
    }

    /// From here on it is looked after, until its guards have gone.
    pub(crate) fn begin(self: Arc<Self>, keeper: &Arc<Keeper>) -> Guard {
        let told = self.succession.lock().turn.as_ref().map(|turn| turn.holding(&self));
        for waiting in told.unwrap_or_default() {
            let answer = match waiting.plan.check_shared(&self.plan) {
                _ if !waiting.plan.may_share(&self.plan) => Answer::Busy,
                Err(error) => Answer::Failed(error),
                Ok(()) => {
                    self.guards.fetch_add(1, Ordering::AcqRel);
                    Answer::Guard(Guard::new(self.clone(), keeper.kept()))
                }
            };
            // Nobody listens any more where it fails; a guard that comes back lets go.
            let _ = waiting.answer.send(answer);
        }
        // From before the grant was sent, as the lease counts: the line may be slow.
        let granted = self.lease.armed_from().unwrap_or_else(Instant::now);
        keeper.schedule(&self, self.due_after(granted));
        Guard::new(self, keeper.kept())
    }

    /// Whether anybody has it still, and it is neither lost nor being released.
    pub(crate) fn is_shared(&self) -> bool {
        self.guards.load(Ordering::Acquire) > 0 && self.lease.is_live()
    }

    /// One more share, unless the last one has gone.
    pub(crate) fn share(&self) -> bool {
        let one_more = |guards| (guards > 0 || is_planted(Plant::SharesWhatHasEnded)).then_some(guards + 1);
        self.guards
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .is_ok()
    }

    /// One share less; whether it was the last.
    pub(crate) fn unshare(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// When the keeper is to look after the hold next, if its last renewal was asked for at `asked`.
    pub(crate) fn due_after(&self, asked: Instant) -> Instant {
        match self.renewal {
            RenewalPlan::PerHold => self.within_lease(asked, RENEW_AFTER),
            RenewalPlan::BySession | RenewalPlan::Fixed => self.end(),
        }
    }

    /// The moment this part of the ttl after `start`, or the end of the lease if that comes first.
    fn within_lease(&self, start: Instant, part: u32) -> Instant {
        let moment = start.checked_add(self.plan.ttl / part);
        moment.map_or(self.end(), |moment| moment.min(self.end()))
    }

    /// When belief in the hold ends, as of now.
    pub(crate) fn end(&self) -> Instant {
        self.lease.end().expect("only an armed lease makes a hold")
    }

    /// Renews until a renewal is answered and none is unanswered, polled by this runner of the keeper. While one is
    /// unanswered the next one is sent, and the earlier ones are listened to all the same: a slow line answers late, but
    /// it answers. What the server says goes to the lease; an error or no answer makes the hold suspect.
    ///
    /// Says when to look after the hold next.
    pub(crate) async fn renew(self: Arc<Self>, runner: usize) -> Instant {
        self.begin_renewing(runner);
        let Some(asked) = self.send_renewal() else {
            return Instant::now();
        };
        let mut next = self.within_lease(asked, REPEAT_AFTER);
        loop {
            match timeout_at(next, poll_fn(|context| self.poll_renewals(context))).await {
                // The release has begun, or another runner has taken over.
                Ok(None) => return Instant::now(),
                Ok(Some((asked, Ok(Renewal::Renewed(_))))) => {
                    observe::renewed(Renewed::Prolonged);
                    if !self.is_renewing() {
                        return self.due_after(asked);
                    }
                }
                Ok(Some((_, Ok(Renewal::Lost)))) => {
                    observe::renewed(Renewed::Lost);
                    self.lease.lose(LostCause::NotHeld);
                    return Instant::now();
                }
                Ok(Some((asked, Err(error)))) => {
                    observe::renewal_failed(&self.plan.name, &error);
                    self.lease.suspect();
                    let retry = self.within_lease(Instant::now(), RETRY_AFTER);
                    if !self.is_renewing() {
                        return self.due_after(asked).min(retry);
                    }
                    next = next.min(retry);
                }
                Err(_unanswered) => {
                    if !self.lease.is_live() {
                        return Instant::now();
                    }
                    if let Some(unanswered) = self.latest_unanswered() {
                        observe::renewal_unanswered(&self.plan.name);
                        self.lease.suspect_unanswered(unanswered);
                    }
                    match self.send_renewal() {
                        Some(asked) => next = self.within_lease(asked, REPEAT_AFTER),
                        None => return Instant::now(),
                    }
                }
            }
        }
    }

    /// From here on this runner polls the renewals. Those of another one are given up: its runtime has gone, or nobody
    /// drives it.
    pub(crate) fn begin_renewing(&self, runner: usize) {
        let mut renewing = self.renewing.lock();
        renewing.runner = runner;
        let given_up = std::mem::take(&mut renewing.unanswered);
        drop(renewing);
        drop(given_up);
    }

    /// Asks for one more renewal; when that was. `None` once the release has begun.
    fn send_renewal(&self) -> Option<Instant> {
        let (hold, ttl) = (self.hold.clone(), self.plan.ttl);
        let mut renewing = self.renewing.lock();
        if renewing.stopped && !is_planted(Plant::RenewsAfterRelease) {
            return None;
        }
        let (asked, sent) = (Instant::now(), Sent::now());
        observe::asked(Asked::Renew);
        let span = observe::renew_span(&self.plan.name, self.token);
        renewing.unanswered.push_back(UnansweredRenewal {
            asked,
            sent,
            answer: Box::pin(async move { hold.renew(ttl).await }.instrument(span)),
        });
        Some(asked)
    }

    pub(crate) fn is_renewing(&self) -> bool {
        !self.renewing.lock().unanswered.is_empty()
    }

    /// Whether a renewal is under way that this runner polls.
    pub(crate) fn is_renewed_by(&self, runner: usize) -> bool {
        let renewing = self.renewing.lock();
        renewing.runner == runner && !renewing.unanswered.is_empty()
    }

    fn latest_unanswered(&self) -> Option<Sent> {
        self.renewing.lock().unanswered.back().map(|renewal| renewal.sent)
    }

    /// The next answer to any renewal. `None` when nothing is under way any more.
    fn poll_renewals(&self, context: &mut Context<'_>) -> Poll<Option<Answered>> {
        let mut renewing = self.renewing.lock();
        let mut answered = None;
        for (index, renewal) in renewing.unanswered.iter_mut().enumerate() {
            if let Poll::Ready(answer) = renewal.answer.as_mut().poll(context) {
                answered = Some((index, renewal.asked, answer));
                break;
            }
        }
        match answered {
            Some((index, asked, answer)) => {
                // One that was sent before a success could only arm for less.
                let first = if answer.is_ok() { 0 } else { index };
                let over: Vec<_> = renewing.unanswered.drain(first..=index).collect();
                drop(renewing);
                drop(over);
                Poll::Ready(Some((asked, answer)))
            }
            None if renewing.unanswered.is_empty() => Poll::Ready(None),
            None => {
                renewing.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// From here on no renewal is sent. Safe to call anywhere: it reads no clock.
    pub(crate) fn stop_renewal(&self) {
        let (unanswered, waker) = {
            let mut renewing = self.renewing.lock();
            renewing.stopped = true;
            (std::mem::take(&mut renewing.unanswered), renewing.waker.take())
        };
        drop(unanswered);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Keeps the hold for at least `ttl` from now, if that is answered in time.
    pub(crate) async fn extend(&self, ttl: Duration, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            answer = async {
                observe::asked(Asked::Renew);
                self.hold.renew(ttl).await
            } => match answer {
                Ok(Renewal::Renewed(_)) => return Ok(()),
                Ok(Renewal::Lost) => self.lease.lose(LostCause::NotHeld),
                Err(error) => {
                    self.lease.suspect();
                    self.check()?;
                    return Err(error.about(&self.plan.name));
                }
            },
            _ = self.lease.ended() => {}
            () = sleep(limit) => {
                self.lease.suspect();
                let message = format!("the extension was not answered within {limit:?}");
                return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.plan.name));
            }
        }
        Ok(self.check()?)
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        match self.lease.state() {
            HoldState::Lost(lost) => Err(lost),
            _ => Ok(()),
        }
    }

    /// The name is about to be free.
    pub(crate) fn releasing(&self) {
        if let Some(turn) = &self.succession.lock().turn {
            turn.releasing();
        }
    }

    pub(crate) fn succession(&self) -> MutexGuard<'_, Succession> {
        self.succession.lock()
    }

    /// The name is the next local waiter's now, who asks the server for it. What may have been handed over is still to
    /// be undone.
    pub(crate) fn pass_turn_on(&self) {
        let (turn, waiting) = {
            let mut succession = self.succession.lock();
            let waiting = succession.heir.as_mut().and_then(|heir| heir.waiting.take());
            let turn = succession.turn.take();
            if let Some(turn) = &turn {
                succession.unanswered = turn.release_goes_on();
            }
            (turn, waiting)
        };
        if let (Some(turn), Some(waiting)) = (&turn, waiting) {
            turn.put_first(waiting);
        }
        drop(turn);
    }
}

/// What the lease calls when it is lost.
impl Wake for Held {
    fn wake(self: Arc<Self>) {
        if let Some(keeper) = self.keeper.upgrade() {
            keeper.lost(self);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", &self.plan.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
