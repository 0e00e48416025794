//! What an actor does next: which lock it asks for, how, and what it does with it.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::backend::Backend;

use super::shared::Shared;

/// One attempt to take a lock, and the hold that may come of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) lock: usize,
    pub(super) ask: Ask,
    pub(super) stay: Stay,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Within(Duration),
    Forever,
    Once,
    /// For ever, but its caller goes away after this time.
    Dropped(Duration),
}

/// What is done with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) time: Duration,
    pub(super) fixed: bool,
    pub(super) extended: bool,
    /// For how long the name is to stay taken in any case.
    pub(super) minimum: Option<Duration>,
    pub(super) reentered: bool,
}

impl Plan {
    pub(super) fn draw(shared: &Shared, rng: &mut StdRng) -> Self {
        let lock = rng.random_range(0..shared.job.config.locks);
        let ask = Ask::draw(shared, rng);
        let stay = Stay::draw(shared, rng);
        Self { lock, ask, stay }
    }
}

impl Ask {
    fn draw(shared: &Shared, rng: &mut StdRng) -> Self {
        let ttl = shared.job.config.ttl.as_secs_f64();
        if shared.is_calm() {
            return Self::Within(between(rng, 3.0 * ttl, 6.0 * ttl));
        }
        if shared.job.config.measured.is_some() {
            return Self::Forever;
        }
        match rng.random_range(0..10) {
            0..6 => Self::Within(between(rng, 2.0 * ttl, 8.0 * ttl)),
            6 => Self::Within(between(rng, 0.0, ttl)),
            7 => Self::Forever,
            8 => Self::Once,
            _ => Self::Dropped(between(rng, 0.0, ttl)),
        }
    }
}

impl Stay {
    fn draw(shared: &Shared, rng: &mut StdRng) -> Self {
        let ttl = shared.job.config.ttl.as_secs_f64();
        let backend = shared.job.config.backend;
        let short = Self {
            time: between(rng, 0.0, 0.004),
            fixed: false,
            extended: false,
            minimum: None,
            reentered: false,
        };
        // So many of a hundred. Where the ttl is long, there would be few holds otherwise.
        let share = if backend == Backend::Redis { 5 } else { 3 };
        let drawn = rng.random_range(0..100);
        if shared.is_calm() || shared.job.config.measured.is_some() {
            return short;
        }
        match drawn / share {
            0..4 => Self {
                time: between(rng, 0.3 * ttl, 3.0 * ttl),
                ..short
            },
            4..7 => Self {
                time: between(rng, 0.7 * ttl, 1.3 * ttl),
                fixed: true,
                ..short
            },
            7 | 8 if backend.extends() => Self {
                time: between(rng, 1.5 * ttl, 2.6 * ttl),
                extended: true,
                ..short
            },
            9..12 => Self {
                time: between(rng, 0.0, 0.6 * ttl),
                reentered: true,
                ..short
            },
            12 | 13 if shared.locker.capabilities().minimum_hold => {
                let longest = shared.job.config.longest_minimum();
                Self {
                    minimum: Some(longest.mul_f64(rng.random_range(0.1..1.0))),
                    ..short
                }
            }
            _ => short,
        }
    }
}

/// A random time between these two, in seconds.
pub(super) fn between(rng: &mut StdRng, low: f64, high: f64) -> Duration {
    Duration::from_secs_f64(rng.random_range(low..high))
}
