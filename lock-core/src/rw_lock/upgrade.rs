//! One upgrade, from the first request to the grant that replaces the hold. It passes the local queue, as it passes the
//! server's: whoever waits there waits for the hold that it upgrades.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use crate::acquire::pending::Caller;
use crate::acquire::shared::Shared;
use crate::backend::options::LockOptions;
use crate::backend::request::{RequestControl, RequestOptions, Terms};
use crate::backend::{AcquireRequest, Armed, Attempt, Hold, Mode};
use crate::background::call::{BackendCall, pauses};
use crate::background::job::Job;
use crate::background::runner::ensure_running;
use crate::background::schedule::ScheduledHold;
use crate::background::undo::UndoJob;
use crate::background::undos::Undos;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{ActiveHold, Grant, Share};
use crate::lost::LostCause;
use crate::observe::{self, BackendRequest};
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::sync::Arc;
use crate::sync::time::Instant;
use crate::time::{until, within};

/// Makes an upgradable hold exclusive. False if others hold the name too, and the caller does not wait.
pub(crate) async fn upgrade(shared: &Arc<Shared>, share: &Share<Caller>, wait: WaitLimit) -> Result<bool> {
    ensure_running(&shared.keeper)?;
    let _in_flight = shared.keeper.in_flight();
    let closing = shared.closing.notified();
    tokio::pin!(closing);
    closing.as_mut().enable();
    shared.check_open()?;
    let hold = share.hold();
    let lock = &hold.lock;
    let limit = wait.time_limit(lock.limits.operation_timeout);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut upgrading = None;
    let stop = tokio::select! {
        biased;
        result = async {
            // One that was dropped before is undone first: the hold has one upgrade at a time.
            tokio::select! {
                biased;
                () = hold.renewals.upgrade_settled() => {}
                _ = hold.lease.ended() => {}
            }
            hold.check()?;
            match (hold.mode(), hold.upgradable()) {
                (Mode::Exclusive, _) => Ok(true),
                (_, Some(base)) => {
                    upgrading.insert(Upgrading::start(shared, hold, &base, wait, deadline)).drive().await
                }
                (_, None) => {
                    let message = "the guard was downgraded, and only reads: release it, and acquire an upgradable one";
                    Err(Error::new(ErrorKind::Misconfigured, message).with_name(&lock.name))
                }
            }
        } => return result,
        () = closing => shared.shut_down(),
        () = until(deadline) => too_late(lock, wait),
    };
    match upgrading {
        Some(upgrading) if stop.kind() != ErrorKind::ShutDown => upgrading.last_word(),
        _ => Err(stop),
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// An upgrade at the server. Dropped before it was granted, it is undone in the background, and the hold reads on.
struct Upgrading<'a> {
    shared: &'a Shared,
    hold: &'a Arc<ActiveHold<Caller>>,
    wait: WaitLimit,
    /// Its number among the upgrades of the hold; `None` once it is settled.
    number: Option<u64>,
    request: AcquireRequest,
    control: Option<RequestControl>,
    under_way: Option<BackendCall<Attempt>>,
    /// Whether the server may have anything of it.
    is_left: bool,
    /// Why the last attempt failed, if it did.
    failure: Option<Error>,
}

impl<'a> Upgrading<'a> {
    fn start(
        shared: &'a Shared,
        hold: &'a Arc<ActiveHold<Caller>>,
        base: &AcquireRequest,
        wait: WaitLimit,
        deadline: Option<Instant>,
    ) -> Self {
        let options = &hold.lock.options;
        // The lease goes on, and the server must not end the new hold before it, should the former one be extended.
        let rest = hold.lease.valid_for();
        let options = LockOptions {
            ttl: options.ttl.max(rest.saturating_add(rest / 9)),
            ..options.clone()
        };
        let (request, control) = RequestOptions::new(hold.lock.name.clone(), Terms::until(options, deadline))
            .replacing(base)
            .waits(wait.is_patient())
            .start();
        Self {
            shared,
            hold,
            wait,
            number: Some(hold.renewals.begin_upgrade()),
            request,
            control: Some(control),
            under_way: None,
            is_left: false,
            failure: None,
        }
    }

    /// Asks until the server grants it.
    async fn drive(&mut self) -> Result<bool> {
        let mut pauses = pauses(LONGEST_PAUSE);
        loop {
            let lease = self.hold.lease.clone();
            let attempt = tokio::select! {
                biased;
                attempt = self.attempt() => attempt,
                _ = lease.ended() => return Err(self.lost()),
            };
            let pause = match attempt {
                Ok(Attempt::Granted(hold, armed)) => {
                    self.shared.check_open()?;
                    return self.granted(hold, &armed).map(|()| true);
                }
                // The backend has given up, whatever the server would have said. The caller's time is up as well.
                Ok(Attempt::Busy(_)) if self.request.is_given_up() => {
                    lease.ended().await;
                    return Err(self.lost());
                }
                Ok(Attempt::Busy(busy)) => {
                    self.failure = None;
                    let pause = busy.ask_again.map(|pause| pause.max(SHORTEST_PAUSE));
                    self.request.note_busy(busy);
                    if !self.wait.is_patient() {
                        self.is_left = false;
                        return self.last_word();
                    }
                    pause
                }
                Err(error) if self.is_no_news(&error) => {
                    if self.request.last_busy().is_none() {
                        self.failure.get_or_insert(error.about(&self.hold.lock.name));
                    }
                    lease.ended().await;
                    return Err(self.lost());
                }
                // The server has ended the hold that was to be replaced, or our lease has ended meanwhile.
                Err(error) if error.is_lost() => return Err(self.lost()),
                Err(error) => {
                    let error = error.about(&self.hold.lock.name);
                    self.is_left &= !self.request.was_certainly_not_sent(&error);
                    if !self.wait.is_patient() || !error.is_retryable() {
                        return Err(error);
                    }
                    observe::acquire_failed(&self.hold.lock.name, &error);
                    self.request.forget_busy();
                    self.failure = Some(error);
                    None
                }
            };
            let pause = pause
                .or_else(|| pauses.next())
                .and_then(|pause| Instant::now().checked_add(pause));
            tokio::select! {
                biased;
                _ = lease.ended() => return Err(self.lost()),
                () = until(pause) => {}
            }
        }
    }

    /// Whether this only says that the request was given up.
    fn is_no_news(&self, error: &Error) -> bool {
        self.wait.is_patient() && self.request.is_given_up() && error.is_retryable()
    }

    /// Asks the server.
    async fn attempt(&mut self) -> Result<Attempt> {
        let (backend, request) = (self.shared.backend.lock.clone(), self.request.clone());
        self.is_left = true;
        // A future of its own, so that it can go on when its caller has gone.
        self.under_way = Some(BackendCall::new(async move {
            observe::requested(BackendRequest::Acquire);
            backend.acquire(&request).await
        }));
        poll_fn(|context| self.poll_attempt(context)).await
    }

    fn poll_attempt(&mut self, context: &mut Context<'_>) -> Poll<Result<Attempt>> {
        let Some(under_way) = &mut self.under_way else {
            return Poll::Pending;
        };
        let answer = under_way.poll(context);
        if answer.is_ready() {
            self.under_way = None;
        }
        answer
    }

    /// The hold is what was granted, from here on.
    fn granted(&mut self, hold: Arc<dyn Hold>, armed: &Armed) -> Result<()> {
        let grant = Grant::new(&self.request, hold, armed)?;
        let token = grant.token();
        if !self.number.is_some_and(|number| self.hold.replace(number, grant)) {
            return Err(self.lost());
        }
        self.number = None;
        observe::upgraded(&self.hold.lock.name, token);
        if self.hold.lease.is_suspect() {
            // Because of a renewal of the former hold, perhaps: the next one tells.
            self.renew_now();
        }
        Ok(())
    }

    fn renew_now(&self) {
        let scheduled: Arc<dyn ScheduledHold> = self.hold.clone();
        self.shared.keeper.schedule(&scheduled, Instant::now());
    }

    /// The hold that was to be upgraded has ended.
    fn lost(&self) -> Error {
        self.hold.lease.lose(LostCause::NotHeld);
        let ended = || Error::new(ErrorKind::Lost, "the hold was lost").with_name(&self.hold.lock.name);
        self.hold.check().err().map_or_else(ended, Error::from)
    }

    /// The result of an upgrade whose time is up: false to those who ask once, if others hold the name too.
    fn last_word(&self) -> Result<bool> {
        let lock = &self.hold.lock;
        let unreachable = self.request.unreachable().or(self.failure.clone());
        if let Some(cause) = unreachable {
            return Err(too_late(lock, self.wait).with_source(cause));
        }
        let Some(busy) = self.request.last_busy() else {
            return Err(too_late(lock, self.wait));
        };
        let message = match self.wait {
            WaitLimit::Once => return Ok(false),
            WaitLimit::Within(limit) => format!("not upgraded {}", within(limit)),
            _ => "not upgraded at once".to_owned(),
        };
        let error = Error::new(ErrorKind::TimedOut, message).with_name(&lock.name);
        Err(match busy.holder {
            Some(holder) => error.with_holder(holder),
            None => error,
        })
    }
}

/// The error of an upgrade that the server has not answered.
fn too_late(lock: &CheckedLock, wait: WaitLimit) -> Error {
    let limit = wait.time_limit(lock.limits.operation_timeout).unwrap_or_default();
    let message = format!(
        "the lock server did not answer {}: check that it is there",
        within(limit)
    );
    Error::new(ErrorKind::Unavailable, message).with_name(&lock.name)
}

impl Drop for Upgrading<'_> {
    fn drop(&mut self) {
        if self.shared.keeper.has_forked() {
            // It is the parent's, and so are its locks.
            return std::mem::forget((self.control.take(), self.under_way.take()));
        }
        let Some(number) = self.number else { return };
        drop(self.control.take());
        if !self.is_left {
            if self.hold.renewals.settle_upgrade(number) {
                self.renew_now();
            }
            return;
        }
        let backend = &self.shared.backend.lock;
        let undo = UndoJob::<Caller>::new(backend, self.request.clone(), self.under_way.take(), None);
        self.shared.keeper.push(Box::new(UndoUpgrade {
            undo: Box::new(undo),
            hold: self.hold.clone(),
            number,
        }));
    }
}

