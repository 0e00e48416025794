//! A hold at the server as core keeps it: what its guards, the keeper and its release share.

use std::fmt;
use std::task::{Wake, Waker};
use std::time::Duration;

use self::current::Current;
use self::joins::Joins;
use self::pass::Sequence;
use self::renewal::{Renewals, RenewedBy};
use self::share::GivenBack;
pub(crate) use self::share::Share;
use crate::backend::lease::HoldState;
use crate::backend::rules::Moment;
use crate::backend::{AcquireRequest, Armed, Hold, Lease, Mode, Renewal};
use crate::backend_state::BackendState;
use crate::background::keeper::Keeper;
use crate::background::schedule::{ScheduleSlot, ScheduledHold};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::{Lost, LostCause};
use crate::observe::{self, BackendRequest};
use crate::options::CheckedLock;
use crate::queue::{Detached, LineKind, Turn, UnansweredRelease, Waiter};
use crate::sync::time::{Instant, sleep};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, Weak};
use crate::time::{LeaseInstant, within};
use crate::token::FencingToken;

pub(crate) mod current;
mod downgrade;
mod joins;
pub(crate) mod pass;
pub(crate) mod release;
pub(crate) mod renewal;
mod share;
pub(crate) mod upgrade;

/// A waiter to whom a hold may be passed on.
pub(crate) trait Successor: Waiter<Hold = ActiveHold<Self>> {
    fn asks_for(&self) -> &CheckedLock;

    /// The moment when its acquire began.
    fn asked(&self) -> LeaseInstant;

    /// Gives the waiter a share in a hold. Returns the share if the waiter has gone.
    fn take_share(self, share: Share<Self>) -> Result<(), Share<Self>>;
}

/// A hold whose lease was armed, and whose end nobody has answered yet.
pub(crate) struct ActiveHold<W: Successor> {
    pub(crate) lock: CheckedLock,
    current: Mutex<Current>,
    pub(crate) lease: Lease,
    pub(crate) renewals: Renewals,
    pub(crate) backend: Arc<BackendState>,
    /// Weak, since the keeper's schedule has this.
    pub(crate) keeper: Weak<Keeper>,
    slot: Mutex<ScheduleSlot>,
    /// The name stays taken until then, even if the hold ends before.
    kept_until: Option<LeaseInstant>,
    /// Whether a release may have been executed without an answer: its runtime ended, or it panicked.
    release_sent: AtomicBool,
    /// Whether an extension asked the server to keep the hold beyond its ttl, answered or not.
    extended: AtomicBool,
    shares: AtomicUsize,
    /// The rules by which other readers join the hold. `None` if they may not.
    joins: Option<Joins>,
    pub(crate) timer: observe::HoldTimer,
    sequence: Sequence,
    succession: Mutex<Succession<W>>,
}

/// The claims on the name after this hold.
struct Succession<W: Successor> {
    /// The process's right to the name, until the hold has ended.
    turn: Option<Turn<W>>,
    /// Instead of the turn: the hold as the queue knows it, until its release begins.
    detached: Option<Detached<W>>,
    /// Whether anybody waited for the hold when its release began. The hold is not passed to a later waiter: it may
    /// have ended at the server before that waiter came.
    was_awaited: bool,
    /// Whether the hold was passed on: another guard has the holder id now.
    passed: bool,
    /// The release, while it is unanswered and nobody keeps the turn for it.
    unanswered: Option<UnansweredRelease<W>>,
}

/// A hold that the server granted.
pub(crate) struct Grant {
    hold: Arc<dyn Hold>,
    token: FencingToken,
    lease: Lease,
    /// The request of the grant, if the hold is upgradable.
    upgradable: Option<AcquireRequest>,
}

impl Grant {
    /// Checks a grant of the server to this request.
    ///
    /// # Errors
    /// If the backend armed another lease than the request's, or ignored its token floor.
    pub(crate) fn new(request: &AcquireRequest, hold: Arc<dyn Hold>, armed: &Armed) -> Result<Self> {
        if !request.lease().is_proved_by(armed) {
            let message = "the backend armed another lease than that of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(request.name()));
        }
        let token = hold.token();
        if request.token_floor().is_some_and(|floor| token <= floor) {
            let message = "the backend granted a token that is not above the floor of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(request.name()));
        }
        Ok(Self {
            hold,
            token,
            lease: request.lease().clone(),
            upgradable: (request.mode() == Mode::Upgradable).then(|| request.clone()),
        })
    }

    /// A hold that was passed on by one with this token. `None` if its own token is not larger.
    fn passed(hold: Arc<dyn Hold>, lease: Lease, earlier: FencingToken) -> Option<Self> {
        let token = hold.token();
        (token > earlier).then_some(Self {
            hold,
            token,
            lease,
            upgradable: None,
        })
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }
}

impl<W: Successor> ActiveHold<W> {
    pub(crate) fn new(
        grant: Grant,
        lock: CheckedLock,
        backend: &Arc<BackendState>,
        keeper: Weak<Keeper>,
        (turn, sequence): (Turn<W>, Sequence),
    ) -> Arc<Self> {
        let options = &lock.options;
        let by = match (options.fixed_lease, backend.capabilities.session_renewal) {
            (true, _) => RenewedBy::Nobody,
            (false, true) => RenewedBy::Session,
            (false, false) => RenewedBy::Core,
        };
        let lease = grant.lease.clone();
        let joins = Joins::of(&lock, &lease);
        let kept_until = options
            .minimum_hold
            .and_then(|minimum| LeaseInstant::now().after(minimum));
        let active = Arc::new(Self {
            renewals: Renewals::new(&lock, &grant, &lease, by),
            current: Mutex::new(Current::new(grant, options.mode)),
            lock,
            lease,
            backend: backend.clone(),
            keeper,
            slot: Mutex::default(),
            kept_until,
            release_sent: AtomicBool::new(false),
            extended: AtomicBool::new(false),
            shares: AtomicUsize::new(1),
            joins,
            timer: observe::HoldTimer::begin(),
            sequence,
            succession: Mutex::new(Succession {
                turn: Some(turn),
                detached: None,
                was_awaited: false,
                passed: false,
                unanswered: None,
            }),
        });
        // Counted from here: the one who waited for it has it now.
        let maximum_end = active
            .lock
            .options
            .maximum_hold
            .and_then(|maximum| LeaseInstant::now().after(maximum));
        if let Some(maximum_end) = maximum_end {
            active.lease.end_by(maximum_end);
        }
        active.lease.tell_of_loss(Waker::from(active.clone()));
        active
    }

