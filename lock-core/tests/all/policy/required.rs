//! What an application requires of its server: at start, and after a change.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use lock_core::{ErrorKind, Guarantee, LockName, Locker, MemoryBackend, Result, Verdict, acquire_all};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::seconds;

/// A server whose settings are read whenever a request connects to it.
#[derive(Clone, Debug)]
struct Server {
    memory: MemoryBackend,
    settings: Arc<Mutex<Verdict>>,
    read: Arc<Mutex<Option<Verdict>>>,
    /// Whether connecting never ends.
    silent: Arc<AtomicBool>,
    /// Whether the settings are known before that.
    reads_before_silence: Arc<AtomicBool>,
    connects: Arc<AtomicUsize>,
}

/// Of connecting.
const ROUND_TRIP: Duration = Duration::from_millis(10);

impl Server {
    fn new(settings: Verdict) -> Self {
        Self {
            memory: MemoryBackend::new(),
            settings: Arc::new(Mutex::new(settings)),
            read: Arc::default(),
            silent: Arc::default(),
            reads_before_silence: Arc::default(),
            connects: Arc::default(),
        }
    }

    fn set(&self, settings: Verdict) {
        *self.settings.lock().unwrap() = settings;
    }

    fn read(&self) {
        *self.read.lock().unwrap() = Some(self.settings.lock().unwrap().clone());
    }

    fn locks(&self) -> Locker {
        Locker::new(self.clone()).require([Guarantee::Fifo, Guarantee::Failover])
    }
}

fn miss() -> Verdict {
    Verdict::no("replicas=0 loses holds", "set replicas=1")
}

