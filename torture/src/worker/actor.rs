//! One that takes locks, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::{Ended, Error, ErrorKind, Guard, Lock, ReentryKey, Release};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use crate::clock;
use crate::error::Result;
use crate::mutant::Mutant;
use crate::names::lock_name;
use crate::record::{Access, Event};
use crate::resource::Client;

use super::mutants::Raw;
use super::plan::{Ask, Plan, Stay, between};
use super::shared::Shared;

#[derive(Debug)]
pub(super) struct Actor {
    shared: Arc<Shared>,
    resource: Client,
    rng: StdRng,
}

impl Actor {
    pub(super) fn new(shared: Arc<Shared>, resource: Client, rng: StdRng) -> Self {
        Self { shared, resource, rng }
    }

    pub(super) async fn run(mut self) -> Result<()> {
        while !self.shared.finishing.load(Ordering::Relaxed) {
            self.once().await?;
            sleep(between(&mut self.rng, 0.0, 0.004)).await;
        }
        Ok(())
    }

    async fn once(&mut self) -> Result<()> {
        let op = self.shared.last_op.fetch_add(1, Ordering::Relaxed) + 1;
        let Plan { lock, ask, stay } = Plan::draw(&self.shared, &mut self.rng);
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
        sleep(between(&mut self.rng, 0.0, 0.004)).await;
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
