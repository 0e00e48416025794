//! One that takes locks, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::{Ended, Error, ErrorKind, Guard, Lock, ReentryKey, Release, UpgradableGuard};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, timeout};

use crate::clock;
use crate::config::RunConfig;
use crate::error::Result;
use crate::mode::Held;
use crate::mutant::Mutant;
use crate::names::lock_name;
use crate::record::{Access, Event};
use crate::resource::Client;

use super::handle::{AnyGuard, Handle};
use super::job::Job;
use super::mutants::Raw;
use super::plan::{Plan, between};
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
        let plan = Plan::draw(&self.shared, &mut self.rng);
        let Plan { lock, ask, .. } = plan;
        let handle = self.handle(plan);
        let record = |event| self.shared.history.event(event);
        record(Event::Inv { op, lock });
        match handle.acquire(ask).await {
            Some(Ok(Some(guard))) => return self.hold(op, plan, &handle, guard).await,
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

    fn handle(&self, Plan { lock, mode, stay, .. }: Plan) -> Handle {
        let (locker, name) = (&self.shared.locker, lock_name(lock));
        let Job { config, process, .. } = &self.shared.job;
        let label = process.to_string();
        let lock = match mode {
            Held::Exclusive => locker.lock(name),
            Held::Shared => locker.rw_lock(name).read(),
            Held::Upgradable => return Handle::Upgradable(locker.rw_lock(name).upgradable().label(label)),
            Held::Permits { take, of } => {
                let has_another = config.mutant == Some(Mutant::OnePermitTooMany) && process % 2 == 1;
                locker.semaphore(name, of + u32::from(has_another)).permits(take)
            }
        };
        let mut lock = lock.label(label);
        if stay.fixed {
            lock = lock.fixed_lease();
        }
        if let Some(minimum) = stay.minimum {
            lock = lock.hold_at_least(minimum);
        }
        if stay.reentered {
            lock = lock.reentrant(&ReentryKey::new());
        }
        Handle::Plain(lock)
    }

    async fn hold(&mut self, op: u64, plan: Plan, handle: &Handle, guard: AnyGuard) -> Result<()> {
        let Plan { lock, mode, stay, .. } = plan;
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
            mode,
            fixed: stay.fixed,
        };
        self.shared.history.at(held, event);
        self.shared.note_acquired();
        self.shared.watch(guard.watch(), lock, end);
        self.tell_of_loss(op, &guard);
        if stay.extended {
            // A failure leaves the hold as it was, and is seen by the checks.
            let _ = guard.extend(self.shared.job.config.extension()).await;
        }
        let mut guard = match (guard, handle) {
            (AnyGuard::Plain(guard), Handle::Plain(lock_handle)) if stay.reentered => {
                self.reenter((op, lock), lock_handle, guard).await.into()
            }
            (guard, _) => guard,
        };
        match mode {
            Held::Exclusive => self.write((op, lock), &guard, stay.time).await?,
            Held::Shared | Held::Upgradable => self.read((op, lock), &guard, stay.time).await?,
            Held::Permits { .. } => self.wait(&guard, stay.time).await,
        }
        if plan.changes {
            self.change((op, lock), &mut guard).await?;
        }
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

    /// An upgradable reader writes, if it can; a writer goes on reading.
    async fn change(&mut self, (op, lock): (u64, usize), guard: &mut AnyGuard) -> Result<()> {
        let time = between(&mut self.rng, 0.0, 0.004);
        if let AnyGuard::Upgradable(reader) = guard {
            if !self.upgrade(op, reader).await {
                return Ok(());
            }
            self.write((op, lock), guard, time).await?;
            if self.rng.random_bool(0.5) {
                return Ok(());
            }
        }
        let record = |event| self.shared.history.event(event);
        record(Event::Downgrading { op });
        match guard.downgrade().await {
            Ok(()) => record(Event::Downgraded { op }),
            Err(error) => {
                let (kind, what) = told(&error);
                record(Event::NotChanged { op, kind, what });
            }
        }
        self.read((op, lock), guard, time).await
    }

    /// Upgrades the hold. Returns whether it writes now.
    async fn upgrade(&mut self, op: u64, guard: &mut UpgradableGuard) -> bool {
        let ttl = self.shared.job.config.ttl.as_secs_f64();
        let limit = between(&mut self.rng, 0.0, 2.0 * ttl);
        let upgraded = match self.rng.random_bool(0.25) {
            // Its caller goes away.
            true => timeout(limit / 4, guard.upgrade()).await.ok(),
            false => Some(guard.upgrade_within(limit).await),
        };
        let held = clock::now();
        match upgraded {
            Some(Ok(())) => {
                let (token, end) = (guard.token().as_u64(), clock::at_end_of(|| guard.valid_for()));
                let end = end.unwrap_or(held);
                self.shared.history.at(held, Event::Upgraded { op, token, end });
                true
            }
            Some(Err(error)) => {
                let (kind, what) = told(&error);
                self.shared.history.event(Event::NotChanged { op, kind, what });
                false
            }
            None => false,
        }
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
            // The checks see whether this succeeds.
            let _ = Raw::new(&self.shared.job.url, self.shared.job.address)
                .delete(lock)
                .await;
        }
        other
    }

    /// Reads, waits, and writes what depends on what was read: with the fence, and in the mirror without. Where others read
    /// too, it writes in two halves.
    async fn write(&mut self, (op, lock): (u64, usize), guard: &Guard, time: Duration) -> Result<()> {
        let RunConfig {
            mutant,
            deadline_checks: checks,
            modes,
            ..
        } = self.shared.job.config;
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
        if modes {
            sleep(between(&mut self.rng, 0.0, 0.002)).await;
            self.resource.ask((op, lock), Access::Finish, None, 0).await?;
            self.resource.ask((op, lock), Access::Finish, token, 0).await?;
        }
        Ok(())
    }

    /// Reads twice, with a wait in between: nobody writes meanwhile.
    async fn read(&mut self, (op, lock): (u64, usize), guard: &Guard, time: Duration) -> Result<()> {
        let config = &self.shared.job.config;
        let (mutant, checks) = (config.mutant, config.deadline_checks);
        let token = Some(guard.token().as_u64());
        let first = if mutant == Some(Mutant::ReadersDoNotRegister) {
            Access::Read
        } else {
            Access::Claim
        };
        let fenced = self.resource.read((op, lock), first, token).await?;
        self.resource.read((op, lock), Access::Read, None).await?;
        self.wait(guard, time).await;
        if checks && guard.check().is_err() {
            return Ok(());
        }
        self.shared.pass_the_gap();
        self.resource.read((op, lock), Access::Read, None).await?;
        if !fenced.refused {
            self.resource.read((op, lock), Access::Read, token).await?;
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

fn told(error: &Error) -> (String, String) {
    let mut what = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        what += &format!(": {error}");
        cause = error.source();
    }
    (format!("{:?}", error.kind()), what)
}
