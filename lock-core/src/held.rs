//! A hold as core keeps it: what guard, keeper and release share.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_fn};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::lease::HoldState;
use crate::backend::{Hold, Lease, Renewal};
use crate::error::{Error, ErrorKind, Lost, LostCause, Result};
use crate::keeper::Keeper;
use crate::name::LockName;
use crate::queue::{Progress, Turn};
use crate::sync::{Arc, AtomicBool, Mutex, Weak};
use crate::token::FencingToken;

pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) lease: Lease,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Duration,
    pub(crate) renewal: RenewalPlan,
    /// Weak, since the keeper's timetable holds this.
    pub(crate) keeper: Weak<Keeper>,
    /// The keeper's, changed under its lock alone.
    pub(crate) slot: Mutex<Slot>,
    /// The process's right to the name, until the hold has ended.
    turn: Mutex<Option<Turn>>,
    /// Whether a release was ever sent: its answer may have got lost with a runtime or in a panic.
    pub(crate) release_sent: AtomicBool,
    renewing: Mutex<Renewing>,
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

/// The renewal under way. It lives here and not in the keeper, so that a release can drop it on the spot.
#[derive(Default)]
struct Renewing {
    request: Option<BoxFuture<'static, Result<Renewal>>>,
    keeper: Option<Waker>,
    stopped: bool,
}

impl Held {
    /// A hold whose lease was armed.
    pub(crate) fn new(
        (hold, token, lease): (Arc<dyn Hold>, FencingToken, Lease),
        (name, ttl, renewal): (LockName, Duration, RenewalPlan),
        keeper: Weak<Keeper>,
        turn: Turn,
    ) -> Arc<Self> {
        let turn = Mutex::new(Some(turn));
        let (slot, renewing) = (Mutex::default(), Mutex::default());
        let held = Arc::new(Self {
            name,
            hold,
            lease,
            token,
            ttl,
            renewal,
            keeper,
            slot,
            turn,
            release_sent: AtomicBool::new(false),
            renewing,
        });
        held.lease.tell_of_loss(Waker::from(held.clone()));
        held
    }

    /// When the keeper is to look after the hold next, if its last renewal was asked for at `asked`.
    pub(crate) fn due_after(&self, asked: Instant) -> Instant {
        match self.renewal {
            RenewalPlan::PerHold => asked
                .checked_add(self.ttl / 3)
                .map_or(self.end(), |due| due.min(self.end())),
            RenewalPlan::BySession | RenewalPlan::Fixed => self.end(),
        }
    }

    /// When belief in the hold ends, as of now.
    pub(crate) fn end(&self) -> Instant {
        self.lease.end().expect("only an armed lease makes a hold")
    }

    /// Renews once. What the server says goes to the lease; an error or no answer makes the hold suspect.
    ///
    /// Says when to look after the hold next.
    pub(crate) async fn renew(self: Arc<Self>) -> Instant {
        let asked = Instant::now();
        let (hold, ttl) = (self.hold.clone(), self.ttl);
        {
            let mut renewing = self.renewing.lock();
            if renewing.stopped {
                return asked;
            }
            renewing.request = Some(Box::pin(async move { hold.renew(ttl).await }));
        }
        match timeout(ttl / 6, poll_fn(|context| self.poll_renewal(context))).await {
            Ok(None) => {}
            Ok(Some(Ok(Renewal::Renewed(_)))) => return self.due_after(asked),
            Ok(Some(Ok(Renewal::Lost))) => self.lease.lose(LostCause::NotHeld),
            Ok(Some(Err(error))) => {
                tracing::debug!(name = %self.name, %error, "renewal failed");
                self.lease.suspect();
                return self.due_after(asked).min(Instant::now() + ttl / 12);
            }
            Err(_unanswered) => {
                tracing::debug!(name = %self.name, "renewal unanswered");
                self.renewing.lock().request = None;
                self.lease.suspect();
            }
        }
        Instant::now()
    }

    /// `None` when the release has begun.
    fn poll_renewal(&self, context: &mut Context<'_>) -> Poll<Option<Result<Renewal>>> {
        let mut renewing = self.renewing.lock();
        let Some(request) = &mut renewing.request else {
            return Poll::Ready(None);
        };
        match Pin::new(request).poll(context) {
            Poll::Ready(answer) => {
                renewing.request = None;
                Poll::Ready(Some(answer))
            }
            Poll::Pending => {
                renewing.keeper = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// From here on no renewal is sent. Safe to call anywhere: it reads no clock.
    pub(crate) fn stop_renewal(&self) {
        let (request, keeper) = {
            let mut renewing = self.renewing.lock();
            renewing.stopped = true;
            (renewing.request.take(), renewing.keeper.take())
        };
        drop(request);
        if let Some(keeper) = keeper {
            keeper.wake();
        }
    }

    /// Keeps the hold for at least `ttl` from now, if that is answered in time.
    pub(crate) async fn extend(&self, ttl: Duration, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            answer = self.hold.renew(ttl) => match answer {
                Ok(Renewal::Renewed(_)) => return Ok(()),
                Ok(Renewal::Lost) => self.lease.lose(LostCause::NotHeld),
                Err(error) => {
                    self.lease.suspect();
                    self.check()?;
                    return Err(error.about(&self.name));
                }
            },
            _ = self.lease.ended() => {}
            () = sleep(limit) => {
                self.lease.suspect();
                let message = format!("the extension was not answered within {limit:?}");
                return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.name));
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

    pub(crate) fn progress(&self, progress: Progress) {
        if let Some(turn) = &*self.turn.lock() {
            turn.progress(progress);
        }
    }

    pub(crate) fn take_turn(&self) -> Option<Turn> {
        self.turn.lock().take()
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
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
