//! Breaks things and heals them, by a seeded schedule.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::names::lock_name;
use crate::process::WorkerProcess;
use crate::record::{Strike, Writer};
use crate::resource::Resource;
use crate::servers::LockServer;
use crate::worker::job::Order;

/// What the nemesis may break.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) config: RunConfig,
    pub(crate) processes: Arc<Vec<WorkerProcess>>,
    pub(crate) server: LockServer,
    pub(crate) resource: Resource,
    /// Past all proxies: to find out who holds what.
    pub(crate) locker: Locker,
    pub(crate) history: Writer,
    pub(crate) server_in_use: tokio::sync::Mutex<()>,
}

impl Nemesis {
    /// Breaks and heals until then; all is healed when it returns.
    pub(crate) async fn run(self: &Arc<Self>, until: Instant) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (number, fault) in self.config.nemesis.iter().enumerate() {
            // A few at once where there are few kinds, but one server is broken by one at a time.
            let at_once = match self.config.nemesis.len() {
                _ if fault.is_servers() => 1,
                1 => 3,
                2 | 3 => 2,
                _ => 1,
            };
            for copy in 0..at_once {
                let seed = self.config.seed.wrapping_add(1 + number as u64 * 64 + copy);
                tasks.spawn(self.clone().repeat(*fault, StdRng::seed_from_u64(seed), until));
            }
        }
        self.stop_some(until).await;
        while let Some(done) = tasks.join_next().await {
            done.map_err(|error| Error::new(error.to_string()))??;
        }
        Ok(())
    }

    /// Lets the first processes stand still until then, if what that costs is measured.
    async fn stop_some(&self, until: Instant) {
        let stopped = self.config.measured.unwrap_or(0);
        let (processes, from) = (&self.processes[..stopped], clock::now());
        for process in processes {
            process.signal(Signal::STOP);
        }
        sleep_until(until).await;
        for process in processes {
            process.signal(Signal::CONT);
            self.history.line(&Strike {
                fault: Fault::Stop,
                process: Some(process.index),
                incarnation: 0,
                from,
                to: clock::now(),
                happened: true,
            });
        }
    }

    async fn repeat(self: Arc<Self>, fault: Fault, mut rng: StdRng, until: Instant) -> Result<()> {
        loop {
            let pause = if fault.is_servers() { 0.5..2.0 } else { 0.1..0.6 };
            sleep(self.of_ttl(rng.random_range(pause))).await;
            if Instant::now() >= until {
                return Ok(());
            }
            let strike = self.strike(fault, &mut rng, until).await?;
            if let Some(strike) = strike {
                self.history.line(&strike);
            }
        }
    }

    /// `None` when there was nothing to strike.
    async fn strike(&self, fault: Fault, rng: &mut StdRng, until: Instant) -> Result<Option<Strike>> {
        if fault.is_servers() {
            let _one_at_a_time = self.server_in_use.lock().await;
            let from = clock::now();
            self.strike_server(fault, rng, until).await?;
            return Ok(Some(Strike {
                fault,
                process: None,
                incarnation: 0,
                from,
                to: clock::now(),
                happened: true,
            }));
        }
        let target = self.target(rng).await;
        let chosen = (0..self.processes.len()).find_map(|step| {
            let process = &self.processes[(target + step) % self.processes.len()];
            let in_use = if fault.is_links() {
                &process.link_in_use
            } else {
                &process.in_use
            };
            in_use.try_lock().ok().map(|free| (process, free))
        });
        let Some((process, _free)) = chosen else {
            return Ok(None);
        };
        let incarnation = process.incarnation();
        let (from, happened) = if fault.is_links() {
            let from = clock::now();
            (from, self.strike_link(fault, process, rng, until).await)
        } else {
            self.strike_process(fault, process, rng, until).await?
        };
        Ok(Some(Strike {
            fault,
            process: Some(process.index),
            incarnation,
            from,
            to: clock::now(),
            happened,
        }))
    }

    /// Every other time somebody who holds something just now.
    async fn target(&self, rng: &mut StdRng) -> usize {
        let (anyone, lock) = (
            rng.random_range(0..self.processes.len()),
            rng.random_range(0..self.config.locks),
        );
        if rng.random_bool(0.5) {
            return anyone;
        }
        let status = timeout(self.config.ttl / 10, self.locker.status(lock_name(lock))).await;
        let holder = status.ok().and_then(std::result::Result::ok).and_then(|status| {
            let label = status.holders.into_iter().next()?.label?;
            label.parse().ok()
        });
        holder.unwrap_or(anyone)
    }

    async fn strike_process(
        &self,
        fault: Fault,
        process: &WorkerProcess,
        rng: &mut StdRng,
        until: Instant,
    ) -> Result<(u64, bool)> {
        Ok(match fault {
            Fault::Kill => {
                let incarnation = process.incarnation();
                let from = process.kill();
                self.last(rng, 0.0..0.5, until).await;
                process.start(incarnation + 1).await?;
                (from, true)
            }
            Fault::Gap => {
                process.order(Order::Gap);
                let stopped = self.has_stopped(process, self.config.ttl * 2).await || {
                    process.order(Order::NoGap);
                    // The order may cross with the stop.
                    self.has_stopped(process, Duration::from_millis(100)).await
                };
                let from = clock::now();
                if stopped {
                    let at_the_worst_moment = rng.random_bool(0.7);
                    let end = Instant::now() + self.of_ttl(rng.random_range(1.0..1.6));
                    while Instant::now() < end && !(at_the_worst_moment && self.resource.is_ripe(process.index)) {
                        sleep(Duration::from_millis(1)).await;
                    }
                    process.signal(Signal::CONT);
                }
                (from, stopped)
            }
            _ => {
                let from = clock::now();
                process.signal(Signal::STOP);
                self.last(rng, 0.3..2.0, until).await;
                process.signal(Signal::CONT);
                (from, true)
            }
        })
    }

    async fn has_stopped(&self, process: &WorkerProcess, limit: Duration) -> bool {
        let start = Instant::now();
        // The kernel tells only who blocks, or asks.
        while !process.is_stopped() {
            if start.elapsed() > limit {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        true
    }

    async fn strike_link(&self, fault: Fault, process: &WorkerProcess, rng: &mut StdRng, until: Instant) -> bool {
        match fault {
            Fault::Reset => process.link.reset(),
            Fault::ReplyLoss => {
                process.link.swallow_reply(rng.random_range(1..=4));
                let swallowed = timeout(self.config.ttl * 2, process.link.swallowed()).await.is_ok();
                process.link.heal();
                return swallowed;
            }
            Fault::Delay => {
                process.link.delay(self.of_ttl(rng.random_range(0.02..0.4)));
                self.last(rng, 1.0..3.0, until).await;
            }
            Fault::Oneway => {
                process.link.hold_replies_after(0);
                self.last(rng, 0.5..0.95, until).await;
            }
            _ => {
                process.link.stall();
                self.last(rng, 0.2..2.5, until).await;
            }
        }
        process.link.heal();
        true
    }

    async fn strike_server(&self, fault: Fault, rng: &mut StdRng, until: Instant) -> Result<()> {
        let server = &self.server.server;
        match fault {
            Fault::ServerKill | Fault::ServerLose => {
                server.kill()?;
                self.last(rng, 0.0..1.0, until).await;
                if fault == Fault::ServerLose {
                    server.restart_without_data().await?;
                } else {
                    server.restart().await?;
                }
            }
            Fault::ServerStop => {
                server.pause()?;
                self.last(rng, 0.3..1.5, until).await;
                server.resume()?;
            }
            Fault::ScriptFlush => self.again_and_again(rng, &["SCRIPT FLUSH"]).await?,
            Fault::ClientKill => {
                let all = ["CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"];
                self.again_and_again(rng, &all).await?;
            }
            Fault::MemoryFull => {
                self.server.tell("CONFIG SET maxmemory 1").await?;
                self.last(rng, 0.3..1.5, until).await;
                self.server.tell("CONFIG SET maxmemory 0").await?;
            }
            Fault::DiskFull => self.fill_disk(rng, until).await?,
            Fault::Failover => {
                self.server.replicate().await?;
                self.server.fall_behind().await?;
                self.last(rng, 0.3..2.0, until).await;
                self.server.fail_over().await?;
            }
            Fault::ClockRate => {
                /// The contract: clocks run within 5 % of each other.
                const FASTER: i64 = 50_000;
                self.server.clock()?.run_faster(FASTER)?;
                self.last(rng, 2.0..4.0, until).await;
                self.server.clock()?.run_faster(0)?;
            }
            _ => self.move_clock(fault, rng, until).await?,
        }
        Ok(())
    }

    async fn again_and_again(&self, rng: &mut StdRng, commands: &[&str]) -> Result<()> {
        for _ in 0..rng.random_range(1..=8) {
            for command in commands {
                self.server.tell(command).await?;
            }
            sleep(self.of_ttl(rng.random_range(0.0..0.1))).await;
        }
        Ok(())
    }

    /// A Redis that must have on disk what it answers ends when it cannot; one that need not refuses writes.
    async fn fill_disk(&self, rng: &mut StdRng, until: Instant) -> Result<()> {
        let (server, disk) = (&self.server, self.server.disk()?);
        let ends = rng.random_bool(0.5);
        if !ends {
            server.tell("CONFIG SET appendfsync everysec").await?;
        }
        disk.fill(true)?;
        self.last(rng, 0.3..1.5, until).await;
        disk.fill(false)?;
        if ends {
            return Ok(server.server.restart().await?);
        }
        server.has_room().await?;
        server.tell("CONFIG SET appendfsync always").await
    }

    async fn move_clock(&self, fault: Fault, rng: &mut StdRng, until: Instant) -> Result<()> {
        let clock = self.server.clock()?;
        let step = self.config.clock_step(fault).mul_f64(rng.random_range(0.25..1.0));
        let step = i64::try_from(step.as_nanos()).unwrap_or(i64::MAX);
        let step = if fault == Fault::Clock { step } else { -step };
        clock.step(step)?;
        if fault != Fault::ClockBackForGood {
            self.last(rng, 0.5..2.0, until).await;
            clock.step(-step)?;
        }
        Ok(())
    }

    /// Lets a fault last for so many ttls, but not past the end.
    async fn last(&self, rng: &mut StdRng, ttls: std::ops::Range<f64>, until: Instant) {
        let end = Instant::now() + self.of_ttl(rng.random_range(ttls));
        sleep_until(end.min(until)).await;
    }

    fn of_ttl(&self, share: f64) -> Duration {
        self.config.ttl.mul_f64(share)
    }
}
