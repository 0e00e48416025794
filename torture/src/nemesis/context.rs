//! The targets of the nemesis, and the chance and time that an injection has.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep_until};

use crate::config::RunConfig;
use crate::process::WorkerProcess;
use crate::record::Writer;
use crate::resource::Resource;
use crate::servers::LockServer;

/// The targets of the nemesis.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) config: RunConfig,
    pub(crate) processes: Vec<WorkerProcess>,
    pub(crate) server: LockServer,
    /// Taken while a fault uses the server.
    pub(crate) server_in_use: tokio::sync::Mutex<()>,
    pub(crate) resource: Resource,
    /// Past all proxies: to find out who holds what.
    pub(crate) locker: Locker,
    pub(crate) history: Writer,
}

/// The context of all injections.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) targets: Arc<Targets>,
    pub(super) rng: StdRng,
    /// When all must be healed.
    pub(super) until: Instant,
}

/// Since when a fault struck its target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Struck {
    /// From the beginning of its injection.
    AtOnce,
    /// At this time of the run's clock.
    At(u64),
    /// It came to nothing.
    Never,
}

impl Context {
    pub(super) fn ttl(&self) -> Duration {
        self.targets.config.ttl
    }

    /// A random time, in ttls.
    pub(super) fn time(&mut self, ttls: Range<f64>) -> Duration {
        self.ttl().mul_f64(self.share(ttls))
    }

    pub(super) fn share(&mut self, range: Range<f64>) -> f64 {
        self.rng.random_range(range)
    }

    pub(super) fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.rng.random_range(range)
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        self.rng.random_range(0..length)
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    /// Lets a fault last for a random time, in ttls, but not past the end.
    pub(super) async fn last(&mut self, ttls: Range<f64>) {
        let end = Instant::now() + self.time(ttls);
        sleep_until(end.min(self.until)).await;
    }
}
