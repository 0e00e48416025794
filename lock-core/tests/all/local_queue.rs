//! The local queue, through whatever callers do, against a model of it: who holds, who waits, since when the process has
//! a place at the server, and how often the hold was passed on. On paused time, each step to its end.
//!
//! The cases are the same each time; others: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::{Guard, Locker, MemoryBackend, ReentryKey, Result};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{RngSeed, TestRunner};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Passes in a row.
const LIMIT: u32 = 2;

/// What each step takes at least, in milliseconds, as all times here.
const STEP: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    /// A caller of this process comes, with one of two re-entry keys or without.
    Enter { key: Option<usize>, patience: Patience },
    /// Another process comes.
    EnterElsewhere,
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
    Within(u64),
    Forever,
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![2 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(1))];
    // Odd, while steps are even: nobody's time is up in the moment of a step.
    let within = (0..20_u64).prop_map(|time| Patience::Within(2 * time + 1));
    let patience = prop_oneof![2 => Just(Patience::Once), 4 => within, 4 => Just(Patience::Forever)];
    prop_oneof![
        4 => (key, patience).prop_map(|(key, patience)| Step::Enter { key, patience }),
        2 => Just(Step::EnterElsewhere),
        2 => any::<Index>().prop_map(Step::Leave),
        4 => any::<Index>().prop_map(Step::Release),
        2 => (1..30_u64).prop_map(|time| Step::Pass(STEP * time)),
    ]
}

/// Who asks for the name.
#[derive(Clone, Copy, Debug)]
struct Caller {
    /// The number of the step in which it came.
    id: usize,
    here: bool,
    key: Option<usize>,
    /// When its time is up.
    until: Option<u64>,
}

impl Caller {
    fn may_share(&self, with: &Self) -> bool {
        self.id == with.id || (self.key.is_some() && self.key == with.key)
    }
}

/// What ought to be.
#[derive(Debug, Default)]
struct Model {
    /// Who has the name: several callers if they share a key.
    holding: Vec<Caller>,
    waiting: Vec<Caller>,
    /// In which step the process took its place in the server's queue, where it has one.
    place: Option<usize>,
    /// How often the hold was passed on within this process, while it is this process's.
    passes: Option<u32>,
}

impl Model {
    fn come(&mut self, caller: Caller) {
        match self.holding.first() {
            Some(first) if caller.may_share(first) => self.holding.push(caller),
            _ => self.waiting.push(caller),
        }
        self.go_on(caller.id);
    }

    /// Whoever is meant is gone, wherever they were.
    fn go(&mut self, step: usize, gone: impl Fn(&Caller) -> bool) {
        self.holding.retain(|caller| !gone(caller));
        self.waiting.retain(|caller| !gone(caller));
        self.go_on(step);
    }

    /// What follows: a name that is free is the next one's, and the process has a place if any caller of it needs one.
    fn go_on(&mut self, step: usize) {
        let free = self.holding.is_empty();
        let here = self.waiting.iter().find(|caller| caller.here).copied();
        let elsewhere = self.waiting.iter().find(|caller| !caller.here).copied();
        if let (true, Some(next), Some(passes @ 0..LIMIT)) = (free, here, self.passes) {
            self.passes = Some(passes + 1);
            return self.give(next);
        }
        self.passes.take_if(|_| free);
        self.place = here
            .filter(|_| self.passes.is_none())
            .map(|_| self.place.unwrap_or(step));
        let places = [self.place.zip(here), elsewhere.map(|caller| (caller.id, caller))];
        if let (true, Some((_, next))) = (free, places.into_iter().flatten().min_by_key(|(since, _)| *since)) {
            self.passes = next.here.then_some(0);
            self.place.take_if(|_| next.here);
            self.give(next);
        }
    }

    fn give(&mut self, next: Caller) {
        (self.holding, self.waiting) = self.waiting.iter().partition(|caller| caller.may_share(&next));
    }
}

fn ids(callers: &[Caller]) -> BTreeSet<usize> {
    callers.iter().map(|caller| caller.id).collect()
}

/// What is.
struct Real {
    server: MemoryBackend,
    locks: Locker,
    keys: [ReentryKey; 2],
    waiting: BTreeMap<usize, JoinHandle<Result<Option<Guard>>>>,
    holding: BTreeMap<usize, Guard>,
    last_token: u64,
}

impl Real {
    fn new() -> Self {
        let server = MemoryBackend::new();
        Self {
            locks: Locker::new(server.clone()).with_passes(LIMIT),
            server,
            keys: [ReentryKey::new(), ReentryKey::new()],
            waiting: BTreeMap::new(),
            holding: BTreeMap::new(),
            last_token: 0,
        }
    }

