//! All that is played: what any lock can play, and what is about polylock's own cost.

use std::fmt;
use std::time::Duration;

use benchmarks_load::{self as load, BACKGROUND_NAMES, PERMITS, RW_TASKS};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Load(load::Workload),
    /// So many locks that are kept.
    Held,
    /// On MySQL: so many row locks that are kept, each by a connection of its own.
    Idle,
    /// On a quorum: so many clients that acquire and release one name while a server is dead.
    Down(usize),
    /// So many tasks that wait for one lock.
    Waiters,
    /// On PostgreSQL: tasks of several clients that wait for many names.
    Names,
    /// On PostgreSQL: what pairs and renewals write to its log.
    Log,
    /// On PostgreSQL: how far the tables grow in minutes of load.
    Bloat,
    /// On memory: what core adds to the backend's trait.
    Core,
    /// So many tasks, each with a name of its own: what a pair costs client and server.
    Costs(usize),
    /// On Redis: so many tasks, each with a name of its own: the server's instructions for a pair.
    Instructions(usize),
    /// So many tasks, each with a name of its own, over TLS and without.
    Tls(usize),
    /// So many threads, each with a name of its own: the API without async beside the async one.
    Blocking(usize),
    /// How long nobody leads after the leader of an election has gone.
    TakeOver(LeaderEnd),
    /// What single operations of the runtime and of the system cost where so many tasks do them.
    Parts(usize),
}

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderEnd {
    /// It resigns, and stays a candidate.
    Resign,
    /// It resigns, and its process closes its client and exits.
    Close,
    /// Its process is killed.
    Kill,
}

impl fmt::Display for LeaderEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resign => "resign",
            Self::Close => "close",
            Self::Kill => "kill",
        })
    }
}

/// How many are held, and how many wait.
pub(crate) const MANY: usize = 10_000;
/// How many are held where each takes a connection.
pub(crate) const MANY_CONNECTIONS: usize = 1000;

/// The names that many wait for, and the clients that do.
pub(crate) const NAMES: usize = 100;
pub(crate) const NAMED_CLIENTS: usize = 10;

