//! The one background task of a locker: it renews holds, notices losses, and does what nobody waits for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::clock::Lookout;
use crate::error::{Error, ErrorKind, Result};
use crate::held::{Held, RenewalPlan, Slot};
use crate::observe;
use crate::plant::{Plant, is_planted};
use crate::queue::Progress;
use crate::sync::time::Instant;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Handle, Mutex, Notify, Ordering};
use crate::work::{Task, Work, until};

#[derive(Debug, Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    wake: Notify,
    idle: Notify,
    running: AtomicBool,
    /// How many acquires, and releases that are waited for, are not over.
    acquiring: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    timetable: BTreeMap<(Instant, u64), Arc<Held>>,
    /// When the task wakes by itself. It is left alone while it lies ahead, so that a pair of acquire and release
    /// wakes nobody.
    planned: Option<Instant>,
    lost: Vec<Arc<Held>>,
    work: VecDeque<Work>,
    lookout: Lookout,
    /// What is being done, to be done again if the runtime dies under it.
    under_way: HashMap<u64, Task>,
    /// Guards that may still leave work to the background.
    guards: usize,
    closed: bool,
    /// Where acquires came from, the latest last: when the task's runtime goes, it moves on.
    runtimes: Vec<Handle>,
    last_number: u64,
}

/// What the task has to do now.
struct Due {
    holds: Vec<Arc<Held>>,
    lost: Vec<Arc<Held>>,
    /// Lost, but released before that: to be dropped outside the lock, like all that may end a backend.
    stale: Vec<Arc<Held>>,
    work: Vec<(u64, Work)>,
    /// When to look again.
    next: Option<Instant>,
    /// Whether the machine was suspended before, so that all timers are late.
    resumed: bool,
    finished: bool,
}

impl State {
    /// False when the hold was struck off already.
    fn strike_off(&mut self, held: &Held) -> bool {
        match std::mem::replace(&mut *held.slot.lock(), Slot::Gone) {
            Slot::Due(due, number) => drop(self.timetable.remove(&(due, number))),
            Slot::None => {}
            Slot::Gone => return false,
        }
        true
    }
}

impl Keeper {
    /// Sees to it that the task runs, on this runtime if its own has gone.
    pub(crate) fn ensure_running(self: &Arc<Self>) -> Result<()> {
        let runtime = runtime()?;
        {
            let mut state = self.state.lock();
            if state.runtimes.last().is_none_or(|last| last.id() != runtime.id()) {
                state.runtimes.retain(|known| known.id() != runtime.id());
                state.runtimes.push(runtime.clone());
                if state.runtimes.len() > 2 {
                    state.runtimes.remove(0);
                }
            }
        }
        self.start_on(&runtime);
        Ok(())
    }

    fn start_on(self: &Arc<Self>, runtime: &Handle) {
        if !self.running.swap(true, Ordering::SeqCst) {
            let running = Running(self.clone(), runtime.clone());
            runtime.spawn(async move { running.0.run().await });
        }
    }

