//! A hold at the server as core keeps it: what its guards, the keeper and its release share.

use std::fmt;
use std::task::{Wake, Waker};
use std::time::Duration;

use self::joins::Joins;
use self::pass::Sequence;
use self::renewal::{Renewals, RenewedBy};
use crate::acquire::options::AcquireOptions;
use crate::backend::lease::HoldState;
use crate::backend::rules::Moment;
use crate::backend::{AcquireRequest, Armed, Hold, Lease, Mode, Renewal, RequestControl};
use crate::backend_state::BackendState;
use crate::background::keeper::{Keeper, KeeperRef};
use crate::background::schedule::{ScheduleSlot, ScheduledHold};
use crate::error::{Error, ErrorKind, Result};
use crate::lost::{Lost, LostCause};
use crate::mutant::{Mutant, is_active};
use crate::observe::{self, BackendRequest};
use crate::queue::{Detached, LineKind, Turn, UnansweredRelease, Waiter};
use crate::sync::time::{Instant, sleep};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, Weak};
use crate::time::LeaseInstant;
use crate::token::FencingToken;

mod joins;
pub(crate) mod pass;
pub(crate) mod release;
pub(crate) mod renewal;

/// A waiter to whom a hold may be handed over.
pub(crate) trait Successor: Waiter<Hold = ActiveHold<Self>> {
    fn options(&self) -> &AcquireOptions;

    /// A request of its own, to which a hand-over gives way to those who wait at the server where it `yields`.
    fn request(&self, yields: bool) -> (AcquireRequest, RequestControl);

    /// Gives it a share in a hold, which comes back where nobody listens any more.
    fn take_share(self, share: Share<Self>) -> Result<(), Share<Self>>;
}

/// A hold whose lease was armed, and whose end nobody has answered yet.
pub(crate) struct ActiveHold<W: Successor> {
    pub(crate) options: AcquireOptions,
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) lease: Lease,
    pub(crate) token: FencingToken,
    pub(crate) renewals: Renewals,
    pub(crate) backend: Arc<BackendState>,
    /// Weak, since the keeper's schedule has this.
    pub(crate) keeper: Weak<Keeper>,
    slot: Mutex<ScheduleSlot>,
    /// Until when the name stays taken, whatever happens to the hold.
    kept_until: Option<LeaseInstant>,
    /// Whether a release may have been executed whose answer is not known: it got lost, with a runtime or in a panic.
    release_sent: AtomicBool,
    shares: AtomicUsize,
    /// How other readers join it, if they may.
    joins: Option<Joins>,
    pub(crate) timer: observe::HoldTimer,
    sequence: Sequence,
    succession: Mutex<Succession<W>>,
}

/// Who has the name after this hold.
struct Succession<W: Successor> {
    /// The process's right to the name, until the hold has ended.
    turn: Option<Turn<W>>,
    /// Instead of the turn: the hold as the queue knows it, until its release begins.
    detached: Option<Detached<W>>,
    /// To whom the hold is being handed over.
    next: Option<NextHolder<W>>,
    /// Whether it was passed on, and somebody else has the holder id now.
    passed: bool,
    /// Where nobody keeps the turn for the release, until that is answered.
    unanswered: Option<UnansweredRelease<W>>,
}

/// Who is to have a hold next.
struct NextHolder<W> {
    /// `None` once it has the turn instead, while the outcome is still unknown.
    waiter: Option<W>,
    request: AcquireRequest,
    _control: RequestControl,
}

/// What was granted.
pub(crate) struct Grant {
    hold: Arc<dyn Hold>,
    token: FencingToken,
    lease: Lease,
}

impl Grant {
    /// What the server granted to this request.
    ///
    /// # Errors
    /// When the backend armed another lease than the request's, or ignored its token floor.
    pub(crate) fn new(request: &AcquireRequest, hold: Arc<dyn Hold>, armed: &Armed) -> Result<Self> {
        let lease = request.lease().clone();
        if !lease.is_proved_by(armed) {
            let message = "the backend armed another lease than that of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(request.name()));
        }
        let token = hold.token();
        if request.token_floor().is_some_and(|floor| token <= floor) {
            let message = "the backend granted a token that is not above the floor of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(request.name()));
        }
        Ok(Self { hold, token, lease })
    }

    /// A hold that was passed on by one with this token. `None` if its own token is not larger.
    fn passed(hold: Arc<dyn Hold>, lease: Lease, earlier: FencingToken) -> Option<Self> {
        let token = hold.token();
        (token > earlier).then_some(Self { hold, token, lease })
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }
}

