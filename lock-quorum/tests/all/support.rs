//! Nodes within the process that a test can cut off, silence and count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Link, Linked};
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, Change, DistributedLock, Hold, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal,
};
use lock_core::{FencingToken, Guarantee, LockName, Locker, MemoryBackend, Result, Verdict};
use lock_quorum::QuorumBackend;
use tokio::time::{sleep, timeout};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// The servers, and how many requests they were sent.
pub(crate) struct Servers {
    pub(crate) servers: Vec<MemoryBackend>,
    pub(crate) counts: Arc<Counts>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acquires: AtomicUsize,
    pub(crate) raises: AtomicUsize,
    pub(crate) ends: AtomicUsize,
    /// Acquires whose token the status is to show.
    pub(crate) shown: AtomicUsize,
    /// Acquires of a vote that its node is said to have lost.
    pub(crate) reinstating: AtomicUsize,
    /// Acquires that wait without a limit and adopt a token.
    pub(crate) adopting_waiters: AtomicUsize,
}

/// One client of all servers, with a link to each.
pub(crate) struct Client {
    pub(crate) backend: QuorumBackend,
    pub(crate) locks: Locker,
    pub(crate) links: Vec<Link>,
    /// By server: with `true`, it forgets a hold before the next renewal, which finds that out.
    pub(crate) forgets: Vec<Arc<AtomicBool>>,
}

impl Servers {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            servers: (0..nodes).map(|_| MemoryBackend::new()).collect(),
            counts: Arc::default(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.rotated(0)
    }

    /// A client whose list begins with this server.
    pub(crate) fn rotated(&self, first: usize) -> Client {
        self.listed(self.servers.len(), first)
    }

    /// A client that lists so many of the servers.
    pub(crate) fn of_first(&self, number: usize) -> Client {
        self.listed(number, 0)
    }

    fn listed(&self, number: usize, first: usize) -> Client {
        let servers = &self.servers[..number];
        let links: Vec<Link> = servers.iter().map(|_| Link::new()).collect();
        let forgets: Vec<Arc<AtomicBool>> = servers.iter().map(|_| Arc::default()).collect();
        let mut nodes: Vec<_> = servers
            .iter()
            .zip(&links)
            .zip(&forgets)
            .map(|((server, link), forgets)| {
                let linked = Linked::new(server.clone(), link.clone());
                let (counts, forgets) = (self.counts.clone(), forgets.clone());
                let counted = Counted {
                    linked,
                    counts,
                    forgets,
                };
                Arc::new(counted) as Arc<dyn DistributedLock>
            })
            .collect();
        nodes.rotate_left(first);
        let backend = QuorumBackend::new(nodes).unwrap();
        let locks = Locker::new(backend.clone()).with_ttl(TTL);
        Client {
            backend,
            locks,
            links,
            forgets,
        }
    }

    /// Has the server grant so many tokens.
    pub(crate) fn use_up_tokens(&self, node: usize, tokens: usize) {
        for _ in 0..tokens {
            self.servers[node].hold_elsewhere("another", TTL).unwrap();
        }
        self.servers[node].take_away("another").unwrap();
    }

    /// Who has the name at this server, by its label.
    pub(crate) async fn holder(&self, node: usize, name: &str) -> Option<Arc<str>> {
        let status = self.servers[node].status(&LockName::new(name).unwrap()).await.unwrap();
        let holder = status.holders.first()?;
        Some(holder.label.clone().unwrap_or_else(|| "unknown".into()))
    }

    /// Waits until one request waits in the queue of this server.
    pub(crate) async fn until_waiting(&self, node: usize, name: &str) {
        let name = LockName::new(name).unwrap();
        let waits = async {
            while self.servers[node].status(&name).await.unwrap().waiting != Some(1) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(TTL, waits).await.expect("it waits there");
    }

    /// Waits until no server has anything of this name: less time than it takes to expire.
    pub(crate) async fn until_free(&self, name: &str) {
        self.free_within(TTL / 3, name).await;
    }

    /// The same, for so long.
    pub(crate) async fn free_within(&self, time: Duration, name: &str) {
        let free = async {
            loop {
                let mut left = 0;
                for server in &self.servers {
                    let status = server.status(&LockName::new(name).unwrap()).await.unwrap();
                    left += status.holders.len() + status.waiting.unwrap_or(0);
                }
                if left == 0 {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(time, free).await.expect("nothing is left at any server");
    }
}

impl Counts {
    pub(crate) fn take(&self) -> [usize; 3] {
        [&self.acquires, &self.raises, &self.ends].map(|count| count.swap(0, Ordering::SeqCst))
    }

    fn add(count: &AtomicUsize) {
        count.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Counted {
    linked: Linked,
    counts: Arc<Counts>,
    forgets: Arc<AtomicBool>,
}

#[derive(Debug)]
struct CountedHold {
    hold: Arc<dyn Hold>,
    counts: Arc<Counts>,
    forgets: Arc<AtomicBool>,
}

#[async_trait]
impl DistributedLock for Counted {
    fn capabilities(&self) -> Capabilities {
        self.linked.capabilities()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        self.linked.keeps(guarantee)
    }

    async fn connect(&self) -> Result<()> {
        self.linked.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        Counts::add(&self.counts.acquires);
        if request.shows_token() {
            Counts::add(&self.counts.shown);
        }
        if request.reinstates() {
            Counts::add(&self.counts.reinstating);
        }
        if request.waits() && request.time_left().is_none() && request.token_at_least().is_some() {
            Counts::add(&self.counts.adopting_waiters);
        }
        Ok(match self.linked.acquire(request).await? {
            Attempt::Granted(hold, armed) => {
                let (counts, forgets) = (self.counts.clone(), self.forgets.clone());
                let hold = CountedHold { hold, counts, forgets };
                Attempt::Granted(Arc::new(hold), armed)
            }
            other => other,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        Counts::add(&self.counts.ends);
        self.linked.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.linked.status(name).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        self.linked.follow(name).await
    }
}

#[async_trait]
impl Hold for CountedHold {
    fn token(&self) -> FencingToken {
        self.hold.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        if self.forgets.swap(false, Ordering::SeqCst) {
            self.hold.release(ReleaseOptions::default()).await?;
        }
        self.hold.renew(ttl).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        Counts::add(&self.counts.raises);
        self.hold.raise_token(token).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        Counts::add(&self.counts.ends);
        self.hold.release(how).await
    }
}
