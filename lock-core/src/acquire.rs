//! One acquire, from the local queue to a share in a hold.

use std::pin::pin;

use tracing::Instrument;

use self::caller::{Caller, Wakeup};
use self::drive::{Driver, StopReason};
use self::pending::{Granted, PendingAcquire};
use self::shared::Shared;
use self::too_late::too_late;
use crate::backend::Mode;
use crate::background::runner::ensure_running_here;
use crate::error::Result;
use crate::hold::pass::Sequence;
use crate::hold::{ActiveHold, Share};
use crate::mutant::{Mutant, is_active};
use crate::observe;
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::last_word::LastWord;
use crate::queue::{Admission, Entry, Sharing};
use crate::sync::{Arc, oneshot};
use crate::time::{LeaseInstant, until};

mod at_server;
pub(crate) mod caller;
mod differing_limits;
mod drive;
mod pending;
mod refusals;
pub(crate) mod shared;
mod too_late;
pub(crate) mod upgrade;

/// Acquires a lock. `None` if it is taken and the caller asks once. The caller has just made `lock` by
/// `Locker::checked`, which refuses a forked process.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    lock: &CheckedLock,
    wait: WaitLimit,
) -> Result<Option<Share<Caller>>> {
    let acquiring = async {
        let mut timer = observe::AcquireTimer::begin();
        let result = run(shared, lock, wait).await;
        let token_of = |share: &Share<Caller>| share.hold().token();
        timer.ended(&lock.name, result.as_ref().map(|share| share.as_ref().map(token_of)));
        result
    };
    let span = observe::acquire_span(&lock.name, lock.options.label.as_deref());
    // Pinned in place: `instrument` would move it, and it is large.
    pin!(acquiring).instrument(span).await
}

async fn run(shared: &Arc<Shared>, lock: &CheckedLock, wait: WaitLimit) -> Result<Option<Share<Caller>>> {
    ensure_running_here(&shared.keeper)?;
    let _in_flight = shared.keeper.in_flight();
    // Hears of a close from here on.
    let closing = shared.closing.notified();
    shared.check_open()?;
    let deadline = wait.deadline(lock.limits.operation_timeout);
    let mut stopped = pin!(async {
        tokio::select! {
            biased;
            () = closing => StopReason::Failed(shared.shut_down()),
            () = until(deadline) => StopReason::TooLate,
        }
    });
    check_kept(shared, lock, wait, stopped.as_mut()).await?;
    let mut driver = Driver {
        shared,
        lock,
        verb: "acquired",
        wait,
        deadline,
        news: 0,
        stopped,
    };
    let wakeup = driver.enter().await?;
    shared.check_open()?;
    let mut pending = match wakeup {
        Wakeup::Turn(turn) => PendingAcquire::start((&shared.backend, &shared.keeper), lock, (wait, deadline), turn),
        Wakeup::Pending(pending) => *pending,
        Wakeup::Share(share) => {
            // The server may have become worse while this waited. The share that is dropped then is given back.
            let checked = shared.backend.check_required(lock.required.as_ref());
            checked.map_err(|error| error.about(&lock.name))?;
            return Ok(Some(share));
        }
        Wakeup::Busy => {
            let holder = shared.queues.holder(&lock.name, lock.options.mode.into());
            return driver.taken(holder).map(|_| None);
        }
        Wakeup::Failed(error) => return Err(error),
    };
    match driver.drive(&mut pending).await? {
        Some((hold, armed)) => Ok(Some(driver.accept(pending.granted(hold, &armed)?))),
        None => Ok(None),
    }
}

/// Refuses an acquire if the server is known not to keep a required guarantee. The backend connects again before that: it may have no
/// other reason to do so, and its server may be another one or have better settings by now.
async fn check_kept(
    shared: &Shared,
    lock: &CheckedLock,
    wait: WaitLimit,
    stopped: impl Future<Output = StopReason>,
) -> Result<()> {
    let backend = &shared.backend;
    let check = || {
        let checked = backend.check_required(lock.required.as_ref());
        checked.map_err(|error| error.about(&lock.name))
    };
    // If it was never reached, the grant is checked: connecting is a part of the acquire.
    if !backend.was_reached() || check().is_ok() {
        return Ok(());
    }
    tokio::select! {
        biased;
        () = backend.connect_again(|| check().is_ok()) => check(),
        stop = stopped => match stop {
            StopReason::Failed(error) => Err(error),
            StopReason::TooLate => check().and_then(|()| Err(too_late(lock, "acquired", wait, LastWord::Nothing))),
        },
    }
}

