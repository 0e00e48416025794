//! What a forked process has of its parent's: every use is refused, and what it drops changes nothing for the parent.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_core::backend::{AcquireRequest, Attempt, Capabilities, DistributedLock, LockStatus};
use polylock::{ErrorKind, Guarantee, Guard, HoldState, LockName, Locker, LostCause, MemoryBackend, Release, Verdict};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::fork::{FINE, current_thread, fork_off, in_a_process_of_its_own, wait_for};

/// How often a process forks while its other threads use a locker.
const FORKS: usize = 20;
/// How long a use of a locker may take to be refused.
const AT_MOST: Duration = testbed::steady::AT_MOST;
/// The ttl of what the parent holds meanwhile. A busy machine stands still for less than two thirds of it.
const TTL: Duration = Duration::from_secs(12);

#[test]
fn a_forked_process_uses_nothing_of_its_parents_in_memory() {
    in_a_process_of_its_own("memory:", fork_while_busy, all_refused);
}

#[cfg(feature = "redis")]
#[test]
fn a_forked_process_uses_nothing_of_its_parents_on_redis() {
    crate::fork::in_a_process_with(testbed::Redis::new().start(), "", fork_while_busy, all_refused);
}

#[cfg(feature = "mysql")]
#[test]
fn a_forked_process_uses_nothing_of_its_parents_on_mysql() {
    crate::fork::in_a_process_with(testbed::MariaDb::new().start(), "", fork_while_busy, all_refused);
}

#[cfg(feature = "postgres")]
#[test]
fn a_forked_process_uses_nothing_of_its_parents_on_postgres() {
    crate::fork::in_a_process_with(testbed::Postgres::new().start(), "", fork_while_busy, all_refused);
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_forked_process_uses_nothing_of_its_parents_on_zookeeper() {
    let server = testbed::ZooKeeper::new().tick(TTL / 6).start();
    crate::fork::in_a_process_with(server, "&session_timeout=12s", fork_while_busy, all_refused);
}

/// A backend that must not be asked in a forked process: whatever it locks may be locked there for ever.
#[derive(Debug)]
struct OfOneProcess {
    memory: MemoryBackend,
    process: u32,
}

#[async_trait]
impl DistributedLock for OfOneProcess {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn keeps(&self, _: Guarantee) -> Verdict {
        assert_eq!(std::process::id(), self.process, "asked in a forked process");
        Verdict::Yes
    }

    async fn connect(&self) -> polylock::Result<()> {
        self.memory.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> polylock::Result<Attempt> {
        self.memory.acquire(request).await
    }

    async fn abandon(&self, request: &AcquireRequest) -> polylock::Result<()> {
        self.memory.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> polylock::Result<LockStatus> {
        self.memory.status(name).await
    }
}

#[test]
fn a_forked_process_asks_no_backend_what_its_parents_require() {
    in_a_process_of_its_own("", require_and_fork, |reports| assert_eq!(reports, [FINE]));
}

fn require_and_fork(_: &str) {
    let backend = OfOneProcess {
        memory: MemoryBackend::new(),
        process: std::process::id(),
    };
    let locks = Locker::new(backend).require([Guarantee::Failover]);
    let lock = locks.lock("free");
    current_thread().block_on(async {
        locks.connect().await.expect("it keeps all");
        lock.acquire()
            .await
            .expect("a grant")
            .release()
            .await
            .expect("still ours");
    });
    wait_for(fork_off(|| {
        current_thread().block_on(async {
            refused("try_acquire", lock.try_acquire()).await?;
            refused("acquire_within", lock.acquire_within(AT_MOST)).await?;
            refused("acquire", lock.acquire()).await
        })
    }));
}

fn all_refused(reports: Vec<String>) {
    assert_eq!(reports, vec![FINE; FORKS], "one report of each forked process");
}

/// A process with two lockers. It holds a lock of each, and forks while its other threads use the first one.
fn fork_while_busy(url: &str) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let locker = || runtime.block_on(polylock::connect(url)).expect("the server answers");
    let held = |locks: &Locker, name| runtime.block_on(hold(locks, name)).expect("a grant");
    let (busy, quiet) = (locker(), locker());
    let mut guards = Some([held(&busy, "held"), held(&quiet, "held by the quiet one")]);
    let mut quiet = Some(quiet);
    let working = runtime.spawn(keep_busy(busy.clone()));
    for _ in 0..FORKS {
        wait_for(fork_off(|| misuse(&busy, quiet.take(), guards.take())));
    }
    runtime.block_on(async {
        let guards = guards.expect("each child took a copy");
        // If a child did anything to the parent's connections, a hold is lost by then, or is not renewed.
        let [one, other] = &guards;
        tokio::join!(sleep(3 * TTL / 4), renewed_twice(one), renewed_twice(other));
        assert!(!working.is_finished(), "{:?}", working.await);
        for guard in guards {
            assert_eq!(guard.state(), HoldState::Held);
            assert_eq!(guard.release().await.expect("still ours"), Release::Released);
        }
    });
}

/// Waits until a hold was renewed twice, the second time by a request that was sent later than this began; or is lost.
async fn renewed_twice(guard: &Guard) {
    for _ in 0..2 {
        // In this order, and in the other one below: if this thread stands still in between, it waits for longer.
        let left = guard.valid_for();
        let end = Instant::now() + left;
        while !matches!(guard.state(), HoldState::Lost(_)) {
            let now = Instant::now();
            if now + guard.valid_for() > end {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn hold(locks: &Locker, name: &str) -> polylock::Result<Guard> {
    locks.lock(name).ttl(TTL).acquire().await
}

async fn keep_busy(locks: Locker) -> polylock::Result<()> {
    loop {
        hold(&locks, "busy").await?.release().await?;
        drop(hold(&locks, "busy").await?);
    }
}

/// Uses, and then drops, what is the parent's.
fn misuse(busy: &Locker, quiet: Option<Locker>, guards: Option<[Guard; 2]>) -> Result<(), String> {
    let [released, dropped] = guards.expect("nobody else takes them");
    current_thread().block_on(async {
        for locks in [Some(busy), quiet.as_ref()].into_iter().flatten() {
            let lock = locks.lock("free");
            refused("connect", locks.connect()).await?;
            refused("status", locks.status("held")).await?;
            refused("try_acquire", lock.try_acquire()).await?;
            refused("acquire_within", lock.acquire_within(AT_MOST)).await?;
            refused("acquire", lock.acquire()).await?;
            refused("shutdown", locks.shutdown()).await?;
        }
        counts_as_lost(&dropped)?;
        refused("extend", dropped.extend(TTL)).await?;
        refused("release", released.release()).await
    })?;
    drop((dropped, quiet));
    Ok(())
}

/// A forked process has no hold, whatever its parent has.
fn counts_as_lost(guard: &Guard) -> Result<(), String> {
    match (guard.state(), guard.check(), guard.valid_for()) {
        (HoldState::Lost(lost), Err(_), Duration::ZERO) if lost.cause() == LostCause::Forked => Ok(()),
        other => Err(format!("a guard in a forked process: {other:?}")),
    }
}

/// Fails unless the use is refused soon, with the reason.
async fn refused<T: Debug>(what: &str, using: impl Future<Output = polylock::Result<T>>) -> Result<(), String> {
    let error = match timeout(AT_MOST, using).await {
        Ok(Err(error)) => error,
        other => return Err(format!("{what} in a forked process: {other:?}")),
    };
    match error.kind() {
        ErrorKind::Misconfigured if error.to_string().contains("fork") => Ok(()),
        _ => Err(format!("{what} in a forked process is refused as {error:?}")),
    }
}
