//! One lock server, and who competes on it.

use std::sync::Arc;

use benchmarks_load::{self as load, PERMITS, Result};
use lock_core::Locker;
use lock_core::backend::Capabilities;
use lock_mysql::Strategy;
use lock_zookeeper::ZooKeeperBackend;
use testbed::{Redis, Server, ZooKeeper};

use crate::entry::{Backend, Entry, MakeBackend};
use crate::maker::{maker, mysql_maker};
use crate::participant::{Participant, local};
use crate::peers::Peers;
use crate::subjects::counted::{Counted, Work};
use crate::subjects::held::{Held, HeldBare};
use crate::subjects::polylock::{Polylock, Raw, WithoutPasses};
use crate::subjects::quorum::Nodes;
use crate::subjects::takeover::TakeOver;
use crate::subjects::{
    blocking, core, costs, instructions, memory, mysql, parts, postgres, redis, tls, waiters, zookeeper,
};
use crate::workload::{LeaderEnd, Workload};

pub(crate) struct Benchmark {
    backend: Backend,
    make: MakeBackend,
    capabilities: Capabilities,
    peers: Peers,
    /// Dropped last.
    server: Option<Server>,
    nodes: Option<Nodes>,
}

impl Benchmark {
    /// Starts a server of its own and the peers.
    pub(crate) async fn start(backend: Backend) -> Result<Self> {
        let server = match backend {
            Backend::Memory | Backend::Quorum => None,
            Backend::Redis => Some(Redis::new().start().await?),
            Backend::Mysql => Some(mysql::server().start().await?),
            Backend::Postgres => Some(postgres::server().start().await?),
            Backend::Zookeeper => Some(ZooKeeper::new().start().await?),
        };
        let nodes = match backend {
            Backend::Quorum => Some(Nodes::start().await?),
            _ => None,
        };
        let url = match &nodes {
            Some(nodes) => nodes.urls(),
            None => server.as_ref().map(Server::url).unwrap_or_default(),
        };
        if backend == Backend::Redis {
            redis::without_persistence(&url).await?;
        }
        let make = match &nodes {
            Some(nodes) => nodes.maker(),
            None => maker(backend, &url),
        };
        // Makes what the backend needs at the server: the bare client uses the same.
        let locker = Locker::from_backend(make()?).without_label();
        locker.lock("first").acquire().await?.release().await.map(drop)?;
        let capabilities = locker.capabilities();
        locker.shutdown().await?;
        let peers = Peers::start(backend, &url).await;
        Ok(Self {
            backend,
            make,
            capabilities,
            peers,
            server,
            nodes,
        })
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Of the server and the peers.
    pub(crate) async fn versions(&self) -> Result<Vec<(String, String)>> {
        let url = self.url();
        let server = match self.backend {
            Backend::Memory => None,
            Backend::Redis => Some(redis::version(&url).await?),
            Backend::Mysql => Some(mysql::version(&url).await?),
            Backend::Postgres => Some(postgres::version(&url).await?),
            Backend::Zookeeper => Some(zookeeper::version(self.address())?),
            Backend::Quorum => match &self.nodes {
                Some(nodes) => Some(nodes.version().await?),
                None => None,
            },
        };
        let server = server.map(|version| ("server".to_owned(), version));
        Ok(server.into_iter().chain(self.peers.versions()).collect())
    }

    /// Who takes part in a workload; nobody where it makes no sense on this server.
    pub(crate) async fn entries(&self, workload: Workload) -> Vec<Entry> {
        if (workload, self.backend) == (Workload::Held, Backend::Mysql) {
            return vec![no_holders()];
        }
        if let Some(nodes) = &self.nodes {
            let mut entries = entries_of(nodes.participants(workload));
            if let Workload::Load(crowd @ load::Workload::Crowd { .. }) = workload {
                entries.extend(self.peers.entries(crowd));
            }
            return entries;
        }
        if let Workload::TakeOver(end) = workload {
            return self.candidates(end);
        }
        if let Workload::Tls(tasks) = workload {
            return match tls::participants(self.backend, tasks).await {
                Ok(participants) => entries_of(participants),
                Err(error) => vec![Entry {
                    subject: "tls".into(),
                    participant: Err(error.to_string()),
                    is_optional: false,
                }],
            };
        }
        if let Workload::Instructions(tasks) = workload {
            return match self.backend {
                Backend::Redis => instructions::entries(tasks).await,
                _ => Vec::new(),
            };
        }
        let mut entries = entries_of(match workload {
            Workload::Load(load::Workload::Crowd { .. }) | Workload::Down(_) => Vec::new(),
            Workload::Load(workload) if workload.is_exclusive() => self.players(workload),
            Workload::Load(workload) => self.sharers(workload),
            Workload::Core if self.backend == Backend::Memory => core::participants(),
            Workload::Core => Vec::new(),
            Workload::Costs(tasks) => self.costed(tasks),
            Workload::Parts(tasks) if self.backend == Backend::Memory => parts::participants(tasks),
            Workload::Parts(_) => Vec::new(),
            Workload::Blocking(threads) => blocking::participants(&self.make, threads),
            Workload::Held => self.holders(),
            Workload::Idle if self.backend == Backend::Mysql => {
                vec![(
                    "polylock",
                    Box::new(mysql::Idle::new(&self.url())) as Box<dyn Participant>,
                )]
            }
            Workload::Idle => Vec::new(),
            Workload::Names if self.backend == Backend::Postgres => {
                let advisory = postgres::Advisory::new(&self.url());
                let polylock = Polylock(self.make.clone());
                vec![
                    (
                        "polylock",
                        Box::new(postgres::Names::new(polylock, 0)) as Box<dyn Participant>,
                    ),
                    ("advisory", Box::new(postgres::Names::new(advisory, 0))),
                ]
            }
            Workload::Log if self.backend == Backend::Postgres => {
                let mut all = postgres::pairs(&self.make, &self.url());
                let renewals = postgres::Renewals::new(self.make.clone(), &self.url());
                all.push(("renewals", Box::new(renewals)));
                all
            }
            Workload::Bloat if self.backend == Backend::Postgres => {
                let bloat = postgres::Bloat::new(&self.url());
                vec![("polylock", Box::new(bloat) as Box<dyn Participant>)]
            }
            Workload::Names | Workload::Log | Workload::Bloat => Vec::new(),
            Workload::Waiters => waiters::participants(&self.make, self.backend == Backend::Memory),
            // Above.
            Workload::Tls(_) | Workload::TakeOver(_) | Workload::Instructions(_) => Vec::new(),
        });
        if let Workload::Blocking(threads) = workload {
            entries.extend(self.peers.blocking_entries(threads));
        }
        if let Workload::Load(workload) = workload
            && !entries.is_empty()
        {
            entries.extend(self.peers.entries(workload));
        }
        if self.backend == Backend::Redis && counts_commands(workload) {
            entries = entries.into_iter().map(|entry| self.counted(entry)).collect();
        }
        entries
    }

    /// Those of a workload with readers or permits; nobody where the backend has none.
    fn sharers(&self, workload: load::Workload) -> Vec<(&'static str, Box<dyn Participant>)> {
        let can = match workload {
            load::Workload::Permits { .. } => self.capabilities.permits >= PERMITS,
            _ => self.capabilities.shared,
        };
        can.then(|| ("polylock", local(Polylock(self.make.clone()), workload)))
            .into_iter()
            .collect()
    }

    /// Processes in an election; nobody where a server is in one process.
    fn candidates(&self, end: LeaderEnd) -> Vec<Entry> {
        if self.backend == Backend::Memory {
            return Vec::new();
        }
        let polylock = TakeOver::of_polylock(self.backend, &self.url(), end);
        let polylock = Entry {
            subject: "polylock".into(),
            participant: polylock
                .map(|candidates| Box::new(candidates) as Box<dyn Participant>)
                .map_err(|error| error.to_string()),
            is_optional: false,
        };
        [polylock].into_iter().chain(self.peers.candidates(end)).collect()
    }

    fn counted(&self, entry: Entry) -> Entry {
        let url = self.url();
        let work: Work = Box::new(move || Box::pin(redis::work(url.clone())));
        let counted = |participant| Box::new(Counted::new(participant, work)) as Box<dyn Participant>;
        Entry {
            participant: entry.participant.map(counted),
            ..entry
        }
    }

    fn players(&self, workload: load::Workload) -> Vec<(&'static str, Box<dyn Participant>)> {
        let alone = matches!(workload, load::Workload::Own { .. });
        let awaited = matches!(workload, load::Workload::Own { background: false, .. });
        let mut players = vec![("polylock", local(Polylock(self.make.clone()), workload))];
        if awaited {
            players.push(("raw-trait", local(Raw(self.make.clone()), workload)));
        }
        let contended = matches!(workload, load::Workload::One { .. } | load::Workload::Two { .. });
        if contended && self.capabilities.pass {
            players.push(("without-passes", local(WithoutPasses(self.make.clone()), workload)));
        }
        let url = self.url();
        match self.backend {
            Backend::Memory => {
                if !alone || awaited {
                    players.push(("plain", local(memory::Mutexes::default(), workload)));
                }
                if !alone {
                    players.push(("poll-10ms", local(memory::Poll::default(), workload)));
                }
            }
            Backend::Redis => {
                let bare = redis::Bare::new(&url);
                match workload {
                    load::Workload::Own { .. } => players.push(("bare", local(bare, workload))),
                    load::Workload::One { .. } => {
                        let one = load::Workload::One { tasks: 1 };
                        players.push(("bare", local(redis::Releases(bare), one)));
                    }
                    _ => {}
                }
                if !alone || awaited {
                    players.push((plain_or_poll(alone), local(redis::Plain::new(&url), workload)));
                }
            }
            Backend::Mysql => {
                // Its connection is the hold: there is nothing to send ahead on.
                if !alone || awaited {
                    players.push(("bare", local(mysql::Bare::new(&url), workload)));
                    players.push((plain_or_poll(alone), local(mysql::Plain::new(&url), workload)));
                }
                let leases = mysql_maker(&url, Strategy::Lease);
                players.push(("lease", local(Polylock(leases), workload)));
                if awaited {
                    players.push(("two-updates", local(mysql::TwoUpdates::new(&url), workload)));
                }
            }
            Backend::Postgres => {
                if awaited {
                    players.push(("bare", local(postgres::Bare::new(&url), workload)));
                    players.push(("two-updates", local(postgres::TwoUpdates::new(&url), workload)));
                }
                if !alone || awaited {
                    players.push(("advisory", local(postgres::Advisory::new(&url), workload)));
                }
            }
            Backend::Zookeeper => {
                players.push(("bare", local(zookeeper::Bare::new(self.address()), workload)));
                players.push((
                    plain_or_poll(alone),
                    local(zookeeper::Plain::new(self.address()), workload),
                ));
                if matches!(workload, load::Workload::Own { tasks: 64, .. }) {
                    let url = format!("{}&sessions=1", self.url());
                    let one: MakeBackend = Arc::new(move || Ok(Arc::new(ZooKeeperBackend::from_url(&url)?)));
                    players.push(("one-session", local(Polylock(one), workload)));
                }
            }
            // Its participants are others.
            Backend::Quorum => {}
        }
        players
    }

    /// Those of the same protocol: polylock, its trait, and the bare client.
    fn costed(&self, tasks: usize) -> Vec<(&'static str, Box<dyn Participant>)> {
        let url = self.measured();
        let own = load::Workload::Own {
            tasks,
            background: false,
        };
        let players = self.players(own).into_iter();
        players
            .filter(|(subject, _)| ["polylock", "raw-trait", "bare"].contains(subject))
            .map(|(subject, player)| (subject, costs::costed(player, url.clone())))
            .collect()
    }

    fn holders(&self) -> Vec<(&'static str, Box<dyn Participant>)> {
        let mut holders: Vec<(_, Box<dyn Participant>)> = Vec::new();
        let (url, address) = (self.url(), self.address().to_owned());
        let commands: crate::subjects::held::Commands = match self.backend {
            Backend::Redis => Box::new(move || Box::pin(redis::commands(url.clone()))),
            Backend::Zookeeper => Box::new(move || {
                let address = address.clone();
                Box::pin(async move { zookeeper::packets(&address) })
            }),
            Backend::Memory | Backend::Mysql | Backend::Postgres | Backend::Quorum => {
                Box::new(|| Box::pin(async { Ok(0) }))
            }
        };
        let held = Held::new(self.make.clone(), commands, self.measured());
        holders.push(("polylock", Box::new(held)));
        if self.backend == Backend::Redis {
            holders.push(("bare", Box::new(HeldBare::new(self.url()))));
        }
        holders
    }

    /// The server's URL, if it can be asked what it has used.
    fn measured(&self) -> Option<String> {
        matches!(self.backend, Backend::Redis | Backend::Postgres).then(|| self.url())
    }

    fn url(&self) -> String {
        self.server.as_ref().map(Server::url).unwrap_or_default()
    }

    fn address(&self) -> &str {
        self.server.as_ref().map_or("", Server::address)
    }
}

/// Whether it is about what a pair costs the server: nobody waits, and each participant has the server to itself.
fn counts_commands(workload: Workload) -> bool {
    use load::Workload::{Beside, Own};
    let alone = Own {
        tasks: 1,
        background: false,
    };
    matches!(workload, Workload::Load(workload) if workload == alone || matches!(workload, Beside { .. }))
}

fn entries_of(participants: Vec<(&'static str, Box<dyn Participant>)>) -> Vec<Entry> {
    let entry = |(subject, participant): (&str, _)| Entry {
        subject: subject.into(),
        participant: Ok(participant),
        is_optional: false,
    };
    participants.into_iter().map(entry).collect()
}

/// Of `held-10000` on row locks.
fn no_holders() -> Entry {
    let why = "every hold of a row lock is a connection, and 10,000 are more than a MySQL is set up for";
    Entry {
        subject: "polylock".into(),
        participant: Err(why.into()),
        is_optional: true,
    }
}

/// The plain commands where nobody competes, asked for again every 10 ms where somebody does.
fn plain_or_poll(alone: bool) -> &'static str {
    if alone { "plain" } else { "poll-10ms" }
}