impl<F: Future<Output = StopReason>> Driver<'_, F> {
    /// Enters the local queue, and waits until it is woken.
    async fn enter(&mut self) -> Result<Wakeup> {
        let lock = self.lock;
        let entry = Entry {
            name: &lock.name,
            kind: lock.options.mode.into(),
            key: lock.options.reentry_key.as_ref(),
            is_patient: self.wait.is_patient(),
            deadline: self.deadline,
        };
        // They outlive the lock of the queue: each may be the last that keeps its hold.
        let mut held = Vec::new();
        let admission = self.shared.queues.enter(
            &entry,
            |hold, sharing| {
                let Some(hold) = hold.upgrade() else { return Ok(false) };
                let shared = match sharing {
                    Sharing::Reentry => hold.admit(&lock.options),
                    Sharing::Joining => Ok(hold.join(&lock.options)),
                };
                held.push(hold);
                shared
            },
            || self.in_line(),
        )?;
        if let Mode::Permits(permits) = lock.options.mode {
            self.shared.state_limit(&lock.name, permits.of());
        }
        match (admission, held.pop()) {
            (Admission::Turn(turn, news), _) => {
                self.news = news;
                Ok(Wakeup::Turn(turn))
            }
            (Admission::Waiting(receiver, news), _) => {
                observe::contended_in_process();
                self.news = news;
                self.sleep(receiver).await
            }
            // The last one that was asked.
            (Admission::Shared, Some(hold)) => Ok(Wakeup::Share(Share::of(hold, &self.shared.keeper))),
            (Admission::Shared | Admission::Busy, _) => {
                observe::contended_in_process();
                Ok(Wakeup::Busy)
            }
        }
    }

    /// This caller as it stands in the local queue.
    fn in_line(&self) -> (Caller, oneshot::Receiver<Wakeup>) {
        let (wakeup, receiver) = oneshot::channel();
        let caller = Caller {
            lock: self.lock.clone(),
            wait: self.wait,
            deadline: self.deadline,
            asked: LeaseInstant::now(),
            wakeup,
        };
        (caller, receiver)
    }

    /// Takes the grant. Another caller may have begun the request with another ttl or label: then the first renewal is
    /// sent at once, with this caller's ttl. The label stays: a queue entry at the server is worth more.
    fn accept(&self, granted: Granted) -> Share<Caller> {
        let (backend, keeper) = (&self.shared.backend, &self.shared.keeper);
        let Granted { grant, turn, as_asked } = granted;
        let place = (turn, Sequence::first());
        let hold = ActiveHold::new(grant, self.lock.clone(), backend, Arc::downgrade(keeper), place);
        let share = Share::begin(hold.clone(), keeper);
        if !as_asked {
            hold.renew_now();
        }
        share
    }

    /// Waits for the turn, or for another outcome of the entry in the local queue.
    async fn sleep(&mut self, mut receiver: oneshot::Receiver<Wakeup>) -> Result<Wakeup> {
        let stop = tokio::select! {
            biased;
            answer = &mut receiver => return answer.map_err(|_| self.shared.shut_down()),
            stop = &mut self.stopped => stop,
        };
        // The line forgets the server's last answer when its last waiter leaves. So the waiter stays until it has read
        // that answer.
        let _in_line = (!is_active(Mutant::LeavesBeforeTheLastWord)).then_some(receiver);
        let kind = self.lock.options.mode.into();
        let word = self.shared.queues.last_word(&self.lock.name, kind, self.since());
        self.stop(stop, word).map(|_| Wakeup::Busy)
    }
}

#[cfg(test)]
mod tests;
