//! The local queue, through whatever callers do, against a model of ten lines: who holds, who waits, who was told that
//! the name is taken. On paused time, each step to its end.
//!
//! The cases are the same each time; others: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=10000`.
#![cfg(not(shuttle))]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lock_core::{Guard, Locker, MemoryBackend, ReentryKey, Result};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{RngSeed, TestRunner};
use tokio::task::JoinHandle;

/// Local hand-overs in a row.
const LIMIT: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    /// A caller of this process comes, with one of two re-entry keys or without.
    Enter { key: Option<usize>, patient: bool },
    /// Another process comes.
    EnterElsewhere,
    /// One of those who wait gives up, here or elsewhere.
    Leave(Index),
    /// One of those who hold releases, here or elsewhere.
    Release(Index),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![2 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(1))];
    prop_oneof![
        4 => (key, prop::bool::weighted(0.8)).prop_map(|(key, patient)| Step::Enter { key, patient }),
        2 => Just(Step::EnterElsewhere),
        2 => any::<Index>().prop_map(Step::Leave),
        4 => any::<Index>().prop_map(Step::Release),
    ]
}

/// What ought to be.
#[derive(Debug, Default)]
struct Model {
    /// Who has the name: several callers if they share a key.
    holding: BTreeSet<usize>,
    held_here: bool,
    key: Option<usize>,
    /// The callers of this process, in their order.
    here: VecDeque<(usize, Option<usize>)>,
    /// The server's queue; `None` is this process's one place.
    places: VecDeque<Option<usize>>,
    /// Hand-overs since the server granted it.
    passes: u32,
}

impl Model {
    /// Whether the caller holds or waits now; otherwise it was told that the name is taken.
    fn enter(&mut self, id: usize, key: Option<usize>, patient: bool) -> bool {
        if self.held_here && key.is_some() && key == self.key {
            return self.holding.insert(id);
        }
        if !patient && !self.holding.is_empty() {
            return false;
        }
        self.here.push_back((id, key));
        if !self.held_here && !self.places.contains(&None) {
            self.places.push_back(None);
        }
        self.grant();
        true
    }

    fn enter_elsewhere(&mut self, id: usize) {
        self.places.push_back(Some(id));
        self.grant();
    }

    fn leave(&mut self, id: usize) {
        self.here.retain(|(waiting, _)| *waiting != id);
        let nobody_here = self.here.is_empty();
        self.places
            .retain(|place| *place != Some(id) && !(nobody_here && place.is_none()));
    }

    fn release(&mut self, id: usize) {
        self.holding.remove(&id);
        if !self.holding.is_empty() {
            return;
        }
        if self.held_here && self.passes < LIMIT && !self.here.is_empty() {
            self.passes += 1;
            return self.give_here();
        }
        if self.held_here && !self.here.is_empty() {
            self.places.push_back(None);
        }
        self.held_here = false;
        self.grant();
    }

    /// The name is the first one's in the server's queue, if it is free.
    fn grant(&mut self) {
        if self.holding.is_empty()
            && let Some(first) = self.places.pop_front()
        {
            self.passes = 0;
            match first {
                None => self.give_here(),
                Some(elsewhere) => drop(self.holding.insert(elsewhere)),
            }
        }
    }

    /// It is the first caller's, and of all that have the same key.
    fn give_here(&mut self) {
        let first = self.here.pop_front().expect("only who has waiting callers has a place");
        let shares = |caller: &(usize, Option<usize>)| *caller == first || (first.1.is_some() && caller.1 == first.1);
        (self.held_here, self.key) = (true, first.1);
        self.holding = std::iter::once(first.0).collect();
        self.holding
            .extend(self.here.iter().filter(|caller| shares(caller)).map(|caller| caller.0));
        self.here.retain(|caller| !shares(caller));
    }

    fn waiting(&self) -> BTreeSet<usize> {
        let elsewhere = self.places.iter().flatten().copied();
        self.here.iter().map(|(id, _)| *id).chain(elsewhere).collect()
    }
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
            locks: Locker::new(server.clone()).with_hand_overs(LIMIT),
            server,
            keys: [ReentryKey::new(), ReentryKey::new()],
            waiting: BTreeMap::new(),
            holding: BTreeMap::new(),
            last_token: 0,
        }
    }

    fn enter(&mut self, id: usize, key: Option<usize>, patient: bool) {
        let lock = self.locks.lock("a");
        let lock = match key {
            Some(key) => lock.reentrant(&self.keys[key]),
            None => lock,
        };
        let acquire = async move {
            match patient {
                true => lock.acquire().await.map(Some),
                false => lock.try_acquire().await,
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
    async fn settle(&mut self) {
        // Time passes when nobody has anything to do.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let done: Vec<_> = self.waiting.extract_if(.., |_, task| task.is_finished()).collect();
        let before = self.holding.len();
        for (id, task) in done {
            if let Some(guard) = task.await.unwrap().unwrap() {
                self.holding.insert(id, guard);
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
    for (id, step) in steps.iter().enumerate() {
        match step {
            Step::Enter { key, patient } => {
                real.enter(id, *key, *patient);
                model.enter(id, *key, *patient);
            }
            Step::EnterElsewhere => {
                real.enter_elsewhere(id);
                model.enter_elsewhere(id);
            }
            Step::Leave(index) => {
                if let Some(id) = pick(&model.waiting(), *index) {
                    real.waiting.remove(&id).expect("as the model says").abort();
                    model.leave(id);
                }
            }
            Step::Release(index) => {
                if let Some(id) = pick(&model.holding, *index) {
                    real.holding
                        .remove(&id)
                        .expect("as the model says")
                        .release()
                        .await
                        .unwrap();
                    model.release(id);
                }
            }
        }
        real.settle().await;
        let holding: BTreeSet<_> = real.holding.keys().copied().collect();
        let waiting: BTreeSet<_> = real.waiting.keys().copied().collect();
        assert_eq!(
            (&holding, &waiting),
            (&model.holding, &model.waiting()),
            "{step:?} of {id}: {model:?}"
        );
    }
    for task in std::mem::take(&mut real.waiting).into_values() {
        task.abort();
    }
    real.holding.clear();
    real.settle().await;
    real.locks.shutdown().await.unwrap();
    assert!(!real.locks.status("a").await.unwrap().is_held(), "nothing stays behind");
}

#[test]
fn does_what_the_model_does() {
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
        .run(&prop::collection::vec(step(), 1..40), |steps| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(run(&steps));
            Ok(())
        })
        .unwrap();
}
