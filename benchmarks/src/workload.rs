//! All that is played: what any lock can play, and what is about polylock's own cost.

use std::fmt;
use std::time::Duration;

use benchmarks_load as load;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Load(load::Workload),
    /// So many locks that are kept.
    Held,
    /// So many tasks that wait for one lock.
    Waiters,
    /// On memory: what core adds to the backend's trait.
    Core,
}

/// How many are held, and how many wait.
pub(crate) const MANY: usize = 10_000;

/// In the order of the tables.
pub(crate) fn all() -> Vec<Workload> {
    use load::Workload::{HandOff, One, Own};
    let own = |tasks| Own {
        tasks,
        background: false,
    };
    let background = |tasks| Own {
        tasks,
        background: true,
    };
    let mut all = vec![Workload::Core];
    all.extend([own(1), own(16), own(64), background(1), background(64)].map(Workload::Load));
    all.push(Workload::Load(One { tasks: 16 }));
    all.extend([Workload::Held, Workload::Waiters]);
    // Last, since a MariaDB takes long to recover from them.
    all.extend([2, 16, 128].map(|clients| Workload::Load(HandOff { clients })));
    all
}

impl Workload {
    /// How long a round is, where a plain one is so long.
    pub(crate) fn time(self, plain: Duration) -> Duration {
        match self {
            // Some hundred hand-offs a second, not ten thousands.
            Self::Load(load::Workload::HandOff { .. }) => 2 * plain,
            _ => plain,
        }
    }

    /// How much longer a round may take.
    pub(crate) fn patience(self) -> Duration {
        match self {
            // Whoever waits for the lock at the end has it once more.
            Self::Load(_) | Self::Core => Duration::from_secs(10),
            // Ten thousand are taken and given back.
            Self::Held | Self::Waiters => Duration::from_secs(120),
        }
    }

    /// For people.
    pub(crate) fn explain(self) -> String {
        match self {
            Self::Load(load::Workload::Own {
                tasks,
                background: false,
            }) => {
                format!("{}, release awaited; times are of a pair", own_names(tasks))
            }
            Self::Load(load::Workload::Own {
                tasks,
                background: true,
            }) => {
                format!("{}, released in the background; times are of a pair", own_names(tasks))
            }
            Self::Load(load::Workload::One { tasks }) => {
                format!("one name, {tasks} tasks of one client; times are of waiting")
            }
            Self::Load(load::Workload::HandOff { clients }) => format!(
                "one name, {clients} clients with a connection each, which hold it for 3 ms and pause for 2 ms; \
                 times are from one's release sent to the next one's acquired"
            ),
            Self::Load(_) => String::new(),
            Self::Held => format!(
                "{MANY} names held, with a ttl of 6 s and so renewed every 2 s; by ZooKeeper's sessions for 10 s"
            ),
            Self::Waiters => format!("{MANY} tasks of one client that wait for one name"),
            Self::Core => "one name, one task, on a runtime of one thread, by that thread's CPU".into(),
        }
    }
}

fn own_names(tasks: usize) -> String {
    match tasks {
        1 => "one task with a name of its own".into(),
        _ => format!("{tasks} tasks of one client, each with a name of its own"),
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(workload) => workload.fmt(f),
            Self::Held => write!(f, "held-{MANY}"),
            Self::Waiters => write!(f, "waiters-{MANY}"),
            Self::Core => f.write_str("core-1"),
        }
    }
}
