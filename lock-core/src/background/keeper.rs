//! The background work of a locker: it renews holds, notices losses, and finishes requests that no caller waits for.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::job::Job;
use super::schedule::{Schedule, ScheduledHold};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{Mutant, is_active};
use crate::own_hold::OwnHold;
use crate::sync::time::Instant;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Notify, Ordering, RuntimeId};
use crate::time::SuspendDetector;

/// While there are other runners, the one in charge looks what is due at least this often.
const LONGEST_ROUND: Duration = Duration::from_millis(250);

#[cfg(test)]
thread_local! {
    /// How often this thread has looked in which process it is.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[derive(Debug)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    idle: Notify,
    /// The number of the runner in charge, or [`NOBODY`].
    in_charge: AtomicUsize,
    /// The number of acquires, and of releases that a caller waits for, that are not over.
    in_flight: AtomicUsize,
    /// Guards that may still leave work to the background.
    guards: AtomicUsize,
    closed: AtomicBool,
    /// In which process it was made.
    pub(crate) process: u32,
}

const NOBODY: usize = 0;

#[derive(Debug, Default)]
struct State {
    schedule: Schedule,
    /// The moment when the runner in charge wakes by itself. An earlier deadline wakes it; a later one does not, so
    /// that a pair of acquire and release wakes nobody.
    planned: Option<Instant>,
    lost: Vec<Arc<dyn ScheduledHold>>,
    jobs: VecDeque<Box<dyn Job>>,
    suspend_detector: SuspendDetector,
    /// The jobs under way. If their runtime dies, another runner repeats them.
    under_way: HashMap<u64, Box<dyn Job>>,
    last_job: u64,
    /// One for each runtime that acquired and has not gone, the latest last.
    runners: Vec<Arc<Runner>>,
    last_runner: usize,
    /// The number of times that the runner in charge has looked for due work.
    rounds: u64,
    /// The moment when it looks again by itself, and whether it was woken since it last looked.
    looks_again: Option<Instant>,
    woken: bool,
}

/// The keeper's task on one runtime.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) number: usize,
    pub(super) wake: Notify,
    runtime: RuntimeId,
}

/// The work of the runner in charge, at one moment.
pub(super) struct Due {
    pub(super) holds: Vec<Arc<dyn ScheduledHold>>,
    pub(super) lost: Vec<Arc<dyn ScheduledHold>>,
    /// Lost, but released before that: to be dropped outside the lock, like all that may end a backend.
    pub(super) stale: Vec<Arc<dyn ScheduledHold>>,
    pub(super) jobs: Vec<(u64, Box<dyn Job>)>,
    /// The moment to look again.
    pub(super) next: Option<Instant>,
    /// Whether the machine was suspended before, so that all timers are late.
    pub(super) resumed: bool,
    pub(super) finished: bool,
}

/// The progress of the runner in charge, as the other runners see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    rounds: u64,
    is_awaited: bool,
}

impl Look {
    /// Whether work awaited the runner in charge at both moments, and it did not look in between.
    pub(super) fn is_stuck(before: Self, now: Self) -> bool {
        before.is_awaited && now.is_awaited && before.rounds == now.rounds
    }
}