    /// Schedules an immediate check: the server's record of the hold may differ from ours.
    pub(crate) fn renew_now(self: &Arc<Self>) {
        if let Some(keeper) = self.keeper.upgrade() {
            let scheduled: Arc<dyn ScheduledHold> = self.clone();
            keeper.schedule(&scheduled, Instant::now());
        }
    }

    /// The end of the lease, as of now.
    fn end(&self) -> Instant {
        self.renewals.end()
    }

    /// The time for which the current owner has had the hold.
    pub(crate) fn held_for(&self) -> Duration {
        self.sequence.held_for()
    }

    /// The number of guards that share the hold; 0 once its release has begun.
    pub(crate) fn shares(&self) -> usize {
        self.shares.load(Ordering::Acquire)
    }

    /// The rest of the minimum hold.
    fn rest_of_minimum(&self) -> Option<Duration> {
        let rest = self.kept_until?.saturating_duration_since(LeaseInstant::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Refuses what would keep it beyond its maximum.
    pub(crate) fn check_maximum(&self, ttl: Duration) -> Result<()> {
        let Some(maximum_end) = self.lease.maximum_end() else {
            return Ok(());
        };
        let left = maximum_end.saturating_duration_since(LeaseInstant::now());
        if ttl <= left {
            return Ok(());
        }
        let message = format!("an extension of {ttl:?} is longer than what is left of the maximum hold, {left:?}");
        Err(Error::new(ErrorKind::Misconfigured, message))
    }

    /// Whether the hold may last for longer than its ttl. Then it is not passed on: if the process dies, the name must
    /// be free within the next holder's own ttl.
    fn is_extended(&self) -> bool {
        self.extended.load(Ordering::SeqCst)
    }

    /// Keeps the hold for at least `ttl` from now, if that is answered in time.
    pub(crate) async fn extend(&self, ttl: Duration, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            answer = async {
                observe::requested(BackendRequest::Renew);
                self.renewals.upgrade_settled().await;
                // Before it is sent: dropped or unanswered, it may take effect all the same.
                self.extended.fetch_or(ttl > self.lock.options.term(), Ordering::SeqCst);
                self.hold().renew(ttl).await
            } => match answer {
                Ok(Renewal::Renewed(_)) => return Ok(()),
                Ok(Renewal::Lost) => self.lease.lose(LostCause::NotHeld),
                Err(error) => {
                    // A request that was refused before it was sent, and will be again, says nothing of the hold.
                    if error.is_retryable() || !error.is_not_executed() {
                        self.lease.suspect_because(error.clone());
                    }
                    self.check()?;
                    return Err(error.about(&self.lock.name));
                }
            },
            _ = self.lease.ended() => {}
            () = sleep(limit) => {
                self.lease.suspect();
                let message = format!("the extension was not answered {}", within(limit));
                return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.lock.name));
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

    /// Reports the loss in log and metrics, once.
    fn report_loss(&self) {
        if let Err(lost) = self.check() {
            self.timer.lost(&lost, self.token());
        }
    }

    /// The name is about to be free.
    fn releasing(&self) {
        let mut succession = self.succession.lock();
        succession.was_awaited = succession.inherited_turn().is_some_and(Turn::is_awaited);
        if let Some(turn) = &mut succession.turn {
            turn.releasing();
        }
        if let Some(detached) = succession.detached.take() {
            succession.unanswered = detached.releasing();
        }
    }

    fn succession(&self) -> MutexGuard<'_, Succession<W>> {
        self.succession.lock()
    }

    /// The name is the next local waiter's now, who asks the server for it.
    fn pass_turn_on(&self) {
        let turn = {
            let mut succession = self.succession.lock();
            let mut turn = succession.turn.take();
            if let Some(turn) = &mut turn {
                succession.unanswered = turn.release_goes_on();
            }
            turn
        };
        // Outside the lock.
        drop(turn);
    }
}

impl<W: Successor> Succession<W> {
    /// The turn, if the hold may pass with it to the next one in the line.
    fn inherited_turn(&self) -> Option<&Turn<W>> {
        let turn = self.turn.as_ref();
        turn.filter(|turn| turn.kind() == Some(LineKind::Exclusive))
    }
}

impl<W: Successor> ActiveHold<W> {
    /// Ends the wait of all tries for this release, answered or not.
    fn release_answered(&self) {
        let answered = self.succession().unanswered.take();
        drop(answered);
    }
}

/// The lease calls this when it is lost.
impl<W: Successor> Wake for ActiveHold<W> {
    fn wake(self: Arc<Self>) {
        let Some(keeper) = self.keeper.upgrade() else { return };
        if keeper.has_forked() {
            // It is the parent's, and so are its locks.
            return std::mem::forget(self);
        }
        keeper.lost(self);
    }
}

impl<W: Successor> fmt::Debug for ActiveHold<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveHold")
            .field("name", &self.lock.name)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
