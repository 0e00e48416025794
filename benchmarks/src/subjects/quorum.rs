//! A quorum of three Redis, and what it is compared with.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use benchmarks_load::{self as load, Figures, Result, Unit};
use conformance_tests::{FaultProxy, Link};
use lock_core::backend::DistributedLock;
use lock_quorum::{QuorumBackend, rules};
use lock_redis::RedisBackend;
use testbed::{Redis, Server};

use super::polylock::Polylock;
use super::redis;
use crate::entry::MakeBackend;
use crate::participant::{Participant, local};
use crate::workload::Workload;

type Participants = Vec<(&'static str, Box<dyn Participant>)>;

/// How much later each message of `own-1` arrives, in each direction.
const DELAY: Duration = Duration::from_millis(1);

/// Three Redis, each with a slow way to it as well.
pub(crate) struct Nodes {
    servers: [Server; 3],
    slow: Vec<FaultProxy>,
}

impl Nodes {
    pub(crate) async fn start() -> Result<Self> {
        let servers = [start().await?, start().await?, start().await?];
        let mut slow = Vec::new();
        for server in &servers {
            let link = Link::new();
            link.delay(DELAY);
            slow.push(FaultProxy::start(server.address().parse()?, link).await?);
        }
        Ok(Self { servers, slow })
    }

    /// With commas between them.
    pub(crate) fn urls(&self) -> String {
        self.servers.each_ref().map(Server::url).join(",")
    }

    pub(crate) async fn version(&self) -> Result<String> {
        Ok(format!("three times {}", redis::version(&self.servers[0].url()).await?))
    }

    pub(crate) fn maker(&self) -> MakeBackend {
        maker(self.servers.each_ref().map(Server::url).to_vec())
    }

    pub(crate) fn participants(&self, workload: Workload) -> Participants {
        match workload {
            Workload::Load(
                own @ load::Workload::Own {
                    tasks: 1,
                    background: false,
                },
            ) => {
                let slow: Vec<String> = self
                    .slow
                    .iter()
                    .map(|proxy| format!("redis://{}", proxy.address()))
                    .collect();
                let bare = redis::Bare::new(&slow[0]);
                let quorum = local(Polylock(maker(slow)), own);
                vec![("polylock", self.asked(quorum)), ("bare", local(bare, own))]
            }
            Workload::Load(crowd @ load::Workload::Crowd { .. }) => {
                vec![("polylock", self.asked(local(Polylock(self.maker()), crowd)))]
            }
            Workload::Down(clients) => {
                let crowd = load::Workload::Crowd { clients };
                let participant = local(Polylock(self.maker()), crowd);
                // Whom all ask first for the workload's name.
                let address = |server: &Server| RedisBackend::from_url(&server.url()).ok()?.address();
                let addresses: Vec<String> = self.servers.iter().filter_map(address).collect();
                let first = rules::order_by_address("crowd", &addresses).first().copied();
                let first = first.unwrap_or_default();
                let server = self.servers[first].clone();
                vec![("polylock", Box::new(Down { participant, server }))]
            }
            _ => Vec::new(),
        }
    }

    fn asked(&self, participant: Box<dyn Participant>) -> Box<dyn Participant> {
        let urls = self.servers.each_ref().map(Server::url);
        Box::new(Asked { participant, urls })
    }
}

async fn start() -> Result<Server> {
    let server = Redis::new().start().await?;
    redis::without_persistence(&server.url()).await?;
    Ok(server)
}

fn maker(urls: Vec<String>) -> MakeBackend {
    Arc::new(move || {
        let node = |url: &String| Ok(Arc::new(RedisBackend::from_url(url)?) as Arc<dyn DistributedLock>);
        let nodes = urls.iter().map(node).collect::<lock_core::Result<Vec<_>>>()?;
        Ok(Arc::new(QuorumBackend::new(nodes)?))
    })
}

/// Counts the requests that it sends to all servers.
struct Asked {
    participant: Box<dyn Participant>,
    urls: [String; 3],
}

async fn requests(urls: &[String]) -> Result<u64> {
    let mut requests = 0;
    for url in urls {
        requests += redis::scripts_called(url).await?;
    }
    Ok(requests)
}

#[async_trait]
impl Participant for Asked {
    async fn enter(&mut self) -> Result<()> {
        self.participant.enter().await
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        let before = requests(&self.urls).await?;
        let mut figures = self.participant.round(time).await?;
        let requests = requests(&self.urls).await? - before;
        if let Some((_, pairs)) = figures.iter().find(|(unit, _)| *unit == Unit::Pairs).copied() {
            figures.push((Unit::RequestsPerPair, requests as f64 / pairs));
        }
        Ok(figures)
    }

    async fn leave(&mut self) {
        self.participant.leave().await;
    }
}

/// Takes part while this server is dead.
struct Down {
    participant: Box<dyn Participant>,
    server: Server,
}

#[async_trait]
impl Participant for Down {
    async fn enter(&mut self) -> Result<()> {
        self.participant.enter().await?;
        Ok(self.server.kill()?)
    }

    async fn round(&mut self, time: Duration) -> Result<Figures> {
        self.participant.round(time).await
    }

    async fn leave(&mut self) {
        self.participant.leave().await;
        if let Err(error) = self.server.restart_without_data().await {
            eprintln!("  a server that was killed does not start again: {error}");
        }
    }
}
