//! One that takes locks, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::{Ended, Error, ErrorKind, Guard, Lock, ReentryKey, Release};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::Backend;
use crate::clock;
use crate::error::Result;
use crate::mutant::Mutant;
use crate::names::lock_name;
use crate::record::{Access, Event};
use crate::resource::Client;

use super::mutants::Raw;
use super::shared::Shared;

#[derive(Debug)]
pub(super) struct Actor {
    shared: Arc<Shared>,
    resource: Client,
    rng: StdRng,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Within(Duration),
    Forever,
    Once,
    /// For ever, but its caller goes away after this time.
    Dropped(Duration),
}

/// What is done with it.
#[derive(Clone, Copy, Debug)]
struct Stay {
    time: Duration,
    fixed: bool,
    extended: bool,
    /// For how long the name is to stay taken in any case.
    minimum: Option<Duration>,
    reentered: bool,
}

impl Actor {
    pub(super) fn new(shared: Arc<Shared>, resource: Client, rng: StdRng) -> Self {
        Self { shared, resource, rng }
    }

    pub(super) async fn run(mut self) -> Result<()> {
        while !self.shared.finishing.load(Ordering::Relaxed) {
            self.once().await?;
            sleep(self.between(0.0, 0.004)).await;
        }
        Ok(())
    }

    async fn once(&mut self) -> Result<()> {
        let op = self.shared.last_op.fetch_add(1, Ordering::Relaxed) + 1;
        let lock = self.rng.random_range(0..self.shared.job.config.locks);
        let (ask, stay) = (self.ask(), self.stay());
        let mut handle = self
            .shared
            .locker
            .lock(lock_name(lock))
            .label(self.shared.job.process.to_string());
        if stay.fixed {
            handle = handle.fixed_lease();
        }
        if let Some(minimum) = stay.minimum {
            handle = handle.hold_at_least(minimum);
        }
        if stay.reentered {
            handle = handle.reentrant(&ReentryKey::new());
        }
        let record = |event| self.shared.history.event(event);
        record(Event::Inv { op, lock });
        match acquire(&handle, ask).await {
            Some(Ok(Some(guard))) => return self.hold((op, lock), &handle, guard, stay).await,
            Some(Ok(None)) => record(Event::Busy { op }),
            Some(Err(error)) => {
                let (kind, what) = told(&error);
                record(Event::Failed { op, kind, what });
                if error.kind() != ErrorKind::TimedOut {
                    sleep(Duration::from_millis(20)).await;
                }
            }
            None => record(Event::Dropped { op }),
        }
        Ok(())
    }

    async fn hold(&mut self, (op, lock): (u64, usize), handle: &Lock, guard: Guard, stay: Stay) -> Result<()> {
        let held = clock::now();
        let end = clock::at_end_of(|| guard.valid_for()).unwrap_or(held);
        let token = guard.token().as_u64();
        let minimum = stay.minimum.map_or(0, clock::nanos);
        let event = Event::Held {
            op,
            lock,
            token,
            end,
            minimum,
        };
        self.shared.history.at(held, event);
        self.shared.note_acquired();
        self.shared.watch(guard.watch(), lock, end);
        self.tell_of_loss(op, &guard);
        if stay.extended {
            // A failure leaves the hold as it was, and is seen by the checks.
            let _ = guard.extend(self.shared.job.config.extension()).await;
        }
        let guard = if stay.reentered {
            self.reenter((op, lock), handle, guard).await
        } else {
            guard
        };
        self.use_resource(op, lock, &guard, stay.time).await?;
        self.shared.history.event(Event::Rel { op });
        if self.rng.random_bool(0.3) {
            drop(guard);
            return Ok(());
        }
        self.shared.history.event(match guard.release().await {
            Ok(_) => Event::Released { op },
            Err(error) => {
                let (kind, what) = told(&error);
                Event::NotReleased { op, kind, what }
            }
        });
        Ok(())
    }

    /// Takes what it holds already, and lets go of one of the two.
    async fn reenter(&mut self, (op, lock): (u64, usize), handle: &Lock, guard: Guard) -> Guard {
        let outer = guard.token();
        let record = |token: Option<u64>, shared| self.shared.history.event(Event::Reentered { op, token, shared });
        let Ok(Some(inner)) = handle.try_acquire().await else {
            record(None, None);
            return guard;
        };
        let token = inner.token();
        record(Some(token.as_u64()), None);
        if token != outer {
            return guard;
        }
        sleep(self.between(0.0, 0.004)).await;
        let (first, other) = match self.rng.random_bool(0.5) {
            true => (inner, guard),
            false => (guard, inner),
        };
        let released = first.release().await;
        let shared = released.ok().map(|released| released == Release::StillShared);
        let token = Some(token.as_u64());
        self.shared.history.event(Event::Reentered { op, token, shared });
        if self.shared.job.config.mutant == Some(Mutant::ReentryEndsTheHold) {
            // Whether it succeeds is seen by the checks.
            let _ = Raw::new(&self.shared.job.url, self.shared.job.address)
                .delete(lock)
                .await;
        }
        other
    }