#[async_trait]
impl DistributedLock for Server {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        if !self.silent.load(Ordering::Relaxed) || self.reads_before_silence.load(Ordering::Relaxed) {
            self.read();
        }
        if self.silent.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.connects.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(ROUND_TRIP).await;
        self.memory.connect().await
    }

    fn keeps(&self, _: Guarantee) -> Verdict {
        let read = self.read.lock().unwrap().clone();
        read.unwrap_or_else(|| Verdict::unknown("it was not asked", "connect"))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        // Others enter the local queue meanwhile.
        yield_now().await;
        let attempt = self.memory.acquire(request).await;
        self.read();
        attempt
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.memory.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.memory.status(name).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_misses_one_is_refused_at_start() {
    let server = Server::new(miss());
    let error = server.locks().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error
            .to_string()
            .ends_with(": failover (replicas=0 loses holds: set replicas=1)"),
        "{error}"
    );
    // What is not required is no reason.
    Locker::new(server.clone()).connect().await.unwrap();
    let table = server.locks().guarantees().await.unwrap();
    assert!(table.contains(&(Guarantee::Failover, miss())), "{table:?}");
    assert!(table.contains(&(Guarantee::Fifo, Verdict::Yes)), "{table:?}");

    server.set(Verdict::Yes);
    server.locks().connect().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_asked_is_refused_unless_an_operator_vouches() {
    let server = Server::new(Verdict::unknown("INFO is forbidden", "permit it"));
    let error = server.locks().connect().await.unwrap_err();
    assert!(error.to_string().contains("trusting=failover"), "{error}");
    let trusting = server.locks().trusting([Guarantee::Failover]);
    trusting.connect().await.unwrap();
    trusting.lock("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_first_acquire_refuses_it_as_well_and_leaves_nothing() {
    let server = Server::new(miss());
    let locks = server.locks();
    let error = locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert_eq!(error.name().map(ToString::to_string).as_deref(), Some("a"));
    locks.shutdown().await.unwrap();
    assert!(!server.status(&LockName::new("a").unwrap()).await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn after_a_change_for_the_worse_acquires_fail_and_holds_stay() {
    let server = Server::new(Verdict::Yes);
    let locks = server.locks();
    let guard = locks.lock("a").ttl(seconds(9)).acquire().await.unwrap();

    server.set(miss());
    // It connects again, and may grant.
    let error = locks.lock("b").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    // It is known by now: no acquire is sent.
    let error = locks.lock("c").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    tokio::time::sleep(seconds(60)).await;
    assert!(guard.check().is_ok());
    // Whoever requires nothing is served.
    let other = Locker::new(server.clone());
    other
        .lock("b")
        .try_acquire()
        .await
        .unwrap()
        .expect("it was given back")
        .release()
        .await
        .unwrap();

    server.set(Verdict::Yes);
    locks.connect().await.unwrap();
    locks
        .lock("c")
        .try_acquire()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    guard.release().await.unwrap();
}

/// A backend whose acquires are refused has no other reason to connect.
#[tokio::test(start_paused = true)]
async fn after_a_change_for_the_better_acquires_succeed_again() {
    let server = Server::new(miss());
    let locks = server.locks();
    locks.connect().await.unwrap_err();
    locks.lock("a").try_acquire().await.unwrap_err();

    server.set(Verdict::Yes);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Misconfigured,
        "it was asked less than a second ago"
    );
    tokio::time::sleep(seconds(1)).await;
    let guard = locks.lock("a").try_acquire().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
}

/// Neither does a shutdown wait for that.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_connects_again_keeps_its_limit() {
    let server = Server::new(miss());
    let locks = server.locks();
    locks.connect().await.unwrap_err();
    server.silent.store(true, Ordering::Relaxed);
    let asked = Instant::now();
    let error = locks.lock("a").acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert_eq!(asked.elapsed(), seconds(3));

    let last = locks.clone();
    let last = tokio::spawn(async move { last.lock("a").acquire().await });
    tokio::time::sleep(seconds(1)).await;
    locks.shutdown().await.unwrap();
    assert_eq!(last.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
}

/// What was read before that is good.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_limit_is_over_while_it_connects_again_is_too_late() {
    let server = Server::new(miss());
    let locks = server.locks();
    locks.connect().await.unwrap_err();
    server.set(Verdict::Yes);
    server.silent.store(true, Ordering::Relaxed);
    server.reads_before_silence.store(true, Ordering::Relaxed);
    let asked = Instant::now();
    let error = locks.lock("a").acquire_within(seconds(3)).await.unwrap_err();
    assert_eq!((error.kind(), asked.elapsed()), (ErrorKind::Unavailable, seconds(3)));
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn those_who_come_while_it_connects_again_wait_for_that() {
    let server = Server::new(miss());
    let locks = server.locks();
    locks.connect().await.unwrap_err();
    server.set(Verdict::Yes);
    let before = server.connects.load(Ordering::Relaxed);
    let both = acquire_all(["a", "b"].map(|name| locks.lock(name))).await.unwrap();
    both.release().await.unwrap();
    assert_eq!(server.connects.load(Ordering::Relaxed), before + 1);
    // If it is still missed, all are refused, and none connects again.
    server.set(miss());
    server.read();
    tokio::time::sleep(seconds(1)).await;
    let lock = locks.lock("a");
    let refused = join_all((0..10).map(|_| lock.try_acquire())).await;
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(server.connects.load(Ordering::Relaxed), before + 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_server_that_became_worse_is_refused_when_it_is_granted() {
    let server = Server::new(Verdict::Yes);
    let locks = server.locks().with_passes(0);
    let guard = Locker::new(server.memory.clone()).lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { locks.lock("a").acquire().await });
    tokio::time::sleep(seconds(1)).await;
    server.set(miss());
    guard.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}

/// Nothing is sent for a pass.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_server_that_became_worse_is_refused_a_pass() {
    let server = Server::new(Verdict::Yes);
    let locks = server.locks();
    let guard = locks.lock("a").acquire().await.unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("a").acquire().await }
    });
    tokio::time::sleep(seconds(1)).await;
    server.set(miss());
    server.read();
    guard.release().await.unwrap();
    let error = next.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert_eq!(error.name().map(ToString::to_string).as_deref(), Some("a"));
    locks.shutdown().await.unwrap();
    assert!(!server.status(&LockName::new("a").unwrap()).await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_came_before_the_first_connection_is_refused_a_pass() {
    let server = Server::new(miss());
    let locks = Locker::new(server.clone());
    let (first, next) = (locks.lock("a"), locks.clone().require([Guarantee::Failover]).lock("a"));
    let passes = async {
        let guard = first.acquire().await.unwrap();
        tokio::time::sleep(seconds(1)).await;
        guard.release().await
    };
    let (passed, next) = tokio::join!(passes, next.acquire());
    assert!(passed.is_ok(), "it requires nothing");
    assert_eq!(next.unwrap_err().kind(), ErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_at_a_server_that_became_worse_is_refused_and_undone() {
    let server = Server::new(Verdict::Yes);
    let locks = server.locks();
    let mut guard = locks.rw_lock("a").upgradable().acquire().await.unwrap();
    server.set(miss());
    let error = guard.upgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    tokio::time::sleep(seconds(1)).await;
    let others = Locker::new(server.memory.clone());
    let reader = others.rw_lock("a").read().try_acquire().await.unwrap();
    assert!(reader.is_some(), "the guard reads on, beside others");
    assert!(guard.check().is_ok());
}
