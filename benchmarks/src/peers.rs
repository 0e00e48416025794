//! Other lock libraries, each in a process of its own that runs on command: see [`benchmarks_load::serve`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{Figures, Result, Workload};
use benchmarks_programs::Program;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use self::build::Family;
use self::process::Process;
use crate::entry::{Backend, Entry};
use crate::participant::Participant;
use crate::subjects::takeover::TakeOver;
use crate::workload::LeaderEnd;

mod build;
mod process;

/// One of them.
struct Peer {
    name: &'static str,
    backend: Backend,
    family: Family,
    /// Whether its release is awaited; else it always goes on in the background.
    awaited: bool,
    /// Whether it has readers and permits.
    modes: bool,
    /// Whether it plays nothing but `blocking-1` and `blocking-16`.
    blocking_alone: bool,
}

const fn peer(name: &'static str, backend: Backend, family: Family) -> Peer {
    Peer {
        name,
        backend,
        family,
        awaited: true,
        modes: false,
        blocking_alone: false,
    }
}

const PEERS: [Peer; 11] = [
    peer("rslock", Backend::Redis, Family::Rust),
    peer("distributed-lock-redis", Backend::Redis, Family::Rust),
    peer("rueidislock", Backend::Redis, Family::Go),
    peer("redsync", Backend::Redis, Family::Go),
    Peer {
        modes: true,
        ..peer("redisson", Backend::Redis, Family::Java)
    },
    Peer {
        blocking_alone: true,
        ..peer("redis-py", Backend::Redis, Family::Python)
    },
    peer("redsync", Backend::Quorum, Family::Go),
    peer("redisson", Backend::Quorum, Family::Java),
    peer("distributed-lock-mysql", Backend::Mysql, Family::Rust),
    Peer {
        awaited: false,
        ..peer("zookeeper-client", Backend::Zookeeper, Family::Rust)
    },
    peer("curator", Backend::Zookeeper, Family::Java),
];

/// Whether it is another library.
pub(crate) fn is_peer(subject: &str) -> bool {
    PEERS.iter().any(|peer| peer.name == subject)
}

/// How long a peer may take to get ready, and by how much it may be late with a round.
const PATIENCE: Duration = Duration::from_secs(20);
const LATE: Duration = Duration::from_secs(5);

/// Those of one backend, each with its process, or why there is none.
pub(crate) struct Peers(Vec<(&'static Peer, Started)>);

type Started = std::result::Result<Arc<Mutex<Process>>, String>;

impl Peers {
    /// Builds and starts all that can be.
    pub(crate) async fn start(backend: Backend, url: &str) -> Self {
        let mut peers = Vec::new();
        let mut built: Vec<(Family, std::result::Result<Program, String>)> = Vec::new();
        for peer in PEERS.iter().filter(|peer| peer.backend == backend) {
            let known = built.iter().find(|(family, _)| *family == peer.family);
            let program = match known {
                Some((_, program)) => program.clone(),
                None => {
                    let program = build::build(peer.family, backend).await;
                    built.push((peer.family, program.clone()));
                    program
                }
            };
            let started = match program {
                Ok(program) => start(program, url).await,
                Err(why) => Err(why),
            };
            peers.push((peer, started));
        }
        Self(peers)
    }

    pub(crate) fn versions(&self) -> Vec<(String, String)> {
        let version = |(peer, started): &(&Peer, Started)| {
            let process = started.as_ref().ok()?.try_lock().ok()?;
            Some((peer.name.to_owned(), process.version(peer.name)?))
        };
        self.0.iter().filter_map(version).collect()
    }

    pub(crate) fn entries(&self, workload: Workload) -> Vec<Entry> {
        let takes_part = |peer: &Peer| match workload {
            Workload::Own { background, .. } => background != peer.awaited,
            workload => workload.is_exclusive() || peer.modes,
        };
        self.remotes(workload, |peer| !peer.blocking_alone && takes_part(peer))
    }

    /// Those whose calls block, with so many threads.
    pub(crate) fn blocking_entries(&self, threads: usize) -> Vec<Entry> {
        let own = Workload::Own {
            tasks: threads,
            background: false,
        };
        self.remotes(own, |peer| matches!(peer.family, Family::Java | Family::Python))
    }

    /// Those that can elect a leader, in processes of their own.
    pub(crate) fn candidates(&self, end: LeaderEnd) -> Vec<Entry> {
        let electing = self.0.iter().filter(|(peer, _)| peer.family == Family::Java);
        let entry = |(peer, started): &(&'static Peer, Started)| Entry {
            subject: peer.name.into(),
            participant: started.clone().and_then(|process| {
                let process = process.try_lock().map_err(|_| "it is busy".to_owned())?;
                let candidates = TakeOver::new(build::electing(process.program()), peer.name, end);
                Ok(Box::new(candidates) as Box<dyn Participant>)
            }),
            is_optional: true,
        };
        electing.map(entry).collect()
    }

    fn remotes(&self, workload: Workload, takes_part: impl Fn(&Peer) -> bool) -> Vec<Entry> {
        let participants = self.0.iter().filter(|(peer, _)| takes_part(peer));
        let entry = |(peer, started): &(&'static Peer, Started)| Entry {
            subject: peer.name.into(),
            participant: started.clone().map(|process| {
                let name = peer.name;
                Box::new(Remote {
                    name,
                    process,
                    workload,
                }) as Box<dyn Participant>
            }),
            is_optional: true,
        };
        participants.map(entry).collect()
    }
}

async fn start(mut program: Program, url: &str) -> Started {
    program.arguments.push(url.into());
    let started = Process::start(program, PATIENCE).await;
    let process = started.map_err(|error| format!("it does not start: {error}"))?;
    Ok(Arc::new(Mutex::new(process)))
}

struct Remote {
    name: &'static str,
    process: Arc<Mutex<Process>>,
    workload: Workload,
}

impl Remote {
    async fn order(&self, order: &str, patience: Duration) -> Result<Map<String, Value>> {
        self.process.lock().await.order(order, patience).await
    }
}

#[async_trait]
impl Participant for Remote {
    async fn enter(&mut self) -> Result<()> {
        self.process.lock().await.revive(PATIENCE).await?;
        let order = format!("enter {} {}", self.name, self.workload);
        self.order(&order, PATIENCE).await.map(drop)
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let order = format!("round {} {}", self.name, time.as_millis());
        let answer = self.order(&order, time + LATE).await?;
        let figure = |(unit, value): (String, Value)| Ok((unit.parse()?, value.as_f64().ok_or("no number")?));
        answer.into_iter().map(figure).collect()
    }

    async fn leave(&mut self) {
        // It ends with us, if it does not hear it.
        let _ = self.order(&format!("leave {}", self.name), PATIENCE).await;
    }
}
