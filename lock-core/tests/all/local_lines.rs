//! The lines of readers and of permits, through whatever callers do, against a model of them and of the server's queue: who
//! holds with whom, who waits, and who waits at the server. On paused time, each step to its end.
//!
//! The cases are the same each time; others: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::backend::{Mode, Permits};
use lock_core::{Guard, Lock, Locker, MemoryBackend, Result};
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::model::{Model, limit};
use crate::local_queue::check;

mod model;

/// How many may join a shared hold.
const JOINS: u32 = 2;

/// The limit of the semaphore.
const LIMIT: u32 = 3;

/// What each step takes at least, in milliseconds, as all times here.
const STEP: u64 = 100;

const TTL: u64 = 9 * STEP;

/// As many requests for permits as a process has at the server.
const MOST_HERE: usize = 16;

#[derive(Clone, Debug)]
enum Step {
    /// A caller of this process comes.
    Enter { take: u32, patience: Patience },
    /// Another process comes, for the same or to be alone.
    EnterElsewhere { take: Option<u32> },
    /// One of those who wait gives up, here or elsewhere.
    Leave(Index),
    /// One of those who hold releases, here or elsewhere.
    Release(Index),
    /// Time passes.
    Pass(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Patience {
    Once,
    /// So many steps and a bit: nobody's time is up in the moment of a step, nor in that of another's.
    Within(u64),
    Forever,
}

fn step() -> impl Strategy<Value = Step> {
    let patience = prop_oneof![
        2 => Just(Patience::Once),
        3 => (0..10_u64).prop_map(Patience::Within),
        4 => Just(Patience::Forever),
    ];
    prop_oneof![
        5 => (1..=LIMIT, patience).prop_map(|(take, patience)| Step::Enter { take, patience }),
        2 => proptest::option::of(1..=LIMIT).prop_map(|take| Step::EnterElsewhere { take }),
        2 => any::<Index>().prop_map(Step::Leave),
        5 => any::<Index>().prop_map(Step::Release),
        1 => (1..5_u64).prop_map(|steps| Step::Pass(STEP * steps)),
    ]
}

/// Which line of this process is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Line {
    Readers,
    Permits,
}

impl Line {
    fn mode(self, take: u32) -> Mode {
        match self {
            Self::Readers => Mode::Shared,
            Self::Permits => Mode::Permits(Permits::new(take, LIMIT).unwrap()),
        }
    }

    fn lock(self, locks: &Locker, take: Option<u32>) -> Lock {
        match (self, take) {
            (_, None) => locks.lock("a"),
            (Self::Readers, Some(_)) => locks.rw_lock("a").read(),
            (Self::Permits, Some(take)) => locks.semaphore("a", LIMIT).permits(take),
        }
    }
}

/// What is.
struct Real {
    server: MemoryBackend,
    locks: Locker,
    waiting: BTreeMap<usize, JoinHandle<Result<Option<Guard>>>>,
    holding: BTreeMap<usize, Guard>,
}

impl Real {
    fn new() -> Self {
        let server = MemoryBackend::new();
        let locks = Locker::new(server.clone()).with_passes(JOINS);
        Self {
            locks: locks.with_ttl(Duration::from_millis(TTL)),
            server,
            waiting: BTreeMap::new(),
            holding: BTreeMap::new(),
        }
    }

    fn enter(&mut self, id: usize, lock: Lock, patience: Patience) {
        let limit = Duration::from_millis(limit(id, patience));
        let acquire = async move {
            match patience {
                Patience::Once => lock.try_acquire().await,
                Patience::Within(_) => lock.acquire_within(limit).await.map(Some),
                Patience::Forever => lock.acquire().await.map(Some),
            }
        };
        self.waiting.insert(id, tokio::spawn(acquire));
    }

    /// Lets everybody come as far as they can.
    #[allow(clippy::incompatible_msrv, reason = "tests may need a newer Rust than users do")]
    async fn settle(&mut self, time: u64) {
        // Time passes when nobody has anything to do.
        sleep(Duration::from_millis(time)).await;
        let done: Vec<_> = self.waiting.extract_if(.., |_, task| task.is_finished()).collect();
        for (id, task) in done {
            match task.await.unwrap() {
                Ok(Some(guard)) => drop(self.holding.insert(id, guard)),
                Ok(None) => {}
                Err(error) => assert!(error.is_timed_out(), "{error}"),
            }
        }
    }

    /// Who holds together, and how many hold and wait at the server.
    async fn seen(&self) -> (BTreeSet<BTreeSet<usize>>, usize, Option<usize>) {
        let mut holds: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
        for (id, guard) in &self.holding {
            guard.check().unwrap();
            holds.entry(guard.token()).or_default().insert(*id);
        }
        let status = self.locks.status("a").await.unwrap();
        (holds.into_values().collect(), status.holders.len(), status.waiting)
    }
}

fn pick(of: &BTreeSet<usize>, index: Index) -> Option<usize> {
    (!of.is_empty()).then(|| *index.get(&of.iter().copied().collect::<Vec<_>>()))
}

async fn run(line: Line, steps: &[Step]) {
    let (mut model, mut real) = (Model::new(line), Real::new());
    let mut here = 0;
    for (id, step) in steps.iter().enumerate() {
        let mut time = STEP;
        match step {
            Step::Enter { .. } if here == MOST_HERE => {}
            Step::Enter { take, patience } => {
                here += 1;
                real.enter(id, line.lock(&real.locks, Some(*take)), *patience);
                model.come(id, *take, *patience);
            }
            Step::EnterElsewhere { take } => {
                let lock = line.lock(&Locker::new(real.server.clone()), *take);
                real.enter(id, lock, Patience::Forever);
                model.come_elsewhere(id, *take);
            }
            Step::Leave(index) => {
                if let Some(leaving) = pick(&model.all_waiting(), *index) {
                    real.waiting.remove(&leaving).expect("as the model says").abort();
                    model.leave(leaving);
                }
            }
            Step::Release(index) => {
                if let Some(releasing) = pick(&model.holding(), *index) {
                    let guard = real.holding.remove(&releasing).expect("as the model says");
                    guard.release().await.unwrap();
                    model.release(releasing);
                }
            }
            Step::Pass(passing) => time = *passing,
        }
        real.settle(time).await;
        model.pass(time);
        let waiting: BTreeSet<_> = real.waiting.keys().copied().collect();
        let holds: BTreeSet<_> = model.holds.iter().map(|hold| hold.members.clone()).collect();
        assert_eq!(
            (real.seen().await, waiting),
            ((holds, model.holds.len(), Some(model.queue.len())), model.all_waiting()),
            "{step:?} of {id}: {model:?}"
        );
    }
    for task in std::mem::take(&mut real.waiting).into_values() {
        task.abort();
    }
    real.holding.clear();
    real.settle(STEP).await;
    real.locks.shutdown().await.unwrap();
    assert!(!real.locks.status("a").await.unwrap().is_held(), "nothing stays behind");
}

#[test]
fn readers_do_what_the_model_does() {
    check(step(), |steps| async move { run(Line::Readers, &steps).await });
}

#[test]
fn permits_do_what_the_model_does() {
    check(step(), |steps| async move { run(Line::Permits, &steps).await });
}
