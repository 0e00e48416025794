//! The next action of an actor: the lock that it asks for, the mode, and the use of the hold.

use std::time::Duration;

use lock_core::backend::Capabilities;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::mode::Held;

use super::shared::Shared;

/// The number of permits of a name.
const PERMITS: u32 = 3;

/// One attempt to take a lock, and the hold that may come of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) lock: usize,
    pub(super) mode: Held,
    pub(super) ask: Ask,
    pub(super) stay: Stay,
    /// A writer becomes a reader before it leaves, or an upgradable reader becomes a writer.
    pub(super) changes: bool,
}

/// The kind of acquire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Within(Duration),
    Forever,
    Once,
    /// For ever, but its caller goes away after this time.
    Dropped(Duration),
}

/// The use of a hold.
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
        let mode = match shared.job.config.modes {
            true => mode(lock, &shared.locker.capabilities(), rng),
            false => Held::Exclusive,
        };
        let ask = Ask::draw(shared, rng);
        let stay = Stay::draw(shared, rng).for_mode(mode, shared, rng);
        let changes = match mode {
            Held::Exclusive => shared.job.config.modes && stay.is_plain() && shared.locker.capabilities().downgrade,
            Held::Upgradable => true,
            Held::Shared | Held::Permits { .. } => false,
        };
        Self {
            lock,
            mode,
            ask,
            stay,
            changes: changes && rng.random_bool(0.6),
        }
    }
}

/// Of three names, one is held by readers and writers, one mostly by permits, and one in every way.
fn mode(lock: usize, capabilities: &Capabilities, rng: &mut StdRng) -> Held {
    let reads = match lock % 3 {
        0 => 1.0,
        1 => 0.0,
        _ => 0.5,
    };
    let drawn = rng.random_range(0..12);
    match rng.random_bool(reads) {
        true if drawn < 6 && capabilities.shared => Held::Shared,
        true if drawn < 8 && capabilities.upgradable => Held::Upgradable,
        false if drawn < 10 && capabilities.permits >= PERMITS => Held::Permits {
            take: [1, 1, 1, 2, 2, 3][rng.random_range(0..6)],
            of: PERMITS,
        },
        _ => Held::Exclusive,
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
    /// Whether the stay has no feature apart from its time.
    fn is_plain(self) -> bool {
        !(self.fixed || self.extended || self.reentered) && self.minimum.is_none()
    }

    /// The same for somebody who may hold it beside others.
    fn for_mode(self, mode: Held, shared: &Shared, rng: &mut StdRng) -> Self {
        if mode == Held::Exclusive {
            return self;
        }
        let ttl = shared.job.config.ttl.as_secs_f64();
        let is_long = !shared.is_calm() && rng.random_bool(0.4);
        let among_others = if is_long {
            between(rng, 0.02 * ttl, 0.3 * ttl)
        } else {
            self.time
        };
        Self {
            time: among_others.max(self.time),
            minimum: None,
            reentered: false,
            ..self
        }
    }

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
        let share = if backend.is_lease() || backend.is_quorum() {
            5
        } else {
            3
        };
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
