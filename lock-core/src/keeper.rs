//! The background of a locker: it renews holds, notices losses, and does what nobody waits for. Wherever it runs, it moves
//! to a runtime that is driven.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use self::runner::{LONGEST_ROUND, Runner, Running};
use crate::clock::Lookout;
use crate::error::{Error, ErrorKind, Result};
use crate::held::{Held, Slot};
use crate::plant::{Plant, is_planted};
use crate::runtime;
use crate::sync::time::Instant;
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Notify, Ordering, RuntimeId};
use crate::work::{Task, Work};

mod runner;

#[derive(Debug)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    idle: Notify,
    /// The number of the runner in charge, or [`NOBODY`].
    in_charge: AtomicUsize,
    /// How many acquires, and releases that are waited for, are not over.
    acquiring: AtomicUsize,
    /// In which process it was made.
    process: u32,
}

const NOBODY: usize = 0;

#[derive(Debug, Default)]
struct State {
    timetable: BTreeMap<(Instant, u64), Arc<Held>>,
    /// When the runner in charge wakes by itself. It is left alone while it lies ahead, so that a pair of acquire and
    /// release wakes nobody.
    planned: Option<Instant>,
    lost: Vec<Arc<Held>>,
    work: VecDeque<Work>,
    lookout: Lookout,
    /// What is being done, to be done again if the runtime dies under it.
    under_way: HashMap<u64, Task>,
    /// Guards that may still leave work to the background.
    guards: usize,
    closed: bool,
    last_number: u64,
    /// One for each runtime that acquired and has not gone, the latest last.
    runners: Vec<Arc<Runner>>,
    last_runner: usize,
    /// How often the runner in charge has looked what is due.
    rounds: u64,
}

/// What the runner in charge has to do now.
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

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// How far the runner in charge has come, as the others see it.
#[derive(Clone, Copy, Debug)]
struct Look {
    rounds: u64,
    is_busy: bool,
}

impl Look {
    /// Whether the runner in charge had something to do all the time, and did nothing.
    fn is_stuck(before: Self, now: Self) -> bool {
        before.is_busy && now.is_busy && before.rounds == now.rounds
    }
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

    /// Puts the hold into the timetable, at no other time than this; false when it was struck off.
    fn schedule(&mut self, held: &Arc<Held>, due: Instant) -> bool {
        let mut slot = held.slot.lock();
        match *slot {
            Slot::Gone => return false,
            Slot::Due(due, number) => drop(self.timetable.remove(&(due, number))),
            Slot::None => {}
        }
        self.last_number += 1;
        *slot = Slot::Due(due, self.last_number);
        self.timetable.insert((due, self.last_number), held.clone());
        true
    }

    fn is_busy(&self) -> bool {
        !(self.lost.is_empty() && self.work.is_empty() && self.under_way.is_empty() && self.timetable.is_empty())
    }