    fn enter(&mut self, id: usize, key: Option<usize>, patience: Patience) {
        let lock = self.locks.lock("a");
        let lock = match key {
            Some(key) => lock.reentrant(&self.keys[key]),
            None => lock,
        };
        let acquire = async move {
            match patience {
                Patience::Once => lock.try_acquire().await,
                Patience::Within(time) => lock.acquire_within(Duration::from_millis(time)).await.map(Some),
                Patience::Forever => lock.acquire().await.map(Some),
            }
        };
        self.waiting.insert(id, tokio::spawn(acquire));
    }

    fn enter_elsewhere(&mut self, id: usize) {
        let lock = Locker::new(self.server.clone()).lock("a");
        let acquire = async move { lock.acquire().await.map(Some) };
        self.waiting.insert(id, tokio::spawn(acquire));
    }

    /// Lets everybody come as far as they can.
    #[allow(clippy::incompatible_msrv, reason = "tests may need a newer Rust than users do")]
    async fn settle(&mut self, time: u64) {
        // Time passes when nobody has anything to do.
        sleep(Duration::from_millis(time)).await;
        let done: Vec<_> = self.waiting.extract_if(.., |_, task| task.is_finished()).collect();
        let before = self.holding.len();
        for (id, task) in done {
            match task.await.unwrap() {
                Ok(Some(guard)) => drop(self.holding.insert(id, guard)),
                Ok(None) => {}
                Err(error) => assert!(error.is_timed_out(), "{error}"),
            }
        }
        let tokens: BTreeSet<_> = self.holding.values().map(|guard| guard.token().as_u64()).collect();
        assert!(tokens.len() <= 1, "one hold at a time: {tokens:?}");
        if let Some(token) = tokens.first() {
            assert!(*token > self.last_token || before > 0, "a new hold has a larger token");
            self.last_token = *token;
        }
    }
}

fn pick(of: &BTreeSet<usize>, index: Index) -> Option<usize> {
    (!of.is_empty()).then(|| *index.get(&of.iter().copied().collect::<Vec<_>>()))
}

async fn run(steps: &[Step]) {
    let (mut model, mut real) = (Model::default(), Real::new());
    let mut now = 0;
    for (id, step) in steps.iter().enumerate() {
        let mut time = STEP;
        match step {
            Step::Enter { key, patience } => {
                real.enter(id, *key, *patience);
                let until = match patience {
                    Patience::Within(time) => Some(now + time),
                    Patience::Once | Patience::Forever => None,
                };
                let caller = Caller {
                    id,
                    here: true,
                    key: *key,
                    until,
                };
                model.come(caller);
                if *patience == Patience::Once && !ids(&model.holding).contains(&id) {
                    model.go(id, |caller| caller.id == id);
                }
            }
            Step::EnterElsewhere => {
                real.enter_elsewhere(id);
                let caller = Caller {
                    id,
                    here: false,
                    key: None,
                    until: None,
                };
                model.come(caller);
            }
            Step::Leave(index) => {
                if let Some(leaving) = pick(&ids(&model.waiting), *index) {
                    real.waiting.remove(&leaving).expect("as the model says").abort();
                    model.go(id, |caller| caller.id == leaving);
                }
            }
            Step::Release(index) => {
                if let Some(releasing) = pick(&ids(&model.holding), *index) {
                    let guard = real.holding.remove(&releasing).expect("as the model says");
                    guard.release().await.unwrap();
                    model.go(id, |caller| caller.id == releasing);
                }
            }
            Step::Pass(passing) => time = *passing,
        }
        real.settle(time).await;
        now += time;
        let waiting = ids(&model.waiting);
        model.go(id, |caller| {
            waiting.contains(&caller.id) && caller.until.is_some_and(|until| until < now)
        });
        let holding: BTreeSet<_> = real.holding.keys().copied().collect();
        let waiting: BTreeSet<_> = real.waiting.keys().copied().collect();
        assert_eq!(
            (holding, waiting),
            (ids(&model.holding), ids(&model.waiting)),
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
fn does_what_the_model_does() {
    check(step(), |steps| async move { run(&steps).await });
}

/// Runs sequences of these steps, each on paused time of its own.
pub(super) fn check<S: Strategy, F: Future<Output = ()>>(step: S, run: impl Fn(Vec<S::Value>) -> F) {
    let from_environment = ProptestConfig::default();
    let config = ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => from_environment.cases,
            None => 500,
        },
        rng_seed: match from_environment.rng_seed {
            RngSeed::Random => RngSeed::Fixed(4),
            fixed => fixed,
        },
        failure_persistence: None,
        ..from_environment
    };
    println!("cases of {:?}", config.rng_seed);
    TestRunner::new(config)
        .run(&prop::collection::vec(step, 1..40), |steps| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(run(steps));
            Ok(())
        })
        .unwrap();
}