impl<W: Successor> ActiveHold<W> {
    pub(crate) fn new(
        grant: Grant,
        options: AcquireOptions,
        backend: &Arc<BackendState>,
        keeper: Weak<Keeper>,
        (turn, sequence): (Turn<W>, Sequence),
    ) -> Arc<Self> {
        let by = match (options.fixed, backend.capabilities.session_renewal) {
            (true, _) => RenewedBy::Nobody,
            (false, true) => RenewedBy::Session,
            (false, false) => RenewedBy::Core,
        };
        let Grant { hold, token, lease } = grant;
        let joins = Joins::of(&options, &lease);
        let kept_until = options.minimum.and_then(|minimum| LeaseInstant::now().after(minimum));
        let active = Arc::new(Self {
            renewals: Renewals::new(&options, &hold, token, &lease, by),
            options,
            hold,
            lease,
            token,
            backend: backend.clone(),
            keeper,
            slot: Mutex::default(),
            kept_until,
            release_sent: AtomicBool::new(false),
            shares: AtomicUsize::new(1),
            joins,
            timer: observe::HoldTimer::begin(),
            sequence,
            succession: Mutex::new(Succession {
                turn: Some(turn),
                detached: None,
                next: None,
                passed: false,
                unanswered: None,
            }),
        });
        active.lease.tell_of_loss(Waker::from(active.clone()));
        active
    }

    /// Whether a caller with these options shares in it now by its re-entry key: one share more.
    ///
    /// # Errors
    /// When it has the re-entry key, but cannot have what it asked for.
    pub(crate) fn admit(&self, options: &AcquireOptions) -> Result<bool> {
        if !options.has_key_of(&self.options) || !self.is_shared() {
            return Ok(false);
        }
        options.check_shared(&self.options, self.options.mode)?;
        Ok(self.share(is_active(Mutant::SharesWhatHasEnded)))
    }

    /// Whether a reader with these options joins it now: one share more.
    pub(crate) fn join(&self, options: &AcquireOptions) -> bool {
        let joins = self.joins.as_ref().filter(|joins| joins.are_allowed(Instant::now()));
        let joined = joins.is_some()
            && options.may_join(&self.options, self.token)
            && self.lease.state() == HoldState::Held
            && self.share(is_active(Mutant::JoinsWhatHasEnded));
        if let Some(joins) = joins.filter(|_| joined) {
            joins.add(1);
        }
        joined
    }

    /// One share more, unless the last one has gone.
    fn share(&self, also_ended: bool) -> bool {
        let one_more = |shares| (shares > 0 || also_ended).then_some(shares + 1);
        self.shares
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .is_ok()
    }

    /// Whether anybody has it still, and it is neither lost nor being released.
    fn is_shared(&self) -> bool {
        self.shares.load(Ordering::Acquire) > 0 && self.lease.is_live()
    }

    /// When the lease ends, as of now.
    fn end(&self) -> Instant {
        self.renewals.end()
    }