    fn runner(&self, number: usize) -> Option<Arc<Runner>> {
        self.runners.iter().find(|runner| runner.number == number).cloned()
    }
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            idle: Notify::new(),
            in_charge: AtomicUsize::new(NOBODY),
            acquiring: AtomicUsize::new(0),
            process: std::process::id(),
        }
    }

    /// Sees to it that there is a runner on this runtime.
    ///
    /// # Errors
    /// Outside a runtime, on one that is shutting down, and in another process than that of its making.
    pub(crate) fn ensure_running(self: &Arc<Self>) -> Result<()> {
        self.check_process()?;
        let runtime = runtime::current()?;
        let Some(runner) = self.enlist(runtime.id()) else {
            return Ok(());
        };
        let running = Running {
            keeper: self.clone(),
            runner: runner.clone(),
        };
        runtime.spawn(running.run());
        // A runtime that is shutting down drops the task at once.
        match self.state.lock().runner(runner.number) {
            Some(_) => Ok(()),
            None => {
                let message = "the tokio runtime is shutting down: acquire and release before it does";
                Err(Error::new(ErrorKind::Unavailable, message).not_executed())
            }
        }
    }

    /// # Errors
    /// In another process than that of its making: its connections are the parent's, and its tasks did not come along.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.has_forked() {
            false => Ok(()),
            true => {
                let message = "this locker was made before the process forked: make one in the child process";
                Err(Error::new(ErrorKind::Misconfigured, message).not_executed())
            }
        }
    }

    fn has_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// A runner for this runtime, unless it has one. The first one is in charge.
    fn enlist(&self, runtime: RuntimeId) -> Option<Arc<Runner>> {
        let mut state = self.state.lock();
        if state.runners.iter().any(|runner| runner.runtime == runtime) {
            return None;
        }
        state.last_runner += 1;
        let runner = Arc::new(Runner {
            number: state.last_runner,
            runtime,
            wake: Notify::new(),
        });
        state.runners.push(runner.clone());
        // One that is in charge learns that it is watched.
        let in_charge = self.in_charge.load(Ordering::SeqCst);
        let former = state.runner(in_charge);
        if former.is_none() {
            self.in_charge.store(runner.number, Ordering::SeqCst);
        }
        drop(state);
        if let Some(former) = former {
            former.wake.notify_one();
        }
        Some(runner)
    }

    /// The runner's runtime has gone, or it is finished. Another one takes its place.
    fn retire(&self, runner: &Arc<Runner>) {
        let mut state = self.state.lock();
        state.runners.retain(|known| known.number != runner.number);
        let next = state.runners.last().cloned();
        if self.in_charge.load(Ordering::SeqCst) == runner.number {
            let number = next.as_ref().map_or(NOBODY, |next| next.number);
            self.in_charge.store(number, Ordering::SeqCst);
        }
        drop(state);
        if let Some(next) = next {
            next.wake.notify_one();
        }
    }

    /// The runner in charge is stuck.
    fn take_over(&self, number: usize) {
        let former = {
            let state = self.state.lock();
            let former = self.in_charge.swap(number, Ordering::SeqCst);
            state.runner(former)
        };
        // As soon as its runtime is driven, it lets go of what it was doing.
        if let Some(former) = former {
            former.wake.notify_one();
        }
    }

    fn is_in_charge(&self, number: usize) -> bool {
        self.in_charge.load(Ordering::SeqCst) == number
    }

    /// What an earlier runner was doing is done again by this one.
    fn resume(&self, number: usize) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let again = std::mem::take(&mut state.under_way);
        state.work.extend(again.into_values().map(Work::again));
        let renewing = state.timetable.values().filter(|held| held.is_renewing());
        let renewing: Vec<_> = renewing.filter(|held| !held.is_renewed_by(number)).cloned().collect();
        for held in renewing {
            state.schedule(&held, now);
        }
        state.planned = None;
    }

    fn look(&self) -> Look {
        let state = self.state.lock();
        Look {
            rounds: state.rounds,
            is_busy: state.is_busy(),
        }
    }

    /// Looks after a new hold, or after one that was just looked after, at that time.
    pub(crate) fn schedule(&self, held: &Arc<Held>, due: Instant) {
        let mut state = self.state.lock();
        if state.schedule(held, due) && state.planned.is_none_or(|planned| due < planned) {
            state.planned = Some(due);
            self.wake(state);
        }
    }

    /// Looks after the hold no more.
    pub(crate) fn strike_off(&self, held: &Held) {
        self.state.lock().strike_off(held);
    }

    /// The hold's lease says that it was lost.
    pub(crate) fn lost(&self, held: Arc<Held>) {
        let mut state = self.state.lock();
        state.lost.push(held);
        self.wake(state);
    }

    /// Does this in the background. Safe to call anywhere: without a runtime it waits for the next one.
    pub(crate) fn push(&self, work: Work) {
        let mut state = self.state.lock();
        state.work.push_back(work);
        self.wake(state);
    }

    /// Has the runner in charge look what is due.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let runner = state.runner(self.in_charge.load(Ordering::SeqCst));
        drop(state);
        if let Some(runner) = runner {
            runner.wake.notify_one();
        }
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

    /// Ends the runners once the last hold has ended and all is done.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(state);
    }

    /// Keeps the runners from ending for as long as the value lives.
    pub(crate) fn kept(self: &Arc<Self>) -> Kept {
        self.state.lock().guards += 1;
        Kept(self.clone())
    }

    /// Whether nothing will ever be due again.
    fn is_finished(&self) -> bool {
        let state = self.state.lock();
        self.has_forked() || state.closed && state.guards == 0 && !state.is_busy()
    }

    fn due(&self) -> Due {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.rounds += 1;
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
        let is_watched = state.runners.len() > 1 && (state.is_busy() || !holds.is_empty());
        let round = is_watched.then(|| now + LONGEST_ROUND);
        Due {
            holds,
            lost,
            stale,
            work,
            next: earliest(state.planned.map(Lookout::next), round),
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
        if state.closed && state.guards == 0 {
            self.0.wake(state);
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
