//! Runs a race in many schedules.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::races::{Mutant, activate, begin, pass};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use shuttle::future::{JoinError, JoinHandle, block_on, yield_now};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, Runner};

/// How many schedules a race is tried in. More of them: `RACES_SCHEDULES=100000`.
const SCHEDULES: u64 = 2_000;
/// In how many a mutant is looked for. Most are found in the first hundreds.
const MOST_SCHEDULES: u64 = 10_000;

/// No schedule of the race goes wrong.
pub(crate) fn goes_well<F: Future<Output = ()> + 'static>(race: fn() -> F) {
    let schedules = match std::env::var("RACES_SCHEDULES") {
        Ok(number) => number.parse().expect("RACES_SCHEDULES is a number"),
        Err(_) => SCHEDULES,
    };
    if let Some(seed) = find(race, None, 0..schedules) {
        panic!("the schedule of seed {seed} goes wrong");
    }
}

/// With this mutant, some schedule of the race goes wrong.
pub(crate) fn is_found<F: Future<Output = ()> + 'static>(mutant: Mutant, race: fn() -> F) {
    let Some(seed) = find(race, Some(mutant), 0..MOST_SCHEDULES) else {
        panic!("{mutant:?} is not found by any of {MOST_SCHEDULES} seeds");
    };
    // Any panic is a find, so the mutant has to be its reason.
    let without = find(race, None, seed..seed + 1);
    assert_eq!(
        without, None,
        "the schedule of seed {seed} goes wrong without {mutant:?}"
    );
}

/// What the task comes to; time goes on meanwhile, by seconds, but not for as long as a hold may live.
pub(crate) async fn soon<T>(task: JoinHandle<T>) -> Result<T, JoinError> {
    for _ in 0..5 {
        for _ in 0..200 {
            if task.is_finished() {
                return task.await;
            }
            yield_now().await;
        }
        pass(Duration::from_secs(1));
    }
    panic!("nobody woke the task, or took back what another one had left");
}

/// The first seed whose schedule goes wrong.
fn find<F: Future<Output = ()> + 'static>(race: fn() -> F, mutant: Option<Mutant>, seeds: Range<u64>) -> Option<u64> {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let current = Arc::default();
    let scheduler = Bursts {
        seeds,
        current: Arc::clone(&current),
        random: StdRng::seed_from_u64(0),
        mean: 1,
    };
    let run = || {
        Runner::new(scheduler, config).run(move || {
            begin();
            activate(mutant);
            block_on(async {
                race().await;
                // Shuttle drops the tasks that are left, and they must not wait for each other's locks then.
                for _ in 0..100 {
                    yield_now().await;
                }
            });
        })
    };
    let failed = catch_unwind(AssertUnwindSafe(run)).is_err();
    failed.then(|| current.load(Ordering::SeqCst))
}

/// Lets one task run for a while and then any other: many races need one to stop at a certain point, and the others to
/// come far. How far is another matter in each schedule.
struct Bursts {
    seeds: Range<u64>,
    current: Arc<AtomicU64>,
    random: StdRng,
    /// How many steps a task goes on for in the mean.
    mean: u32,
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next()?;
        self.current.store(seed, Ordering::SeqCst);
        self.random = StdRng::seed_from_u64(seed);
        self.mean = *[1, 4, 16, 64].choose(&mut self.random)?;
        Some(Schedule::new(seed))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let goes_on = |task: &&&Task| Some(task.id()) == current;
        if !is_yielding
            && self.random.random_range(0..self.mean) > 0
            && let Some(task) = runnable.iter().find(goes_on)
        {
            return Some(task.id());
        }
        runnable.choose(&mut self.random).map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