    /// How much of the minimum hold is left.
    fn rest_of_minimum(&self) -> Option<Duration> {
        let rest = self.kept_until?.saturating_duration_since(LeaseInstant::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Keeps the hold for at least `ttl` from now, if that is answered in time.
    pub(crate) async fn extend(&self, ttl: Duration, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            answer = async {
                observe::requested(BackendRequest::Renew);
                self.hold.renew(ttl).await
            } => match answer {
                Ok(Renewal::Renewed(_)) => return Ok(()),
                Ok(Renewal::Lost) => self.lease.lose(LostCause::NotHeld),
                Err(error) => {
                    self.lease.suspect();
                    self.check()?;
                    return Err(error.about(&self.options.name));
                }
            },
            _ = self.lease.ended() => {}
            () = sleep(limit) => {
                self.lease.suspect();
                let message = format!("the extension was not answered within {limit:?}");
                return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.options.name));
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
    fn releasing(&self) {
        let mut succession = self.succession.lock();
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

    /// The name is the next local waiter's now, who asks the server for it. What may have been handed over is still to
    /// be undone.
    fn pass_turn_on(&self) {
        let (turn, waiter) = {
            let mut succession = self.succession.lock();
            let waiter = succession.next.as_mut().and_then(|next| next.waiter.take());
            let mut turn = succession.turn.take();
            if let Some(turn) = &mut turn {
                succession.unanswered = turn.release_goes_on();
            }
            (turn, waiter)
        };
        if let (Some(turn), Some(waiter)) = (&turn, waiter) {
            turn.put_first(waiter);
        }
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
    /// Tells the lines of the name that it is held. Returns those who wait and are to hear of it, and the turn if the hold
    /// does not keep it.
    fn enter_lines(self: &Arc<Self>) -> (Vec<W>, Option<Turn<W>>) {
        let mut succession = self.succession();
        let Some(turn) = &mut succession.turn else {
            return (Vec::new(), None); // lost meanwhile
        };
        match self.options.mode {
            Mode::Exclusive | Mode::Upgradable => {
                let (label, key) = (self.options.label.clone(), self.options.reentry.as_ref());
                (turn.holding(self, label, key), None)
            }
            Mode::Shared | Mode::Permits(_) => self.detach(&mut succession),
        }
    }

    /// Goes on without the turn, which is returned, to be dropped outside the lock. So are those who enter with this hold.
    fn detach(self: &Arc<Self>, succession: &mut Succession<W>) -> (Vec<W>, Option<Turn<W>>) {
        let at_most = self.joins.as_ref().map_or(0, |joins| joins.at_most);
        let may_join = |waiter: &W| waiter.options().may_join(&self.options, self.token);
        let key = self.options.reentry.as_ref();
        let turn = succession.turn.take();
        let entered = turn
            .as_ref()
            .and_then(|turn| turn.detach(self, key, (at_most, may_join)));
        let Some((chosen, detached)) = entered else {
            return (Vec::new(), turn);
        };
        if let Some(joins) = &self.joins {
            joins.add(chosen.len());
        }
        succession.detached = Some(detached);
        (chosen, turn)
    }

    /// Whether a waiter that was chosen shares in the hold, if it may; else it is refused.
    fn is_for(&self, waiter: &W) -> bool {
        waiter.options().has_key_of(&self.options) || waiter.options().may_join(&self.options, self.token)
    }

    fn check_entering(&self, waiter: &W) -> Result<()> {
        match self.options.reentry {
            Some(_) => waiter.options().check_shared(&self.options, self.options.mode),
            None => Ok(()),
        }
    }

    /// Whether the release is answered or not, no try waits for it any more.
    fn release_answered(&self) {
        let answered = self.succession().unanswered.take();
        drop(answered);
    }
}

/// A share in a hold. The hold ends with its last share: dropping that releases the hold in the background.
#[derive(Debug)]
pub(crate) struct Share<W: Successor> {
    /// `None` once it was given back.
    hold: Option<Arc<ActiveHold<W>>>,
    keeper: KeeperRef,
}

impl<W: Successor> Share<W> {
    /// The first share. From here on the keeper checks the hold. Callers that may share in it are let in, and those that do
    /// not wait for an exclusive one are refused.
    pub(crate) fn begin(hold: Arc<ActiveHold<W>>, keeper: &Arc<Keeper>) -> Self {
        let (chosen, turn) = hold.enter_lines();
        for waiter in chosen {
            if !hold.is_for(&waiter) {
                waiter.refuse();
                continue;
            }
            match hold.check_entering(&waiter) {
                Err(error) => waiter.fail(error),
                Ok(()) => {
                    hold.shares.fetch_add(1, Ordering::AcqRel);
                    // Where nobody listens any more, it comes back and lets go.
                    drop(waiter.take_share(Self::of(hold.clone(), keeper)));
                }
            }
        }
        // Of a hold that does not keep it: the next one asks.
        drop(turn);
        let scheduled: Arc<dyn ScheduledHold> = hold.clone();
        keeper.schedule(&scheduled, hold.renewals.first_due());
        Self::of(hold, keeper)
    }

    /// A share that was counted already.
    pub(crate) fn of(hold: Arc<ActiveHold<W>>, keeper: &Arc<Keeper>) -> Self {
        Self {
            hold: Some(hold),
            keeper: keeper.keep(),
        }
    }

    pub(crate) fn hold(&self) -> &Arc<ActiveHold<W>> {
        self.hold
            .as_ref()
            .expect("only release and drop, which consume the share, take it")
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Lets go of it, and leaves what follows to the caller.
    fn give_back(&mut self) -> GivenBack<W> {
        let hold = self
            .hold
            .take()
            .expect("only release and drop, which consume the share, take it");
        if !hold.unshare() {
            GivenBack::StillShared(hold)
        } else if hold.begin_release(&self.keeper) {
            GivenBack::ToRelease(hold)
        } else {
            GivenBack::Ended(hold)
        }
    }
}

/// What is left after a share was given back.
enum GivenBack<W: Successor> {
    StillShared(Arc<ActiveHold<W>>),
    /// It was the last one: the hold is to be released.
    ToRelease(Arc<ActiveHold<W>>),
    /// It was the last one, and the hold had ended before; the keeper cleans up what was lost.
    Ended(Arc<ActiveHold<W>>),
}

impl<W: Successor> ActiveHold<W> {
    /// One share less; whether it was the last.
    fn unshare(&self) -> bool {
        self.shares.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// False when there is nothing to release any more. Reads no clock.
    fn begin_release(&self, keeper: &Keeper) -> bool {
        if !self.lease.begin_release() {
            return false;
        }
        keeper.strike_off(self);
        self.renewals.stop();
        self.releasing();
        self.timer.released();
        true
    }
}

impl<W: Successor> Drop for Share<W> {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if self.keeper.has_forked() {
            // It is the parent's, and so are its locks.
            return std::mem::forget(hold);
        }
        if hold.unshare() && hold.begin_release(&self.keeper) {
            self.keeper.push(hold.release_job());
        }
    }
}

/// What the lease calls when it is lost.
impl<W: Successor> Wake for ActiveHold<W> {
    fn wake(self: Arc<Self>) {
        if let Some(keeper) = self.keeper.upgrade() {
            keeper.lost(self);
        }
    }
}

impl<W: Successor> fmt::Debug for ActiveHold<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveHold")
            .field("name", &self.options.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