/// Undoes an upgrade at the server, which gives the hold that it may have replaced back. The hold is neither upgraded nor
/// released before that.
struct UndoUpgrade {
    undo: Box<dyn Job>,
    hold: Arc<ActiveHold<Caller>>,
    number: u64,
}

impl Job for UndoUpgrade {
    fn run(self: Box<Self>, undos: &Arc<Undos>) -> BoxFuture<'static, ()> {
        let undos = undos.clone();
        Box::pin(async move {
            let Self { undo, hold, number } = *self;
            // A panic leaves the outcome unknown. The hold is not to wait for an undo that has gone.
            let undone = AssertUnwindSafe(async { undo.run(&undos).await }).catch_unwind().await;
            if undone.is_err() {
                observe::job_panicked();
            }
            let was_denied = hold.renewals.settle_upgrade(number);
            if let Some(keeper) = hold.keeper.upgrade().filter(|_| was_denied) {
                // Replaced for a moment, or lost: the next renewal tells.
                let scheduled: Arc<dyn ScheduledHold> = hold;
                keeper.schedule(&scheduled, Instant::now());
            }
        })
    }

    fn restart(&self) -> Box<dyn Job> {
        Box::new(Self {
            undo: self.undo.restart(),
            hold: self.hold.clone(),
            number: self.number,
        })
    }
}

impl fmt::Debug for UndoUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndoUpgrade").field(&self.undo).finish()
    }
}