impl State {
    fn is_busy(&self) -> bool {
        !(self.lost.is_empty() && self.jobs.is_empty() && self.under_way.is_empty() && self.schedule.is_empty())
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
            in_flight: AtomicUsize::new(0),
            guards: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            process: std::process::id(),
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

    /// Whether this is a fork of the process that made the keeper. Its mutexes must not be locked there: a thread of
    /// the parent, which the child does not have, may hold them.
    pub(crate) fn has_forked(&self) -> bool {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        std::process::id() != self.process
    }

    /// Has a hold checked at that time: a new one, or one that was just checked.
    pub(crate) fn schedule(&self, hold: &Arc<dyn ScheduledHold>, due: Instant) {
        let mut state = self.state.lock();
        if state.schedule.put(hold, due) && state.planned.is_none_or(|planned| due < planned) {
            state.planned = Some(due);
            self.wake(state);
        }
    }

    /// The holds of this process. They are dropped outside the mutex.
    pub(crate) fn holds(&self) -> Vec<OwnHold> {
        let holds = self.state.lock().schedule.all();
        holds.iter().filter_map(|hold| hold.own()).collect()
    }

    /// Looks after the hold no more.
    pub(crate) fn strike_off(&self, hold: &dyn ScheduledHold) {
        self.state.lock().schedule.strike_off(hold);
    }

    /// The hold's lease says that it was lost.
    pub(crate) fn lost(&self, hold: Arc<dyn ScheduledHold>) {
        let mut state = self.state.lock();
        state.lost.push(hold);
        self.wake(state);
    }

    /// Does this in the background. Safe to call anywhere: without a runtime it waits for the next one.
    pub(crate) fn push(&self, job: Box<dyn Job>) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        self.wake(state);
    }

    /// Has the runner in charge look what is due.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        state.woken = true;
        let runner = state.runner(self.in_charge.load(Ordering::SeqCst));
        drop(state);
        if let Some(runner) = runner {
            runner.wake.notify_one();
        }
    }

    /// Counts an acquire, or a release that its caller waits for, for as long as the value lives.
    pub(crate) fn in_flight(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(self)
    }

    /// Keeps the runners from ending for as long as the value lives.
    pub(crate) fn keep(self: &Arc<Self>) -> KeeperRef {
        self.guards.fetch_add(1, Ordering::SeqCst);
        KeeperRef(self.clone())
    }

    /// Waits until nothing is left to do but to check holds.
    pub(crate) async fn drained(&self) {
        loop {
            if is_active(Mutant::LooksBeforeItListens) && self.pending() != (0, 0) {
                self.idle.notified().await;
            }
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending() == (0, 0) {
                return;
            }
            idle.await;
        }
    }

    /// The number of jobs that are not done yet, and that of acquires and releases that their callers have neither polled to
    /// the end nor dropped. The calls are counted first, since one that is dropped leaves its job before it is over.
    pub(crate) fn pending(&self) -> (usize, usize) {
        let calls = || self.in_flight.load(Ordering::SeqCst);
        let counted = (!is_active(Mutant::CountsJobsFirst)).then(calls);
        let state = self.state.lock();
        let jobs = state.lost.len() + state.jobs.len() + state.under_way.len();
        drop(state);
        (jobs, counted.unwrap_or_else(calls))
    }

    /// Ends the runners once the last hold has ended and all is done.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake(self.state.lock());
    }
}

/// For the runners.
impl Keeper {
    /// A runner for this runtime, unless it has one. The first one is in charge.
    pub(super) fn enlist(&self, runtime: RuntimeId) -> Option<Arc<Runner>> {
        let mut state = self.state.lock();
        if state.runners.iter().any(|runner| runner.runtime == runtime) {
            return None;
        }
        state.last_runner += 1;
        let runner = Arc::new(Runner {
            number: state.last_runner,
            wake: Notify::new(),
            runtime,
        });
        state.runners.push(runner.clone());
        match state.runner(self.in_charge.load(Ordering::SeqCst)) {
            // It learns that it is watched.
            Some(_) => self.wake(state),
            None => self.in_charge.store(runner.number, Ordering::SeqCst),
        }
        Some(runner)
    }

    pub(super) fn has_runner(&self, number: usize) -> bool {
        self.state.lock().runner(number).is_some()
    }

    /// The runner's runtime has gone, or it is finished. Another one takes its place.
    pub(super) fn retire(&self, runner: &Runner) {
        let mut state = self.state.lock();
        state.runners.retain(|known| known.number != runner.number);
        if self.in_charge.load(Ordering::SeqCst) == runner.number {
            let next = state.runners.last().map_or(NOBODY, |next| next.number);
            self.in_charge.store(next, Ordering::SeqCst);
        }
        self.wake(state);
    }