    /// Looks after a new hold, or after one that was just looked after, at that time.
    pub(crate) fn schedule(&self, held: &Arc<Held>, due: Instant) {
        let mut state = self.state.lock();
        let mut slot = held.slot.lock();
        if *slot == Slot::Gone {
            return;
        }
        if let Slot::Due(due, number) = *slot {
            state.timetable.remove(&(due, number));
        }
        state.last_number += 1;
        let key = (due, state.last_number);
        *slot = Slot::Due(key.0, key.1);
        state.timetable.insert(key, held.clone());
        let sooner = state.planned.is_none_or(|planned| due < planned);
        if sooner {
            state.planned = Some(due);
            drop(slot);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Looks after the hold no more.
    pub(crate) fn strike_off(&self, held: &Held) {
        self.state.lock().strike_off(held);
    }

    /// The hold's lease says that it was lost.
    pub(crate) fn lost(&self, held: Arc<Held>) {
        self.state.lock().lost.push(held);
        self.wake.notify_one();
    }

    /// Does this in the background. Safe to call anywhere: without a runtime it waits for the next one.
    pub(crate) fn push(&self, work: Work) {
        self.state.lock().work.push_back(work);
        self.wake.notify_one();
    }

    /// Counts an acquire, or a release that its caller waits for, for as long as the value lives.
    pub(crate) fn acquiring(self: &Arc<Self>) -> Acquiring {
        self.acquiring.fetch_add(1, Ordering::SeqCst);
        Acquiring(self.clone())
    }

    /// Waits until nothing is left to do but to look after holds.
    pub(crate) async fn drained(&self) {
        loop {
            if is_planted(Plant::LooksBeforeItListens) && self.pending() > 0 {
                self.idle.notified().await;
            }
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// How many pieces of work and acquires are not done yet.
    pub(crate) fn pending(&self) -> usize {
        let state = self.state.lock();
        state.lost.len() + state.work.len() + state.under_way.len() + self.acquiring.load(Ordering::SeqCst)
    }

    /// Ends the task once the last hold has ended and all is done.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Keeps the task from ending for as long as the value lives.
    pub(crate) fn kept(self: &Arc<Self>) -> Kept {
        self.state.lock().guards += 1;
        Kept(self.clone())
    }

    async fn run(&self) {
        let mut renewals: FuturesUnordered<BoxFuture<'static, (Arc<Held>, Instant)>> = FuturesUnordered::new();
        let mut under_way: FuturesUnordered<BoxFuture<'static, u64>> = FuturesUnordered::new();
        loop {
            let due = self.due();
            drop(due.stale);
            for held in due.holds {
                if due.resumed {
                    held.lease.look_again();
                }
                if !held.lease.is_live() {
                    continue; // its lease has just told us
                }
                // A renewal is over by then. If it died with its runtime, it is made anew.
                self.schedule(&held, held.due_after(Instant::now()));
                if held.renewal == RenewalPlan::PerHold && !(due.resumed && held.is_renewing()) {
                    renewals.push(Box::pin(renew(held)));
                }
            }
            for held in due.lost {
                held.stop_renewal();
                held.progress(Progress::Releasing);
                held.holding.lost(&held.plan.name, held.token, &held.lease.state());
            }
            for (number, work) in due.work {
                under_way.push(Box::pin(finish(number, work)));
            }
            if due.finished && renewals.is_empty() && under_way.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                Some((held, next)) = renewals.next() => self.schedule(&held, next),
                Some(number) = under_way.next() => self.done(number),
                () = self.wake.notified() => {}
                () = until(due.next) => {}
            }
        }
    }

    fn due(&self) -> Due {
        let now = Instant::now();
        let mut state = self.state.lock();
        let resumed = state.lookout.was_suspended();
        let later = match resumed {
            true => BTreeMap::new(),
            false => state.timetable.split_off(&(now + Duration::from_nanos(1), 0)),
        };
        let holds: Vec<_> = std::mem::replace(&mut state.timetable, later).into_values().collect();
        for held in &holds {
            *held.slot.lock() = Slot::None;
        }
        // Kept while it lies ahead, also without holds: the next acquire is not to wake the task again.
        let first_due = state.timetable.keys().next().map(|(due, _)| *due);
        state.planned = state.planned.filter(|planned| *planned > now).or(first_due);
        let lost = std::mem::take(&mut state.lost);
        let (lost, stale): (Vec<_>, Vec<_>) = lost.into_iter().partition(|held| state.strike_off(held));
        // The server may hold the name for a while yet.
        state.work.extend(lost.iter().cloned().map(Work::release));
        let mut work = Vec::new();
        while let Some(next) = state.work.pop_front() {
            state.last_number += 1;
            let number = state.last_number;
            state.under_way.insert(number, next.task());
            work.push((number, next));
        }
        let finished = state.closed && state.guards == 0 && state.timetable.is_empty() && holds.is_empty();
        Due {
            holds,
            lost,
            stale,
            work,
            next: state.planned.map(Lookout::next),
            resumed,
            finished,
        }
    }

    fn done(&self, number: u64) {
        // Dropped outside the lock: it may be the last that keeps a hold or a backend, whose drop may lose leases.
        let task = self.state.lock().under_way.remove(&number);
        drop(task);
        self.idle.notify_waiters();
    }
}

/// The runtime that we run on: timers panic without one.
pub(crate) fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|error| {
        let message = "locks need a tokio runtime: call this from a task, or within Runtime::block_on";
        Error::new(ErrorKind::Misconfigured, message).with_source(error)
    })
}

async fn renew(held: Arc<Held>) -> (Arc<Held>, Instant) {
    let next = AssertUnwindSafe(held.clone().renew()).catch_unwind().await;
    let next = next.unwrap_or_else(|_| {
        observe::renewal_panicked(&held.plan.name);
        held.lease.suspect();
        held.due_after(Instant::now())
    });
    (held, next)
}

async fn finish(number: u64, work: Work) -> u64 {
    if AssertUnwindSafe(work.finish()).catch_unwind().await.is_err() {
        observe::work_panicked();
    }
    number
}

/// The task is alive as long as this is: a runtime that goes drops it.
struct Running(Arc<Keeper>, Handle);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let again = std::mem::take(&mut state.under_way);
        state.work.extend(again.into_values().map(Work::again));
        state.runtimes.retain(|known| known.id() != self.1.id());
        let finished = state.closed && state.guards == 0;
        drop(state);
        self.0.running.store(false, Ordering::SeqCst);
        // One that has gone, too, drops the task at once, and that brings us here again.
        let next = self.0.state.lock().runtimes.last().cloned().filter(|_| !finished);
        if let Some(next) = next {
            self.0.start_on(&next);
        }
    }
}

/// The keeper, for as long as a guard may need it.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Keeper>);

impl std::ops::Deref for Kept {
    type Target = Arc<Keeper>;

    fn deref(&self) -> &Arc<Keeper> {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.guards -= 1;
        let last = state.closed && state.guards == 0;
        drop(state);
        if last {
            self.0.wake.notify_one();
        }
    }
}

/// One acquire or release that is not over yet.
#[derive(Debug)]
pub(crate) struct Acquiring(Arc<Keeper>);

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.0.acquiring.fetch_sub(1, Ordering::SeqCst);
        self.0.idle.notify_waiters();
    }
}