    /// Reads, waits, and writes what depends on what was read: with the fence, and in the mirror without.
    async fn use_resource(&mut self, op: u64, lock: usize, guard: &Guard, time: Duration) -> Result<()> {
        let config = &self.shared.job.config;
        let (mutant, checks) = (config.mutant, config.deadline_checks);
        let token = Some(guard.token().as_u64());
        let first = if mutant == Some(Mutant::FenceOnWritesOnly) {
            Access::Read
        } else {
            Access::Claim
        };
        let fenced = self.resource.ask((op, lock), first, token, 0).await?;
        let mirror = self.resource.ask((op, lock), Access::Read, None, 0).await?;
        self.wait(guard, time).await;
        if checks && guard.check().is_err() {
            return Ok(());
        }
        self.shared.pass_the_gap();
        self.resource
            .ask((op, lock), Access::Write, None, mirror.version)
            .await?;
        if !fenced.refused {
            self.resource
                .ask((op, lock), Access::Write, token, fenced.version)
                .await?;
        }
        Ok(())
    }

    /// Stays in the critical section for this time, unless the lock is lost or the faults are over.
    async fn wait(&self, guard: &Guard, time: Duration) {
        let until = Instant::now() + time;
        let slice = self.shared.job.config.ttl / 20;
        while Instant::now() < until {
            sleep(slice.min(until - Instant::now())).await;
            let lost = self.shared.job.config.deadline_checks && guard.check().is_err();
            if lost || self.shared.is_calm() {
                return;
            }
        }
    }

    fn tell_of_loss(&self, op: u64, guard: &Guard) {
        let (watch, shared) = (guard.watch(), self.shared.clone());
        tokio::spawn(async move {
            if let Ended::Lost(lost) = watch.ended().await {
                if shared.job.config.mutant == Some(Mutant::LossToldLate) {
                    sleep(shared.job.config.ttl / 2).await;
                }
                let cause = format!("{:?}", lost.cause());
                shared.history.event(Event::Lost { op, cause });
            }
        });
    }

    fn ask(&mut self) -> Ask {
        let ttl = self.shared.job.config.ttl.as_secs_f64();
        if self.shared.is_calm() {
            return Ask::Within(self.between(3.0 * ttl, 6.0 * ttl));
        }
        if self.shared.job.config.measured.is_some() {
            return Ask::Forever;
        }
        match self.rng.random_range(0..10) {
            0..6 => Ask::Within(self.between(2.0 * ttl, 8.0 * ttl)),
            6 => Ask::Within(self.between(0.0, ttl)),
            7 => Ask::Forever,
            8 => Ask::Once,
            _ => Ask::Dropped(self.between(0.0, ttl)),
        }
    }

    fn stay(&mut self) -> Stay {
        let ttl = self.shared.job.config.ttl.as_secs_f64();
        let backend = self.shared.job.config.backend;
        let short = Stay {
            time: self.between(0.0, 0.004),
            fixed: false,
            extended: false,
            minimum: None,
            reentered: false,
        };
        // So many of a hundred. Where the ttl is long, there would be few holds otherwise.
        let share = if backend == Backend::Redis { 5 } else { 3 };
        let drawn = self.rng.random_range(0..100);
        if self.shared.is_calm() || self.shared.job.config.measured.is_some() {
            return short;
        }
        match drawn / share {
            0..4 => Stay {
                time: self.between(0.3 * ttl, 3.0 * ttl),
                ..short
            },
            4..7 => Stay {
                time: self.between(0.7 * ttl, 1.3 * ttl),
                fixed: true,
                ..short
            },
            7 | 8 if backend.extends() => Stay {
                time: self.between(1.5 * ttl, 2.6 * ttl),
                extended: true,
                ..short
            },
            9..12 => Stay {
                time: self.between(0.0, 0.6 * ttl),
                reentered: true,
                ..short
            },
            12 | 13 if self.shared.locker.capabilities().minimum_hold => {
                let longest = self.shared.job.config.longest_minimum();
                Stay {
                    minimum: Some(longest.mul_f64(self.rng.random_range(0.1..1.0))),
                    ..short
                }
            }
            _ => short,
        }
    }

    fn between(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_secs_f64(self.rng.random_range(low..high))
    }
}

/// `None`: its caller went away.
async fn acquire(lock: &Lock, ask: Ask) -> Option<lock_core::Result<Option<Guard>>> {
    match ask {
        Ask::Within(limit) => Some(lock.acquire_within(limit).await.map(Some)),
        Ask::Forever => Some(lock.acquire().await.map(Some)),
        Ask::Once => Some(lock.try_acquire().await),
        Ask::Dropped(after) => {
            // Whoever is granted it before, keeps it.
            let guard = timeout(after, lock.acquire()).await.ok()?;
            Some(guard.map(Some))
        }
    }
}

fn told(error: &Error) -> (String, String) {
    let mut what = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        what += &format!(": {error}");
        cause = error.source();
    }
    (format!("{:?}", error.kind()), what)
}