    /// Puts this runner in charge, in place of one that is stuck.
    pub(super) fn take_over(&self, number: usize) {
        let state = self.state.lock();
        let former = state.runner(self.in_charge.swap(number, Ordering::SeqCst));
        drop(state);
        // The former runner drops its work as soon as its runtime is driven.
        if let Some(former) = former {
            former.wake.notify_one();
        }
    }

    pub(super) fn is_in_charge(&self, number: usize) -> bool {
        self.in_charge.load(Ordering::SeqCst) == number
    }

    /// Begins the work of this runner, and repeats the jobs of an earlier one.
    pub(super) fn resume(&self, number: usize) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let again = std::mem::take(&mut state.under_way);
        state.jobs.extend(again.into_values());
        state.schedule.hasten(number, now);
        state.planned = None;
    }

    pub(super) fn look(&self) -> Look {
        let now = Instant::now();
        let state = self.state.lock();
        Look {
            rounds: state.rounds,
            is_awaited: state.woken || state.looks_again.is_some_and(|time| time <= now),
        }
    }

    /// Whether nothing can become due any more.
    pub(super) fn is_finished(&self) -> bool {
        self.has_forked() || self.is_left() && !self.state.lock().is_busy()
    }

    /// Whether nobody can leave work to the background any more.
    fn is_left(&self) -> bool {
        self.closed.load(Ordering::SeqCst) && self.guards.load(Ordering::SeqCst) == 0
    }

    /// Takes the work that is due for this runner; `None` if another one is in charge. One mutex covers both. If a
    /// runner took work after its successor had resumed, nobody would repeat that work.
    pub(super) fn due(&self, runner: usize) -> Option<Due> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if !self.is_in_charge(runner) && !is_active(Mutant::WorksWhenReplaced) {
            return None;
        }
        state.rounds += 1;
        state.woken = false;
        let resumed = state.suspend_detector.was_suspended();
        let holds = state.schedule.take_due((!resumed).then_some(now));
        // Kept while it lies ahead, also without holds: the next acquire is not to wake the task again.
        let first_due = state.schedule.first_due();
        state.planned = state.planned.filter(|planned| *planned > now).or(first_due);
        let (lost, stale): (Vec<_>, Vec<_>) = std::mem::take(&mut state.lost)
            .into_iter()
            .partition(|hold| state.schedule.strike_off(&**hold));
        // The server may hold the name for a while yet.
        let releases = lost.iter().map(|hold| hold.clone().release_job());
        state.jobs.extend(releases);
        let mut jobs = Vec::new();
        while let Some(job) = state.jobs.pop_front() {
            state.last_job += 1;
            let number = state.last_job;
            state.under_way.insert(number, job.restart());
            jobs.push((number, job));
        }
        let finished = self.is_left() && state.schedule.is_empty() && holds.is_empty();
        let is_watched = state.runners.len() > 1 && (state.is_busy() || !holds.is_empty());
        let planned = state.planned.map(SuspendDetector::next);
        let round = is_watched.then(|| now + LONGEST_ROUND);
        let next = planned.into_iter().chain(round).min();
        state.looks_again = next;
        Some(Due {
            holds,
            lost,
            stale,
            jobs,
            next,
            resumed,
            finished,
        })
    }

    pub(super) fn done(&self, job: u64) {
        // Dropped outside the lock: it may be the last that keeps a hold or a backend, whose drop may lose leases.
        let job = self.state.lock().under_way.remove(&job);
        drop(job);
        self.idle.notify_waiters();
    }
}

/// The keeper, for as long as a guard may need it.
#[derive(Debug)]
pub(crate) struct KeeperRef(Arc<Keeper>);

impl std::ops::Deref for KeeperRef {
    type Target = Arc<Keeper>;

    fn deref(&self) -> &Arc<Keeper> {
        &self.0
    }
}

impl Drop for KeeperRef {
    fn drop(&mut self) {
        self.0.guards.fetch_sub(1, Ordering::SeqCst);
        if self.0.is_left() && !self.0.has_forked() {
            self.0.wake(self.0.state.lock());
        }
    }
}

/// One acquire or release that is not over yet.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Keeper);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
