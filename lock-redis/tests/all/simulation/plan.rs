//! What a simulated run is made of.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Times are milliseconds, likelihoods are per event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) processes: usize,
    /// How many acquire and release again and again, in each process.
    pub(crate) tasks: usize,
    /// When the last one begins.
    pub(crate) until: i64,
    pub(crate) modes: Modes,
    pub(crate) ttls: &'static [i64],
    pub(crate) holds: &'static [i64],
    pub(crate) thinks: &'static [i64],
    pub(crate) gives_up: bool,
    pub(crate) downgrades: f64,
    /// How often an exclusive hold goes to the next task of its process instead of ending.
    pub(crate) passes: f64,
    pub(crate) crashes: f64,
    pub(crate) hangs: f64,
    /// How often the server's clock is set back, by a second up to an hour.
    pub(crate) steps_back: f64,
    /// Of messages, and of answers.
    pub(crate) loses: (f64, f64),
    pub(crate) slow: bool,
    /// Every other exclusive request goes out together with others.
    pub(crate) together: bool,
    /// Every other process is of the last version without modes.
    pub(crate) mixed: bool,
    /// Nobody passes a waiter that came before it, where nothing has failed for a minute.
    pub(crate) strict_order: bool,
    /// For how long a waiter may fit and be told by nobody.
    pub(crate) longest_unheard: i64,
    pub(crate) longest_wait: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Modes {
    /// Readers, and of each hundred so many writers.
    Readers(u32),
    Upgrades,
    /// Of so many.
    Permits(u32),
    /// Whose limits differ.
    Limits,
    All,
}

impl Modes {
    pub(crate) fn draw(self, random: &mut StdRng) -> String {
        let modes: &[&str] = match self {
            Self::Readers(writers) if random.random_range(0..100) < writers => &["x"],
            Self::Readers(_) => &["s"],
            Self::Upgrades => &["x", "s", "s", "s", "u"],
            Self::Permits(most) => {
                let take = *[1, 1, 1, 2, most].choose(random).expect("some");
                return format!("p{take}/{most}");
            }
            Self::Limits => &["p1/5", "p1/5", "p2/3", "p1/3", "p3/5", "x"],
            Self::All => &["x", "s", "s", "p1/3", "p2/3", "u"],
        };
        (*modes.choose(random).expect("some")).to_owned()
    }
}

const NEVER: i64 = i64::MAX;

/// Without faults.
const CALM: Plan = Plan {
    name: "",
    processes: 6,
    tasks: 3,
    until: 2_500,
    modes: Modes::Readers(30),
    ttls: &[300, 1000, 3000],
    holds: &[1, 2, 5, 20, 100],
    thinks: &[0, 1, 5, 50],
    gives_up: false,
    downgrades: 0.0,
    passes: 0.0,
    crashes: 0.0,
    hangs: 0.0,
    steps_back: 0.0,
    loses: (0.0, 0.0),
    slow: false,
    together: true,
    mixed: false,
    strict_order: false,
    longest_unheard: NEVER,
    longest_wait: NEVER,
};

const FAULTY: Plan = Plan {
    until: 8_000,
    gives_up: true,
    crashes: 0.003,
    hangs: 0.003,
    loses: (0.1, 0.05),
    ..CALM
};

const ORDERED: Plan = Plan {
    strict_order: true,
    ttls: &[3000],
    ..CALM
};

pub(crate) const PLANS: [Plan; 23] = [
    Plan {
        name: "readers in order",
        ..ORDERED
    },
    Plan {
        name: "mostly readers in order",
        modes: Modes::Readers(5),
        processes: 12,
        ..ORDERED
    },
    Plan {
        name: "permits in order",
        modes: Modes::Permits(5),
        longest_unheard: 60,
        ..ORDERED
    },
    Plan {
        name: "writers alone",
        modes: Modes::Readers(100),
        ..ORDERED
    },
    Plan {
        name: "readers give up",
        gives_up: true,
        ..CALM
    },
    Plan {
        name: "downgrades",
        modes: Modes::Readers(50),
        downgrades: 0.5,
        gives_up: true,
        ..CALM
    },
    Plan {
        name: "upgrades",
        modes: Modes::Upgrades,
        gives_up: true,
        ..CALM
    },
    Plan {
        name: "lost messages and answers",
        crashes: 0.0,
        hangs: 0.0,
        loses: (0.2, 0.05),
        ..FAULTY
    },
    Plan {
        name: "crashes",
        hangs: 0.0,
        ..FAULTY
    },
    Plan {
        name: "hangs",
        crashes: 0.0,
        ..FAULTY
    },
    Plan {
        name: "a slow network",
        slow: true,
        ..FAULTY
    },
    Plan {
        name: "lost permits",
        modes: Modes::Permits(5),
        gives_up: false,
        crashes: 0.0,
        hangs: 0.0,
        processes: 2,
        tasks: 2,
        thinks: &[20, 100],
        ..FAULTY
    },
    Plan {
        name: "permits and faults",
        modes: Modes::Permits(5),
        ..FAULTY
    },
    Plan {
        name: "limits and faults",
        modes: Modes::Limits,
        ..FAULTY
    },
    Plan {
        name: "upgrades and faults",
        modes: Modes::Upgrades,
        together: false,
        downgrades: 0.3,
        ..FAULTY
    },
    Plan {
        name: "all modes and faults",
        modes: Modes::All,
        downgrades: 0.3,
        ..FAULTY
    },
    Plan {
        name: "a clock set back",
        modes: Modes::All,
        downgrades: 0.3,
        steps_back: 0.005,
        hangs: 0.0,
        ..FAULTY
    },
    Plan {
        name: "passes and a clock set back",
        modes: Modes::Readers(60),
        passes: 0.5,
        downgrades: 0.1,
        steps_back: 0.005,
        hangs: 0.0,
        ..FAULTY
    },
    Plan {
        name: "two versions",
        modes: Modes::All,
        mixed: true,
        until: 4_000,
        ..CALM
    },
    Plan {
        name: "two versions and faults",
        modes: Modes::All,
        downgrades: 0.3,
        mixed: true,
        ..FAULTY
    },
    LONG_HOLDS,
    PATIENT,
    HUNG_PERMITS,
];

/// Longer than their TTL, and crashes.
pub(crate) const LONG_HOLDS: Plan = Plan {
    name: "long holds and crashes",
    modes: Modes::Readers(10),
    ttls: &[300],
    holds: &[400, 1500],
    thinks: &[0],
    hangs: 0.0,
    loses: (0.0, 0.0),
    crashes: 0.006,
    gives_up: false,
    longest_wait: 25_000,
    ..FAULTY
};

/// Waiters leave while somebody holds it for long.
pub(crate) const PATIENT: Plan = Plan {
    name: "waiters leave",
    modes: Modes::Readers(8),
    ttls: &[3000],
    holds: &[2500],
    thinks: &[50, 500],
    until: 15_000,
    gives_up: true,
    longest_unheard: 400,
    ..CALM
};

pub(crate) const HUNG_PERMITS: Plan = Plan {
    name: "permits and hung waiters",
    modes: Modes::Permits(5),
    ttls: &[3000],
    gives_up: false,
    crashes: 0.0,
    hangs: 0.01,
    loses: (0.0, 0.0),
    longest_unheard: 3_400,
    ..FAULTY
};

/// The plan of this name.
pub(crate) fn plan(name: &str) -> Plan {
    *PLANS
        .iter()
        .find(|plan| plan.name == name)
        .expect("a plan of this name")
}