/// In the order of the tables.
pub(crate) fn all() -> Vec<Workload> {
    use load::Workload::{Beside, Crowd, HandOff, One, Own, Permits, Read, ReadWrite, Two};
    let own = |tasks| Own {
        tasks,
        background: false,
    };
    let background = |tasks| Own {
        tasks,
        background: true,
    };
    let mut all = vec![Workload::Core, Workload::Parts(16)];
    all.extend([own(1), own(16), own(64), background(1), background(64)].map(Workload::Load));
    all.extend([16, 64].map(Workload::Costs));
    all.push(Workload::Instructions(64));
    all.push(Workload::Tls(64));
    all.extend([1, 16].map(Workload::Blocking));
    all.extend([One { tasks: 16 }, Two { tasks: 16 }].map(Workload::Load));
    all.extend([3, 100].map(|clients| Workload::Load(Crowd { clients })));
    all.push(Workload::Down(100));
    let modes = [Read { tasks: 16 }, ReadWrite { percent: 90 }, Permits { tasks: 64 }];
    all.extend(modes.map(Workload::Load));
    all.extend([1, 10, 100].map(|readers| Workload::Load(Beside { readers })));
    all.extend([
        Workload::Held,
        Workload::Idle,
        Workload::Waiters,
        Workload::Names,
        Workload::Log,
        Workload::Bloat,
    ]);
    all.extend([LeaderEnd::Resign, LeaderEnd::Close, LeaderEnd::Kill].map(Workload::TakeOver));
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
            // A share is of as many pairs as a client has in a round.
            Self::Load(load::Workload::Crowd { .. }) | Self::Down(_) | Self::Names => 6 * plain,
            // A table that grows needs some seconds to do so.
            Self::Log => 20 * plain,
            // The server is some fifty times slower.
            Self::Instructions(_) => 2 * plain,
            // A minute: as often autovacuum looks.
            Self::Bloat => 120 * plain,
            _ => plain,
        }
    }

    /// How much longer a round may take.
    pub(crate) fn patience(self) -> Duration {
        match self {
            // Whoever waits for the lock at the end has it once more, after some switches of tasks on a busy machine.
            Self::Load(load::Workload::HandOff { clients }) => Duration::from_secs(10 + clients as u64 / 4),
            Self::Down(_) | Self::Instructions(_) => Duration::from_secs(30),
            Self::Load(_) | Self::Core | Self::Costs(_) | Self::Tls(_) | Self::Blocking(_) | Self::Parts(_) => {
                Duration::from_secs(10)
            }
            // Processes are started, and a session or lease ends by itself.
            Self::TakeOver(_) => Duration::from_secs(90),
            // Ten thousand are taken and given back.
            Self::Held | Self::Idle | Self::Waiters | Self::Names | Self::Log | Self::Bloat => Duration::from_secs(120),
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
                let tasks = match tasks {
                    1 => "one task".into(),
                    _ => format!("{tasks} tasks of one client"),
                };
                format!(
                    "{tasks} with {BACKGROUND_NAMES} names of its own each, taken in turn and released in the background: nobody \
                     wants a name whose release is under way; times are of a pair"
                )
            }
            Self::Load(load::Workload::One { tasks }) => {
                format!("one name, {tasks} tasks of one client; times are of waiting")
            }
            Self::Load(load::Workload::Two { tasks }) => format!(
                "one name, 2 clients with a connection and {tasks} tasks each; times are of waiting, shares of clients"
            ),
            Self::Load(load::Workload::Crowd { clients }) => explain_crowd(clients),
            Self::Down(clients) => format!(
                "{}; the server that they would all ask first is dead",
                explain_crowd(clients)
            ),
            Self::Load(load::Workload::Read { tasks }) => {
                format!("one name that {tasks} tasks of one client read; times are of waiting")
            }
            Self::Load(load::Workload::ReadWrite { percent }) => format!(
                "one name, 2 clients with a connection and {RW_TASKS} tasks each, of whose acquires {percent} % read \
                 and the others write; times are of waiting, shares of clients"
            ),
            Self::Load(load::Workload::Permits { tasks }) => {
                format!(
                    "one semaphore of {PERMITS} permits, {tasks} tasks of one client that take one each; times are of waiting"
                )
            }
            Self::Load(load::Workload::Beside { readers }) => {
                format!("one task that reads a name, beside {readers} that read it all the time; times are of a pair")
            }
            Self::Load(load::Workload::HandOff { clients }) => format!(
                "one name, {clients} clients with a connection each, which hold it for 3 ms and pause for 2 ms; \
                 times are from one's release sent to the next one's acquired"
            ),
            Self::Load(_) => String::new(),
            Self::Held => format!(
                "{MANY} names held, with a ttl of 6 s and so renewed every 2 s; by ZooKeeper's sessions for 10 s"
            ),
            Self::Idle => {
                format!("{MANY_CONNECTIONS} names held as row locks, with a ttl of 30 s and so renewed every 10 s")
            }
            Self::Waiters => format!("{MANY} tasks of one client that wait for one name"),
            Self::Names => format!(
                "{NAMES} names, {NAMED_CLIENTS} clients with a connection and a task for each name: {} wait",
                NAMES * NAMED_CLIENTS
            ),
            Self::Log => "one name, one task, and what its pairs write; 1,000 names that are renewed at once".into(),
            Self::Bloat => format!(
                "the load of names-{NAMES} with one client that reads; tables, indexes and dead rows after each round, which \
                 follow each other without a pause"
            ),
            Self::Core => "one name, one task, on a runtime of one thread, by that thread's CPU".into(),
            Self::Costs(tasks) => format!("{}, and what a pair costs", own_names(tasks)),
            Self::Instructions(tasks) => format!(
                "{}, on a server that valgrind runs and whose instructions it counts",
                own_names(tasks)
            ),
            Self::Tls(tasks) => format!("{}, over TLS and without, on one server", own_names(tasks)),
            Self::Blocking(threads) => {
                format!(
                    "{}, and as many threads without async; release awaited",
                    own_names(threads)
                )
            }
            Self::TakeOver(end) => {
                let how = match end {
                    LeaderEnd::Resign => "the order to resign",
                    LeaderEnd::Close => "the order to resign, close the client and exit",
                    LeaderEnd::Kill => "a SIGKILL to the leader's process",
                };
                format!(
                    "an election of two processes, with a ttl or session timeout of 10 s; times are from {how} until the other one \
                     leads, one each round"
                )
            }
            Self::Parts(tasks) => format!("{tasks} tasks on this runtime that do one operation again and again"),
        }
    }
}

fn explain_crowd(clients: usize) -> String {
    format!("one name, {clients} clients with connections of their own; times are of waiting, shares of clients")
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
            Self::Idle => write!(f, "idle-{MANY_CONNECTIONS}"),
            Self::Down(clients) => write!(f, "crowd-{clients}-down"),
            Self::Waiters => write!(f, "waiters-{MANY}"),
            Self::Names => write!(f, "names-{NAMES}"),
            Self::Log => f.write_str("log-1"),
            Self::Bloat => write!(f, "bloat-{NAMES}"),
            Self::Core => f.write_str("core-1"),
            Self::Costs(tasks) => write!(f, "costs-{tasks}"),
            Self::Instructions(tasks) => write!(f, "instructions-{tasks}"),
            Self::Tls(tasks) => write!(f, "tls-{tasks}"),
            Self::Blocking(threads) => write!(f, "blocking-{threads}"),
            Self::TakeOver(end) => write!(f, "takeover-{end}"),
            Self::Parts(tasks) => write!(f, "parts-{tasks}"),
        }
    }
}
