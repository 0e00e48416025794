//! Observers that the server tells of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, Change, DistributedLock, LockStatus};
use lock_core::{LockName, Locker, MemoryBackend, Result};
use tokio::time::{Instant, sleep, timeout};

use super::{TTL, seconds};

/// How often an observer asks at most because of changes.
const PAUSE: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_secs(3);

/// A client that reports changes as it is told to, and counts the questions.
#[derive(Clone, Debug)]
struct Client {
    server: MemoryBackend,
    asked: Arc<AtomicUsize>,
    reports: Reports,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    EachChange,
    /// All wake-ups get lost.
    Nothing,
    /// Whether there is a change or not.
    AtOnce,
}

#[async_trait]
impl DistributedLock for Client {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.server.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.server.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.server.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server.status(name).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (status, change) = self.server.follow(name).await?;
        Ok(match self.reports {
            Reports::EachChange => (status, change),
            Reports::Nothing => (status, Change::never()),
            Reports::AtOnce => (status, Change::new(std::future::ready(()))),
        })
    }
}

fn client(reports: Reports) -> (MemoryBackend, Client, Locker) {
    let client = Client {
        server: MemoryBackend::new(),
        asked: Arc::default(),
        reports,
    };
    (client.server.clone(), client.clone(), Locker::new(client).with_ttl(TTL))
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_server_reports_is_known_at_once() {
    let (server, _client, observes) = client(Reports::EachChange);
    let ours = Locker::new(server);
    let mut seen = observes.election("a").ttl(seconds(3600)).observe();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(leader) = seen.changed().await {
            tell.send((leader.term(), Instant::now())).unwrap();
        }
    });
    for round in 1..20 {
        // Nobody leads for some time, or only for a moment.
        sleep(Duration::from_millis(7 * round)).await;
        let term = ours.election("a").campaign().await.unwrap();
        let elected = Instant::now();
        let (seen, known) = told.recv().await.unwrap();
        assert_eq!(seen, term.token());
        assert!(known - elected <= PAUSE, "known after {:?}", known - elected);
        sleep(seconds(1)).await;
        term.resign().await.unwrap();
    }
}

/// Also the first one, on a name that nobody ever held, with no pause before.
#[tokio::test(start_paused = true)]
async fn the_first_leader_is_known_at_once() {
    let (server, _client, observes) = client(Reports::EachChange);
    let mut seen = observes.election("a").ttl(seconds(3600)).observe();
    let observing = tokio::spawn(async move { seen.changed().await.map(|leader| (leader.term(), Instant::now())) });
    sleep(seconds(60)).await;
    let term = Locker::new(server).election("a").campaign().await.unwrap();
    let elected = Instant::now();
    assert_eq!(observing.await.unwrap().unwrap(), (term.token(), elected));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_missed_is_found_by_the_poll() {
    let (server, client, observes) = client(Reports::Nothing);
    let ours = Locker::new(server);
    let mut seen = observes.election("a").observe();
    assert!(timeout(10 * PERIOD, seen.changed()).await.is_err());
    let polls = client.asked.load(Ordering::SeqCst);
    assert!((10..=15).contains(&polls), "{polls}");
    let term = ours.election("a").campaign().await.unwrap();
    let leader = timeout(PERIOD, seen.changed()).await.expect("in time").unwrap();
    assert_eq!(leader.term(), term.token());
}

/// A name that changes hands all the time, or a server that reports what has not happened, costs a request each 20 ms.
#[tokio::test(start_paused = true)]
async fn an_observer_asks_no_more_often_than_it_may() {
    let (server, client, observes) = client(Reports::AtOnce);
    let term = Locker::new(server).election("a").campaign().await.unwrap();
    let mut seen = observes.election("a").observe();
    assert_eq!(seen.changed().await.unwrap().term(), term.token());
    // Dropped again and again, which asks no more often.
    for _ in 0..1000 {
        assert!(timeout(Duration::from_millis(1), seen.changed()).await.is_err());
    }
    let asked = client.asked.load(Ordering::SeqCst);
    assert!((40..=51).contains(&asked), "{asked} requests in a second");
}
