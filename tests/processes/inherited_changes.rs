//! A forked process that drops its parent's acquires and changes under way does nothing with them: what it would
//! touch may be locked by a thread that did not come along.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::sleep;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, LockStatus, ReleaseOptions, ReleaseOutcome, Renewal,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, LostCause, MemoryBackend, Result};
use polylock::Locker;

use crate::fork::{FINE, current_thread, fork_off, in_a_process_of_its_own, wait_for};

#[test]
fn a_forked_process_leaves_its_parents_downgrade_alone() {
    in_a_process_of_its_own("", |_| current_thread().block_on(drop_a_downgrade()), one_is_fine);
}

#[test]
fn a_forked_process_leaves_its_parents_upgrade_alone() {
    in_a_process_of_its_own("", |_| current_thread().block_on(drop_an_upgrade()), one_is_fine);
}

#[test]
fn a_forked_process_leaves_its_parents_acquire_alone() {
    in_a_process_of_its_own("", |_| current_thread().block_on(drop_an_acquire()), one_is_fine);
}

#[test]
fn a_forked_process_leaves_its_parents_expired_hold_alone() {
    in_a_process_of_its_own("", |_| current_thread().block_on(see_it_expired()), one_is_fine);
}

fn one_is_fine(reports: Vec<String>) {
    assert_eq!(reports, [FINE]);
}

async fn drop_a_downgrade() {
    let name = Locker::new(Stuck::default()).rw_lock("a");
    let mut guard = name.write().acquire().await.expect("a grant");
    let next = Arc::new(Woken::default());
    let writer = name.write();
    let mut waiting = Box::pin(writer.acquire());
    assert!(
        next.poll(&mut waiting).is_pending(),
        "behind the guard, in this process"
    );
    let mut downgrade = Some(Box::pin(guard.downgrade()));
    assert!(poll_once(&mut downgrade).await.is_pending());
    wait_for(fork_off(|| {
        drop(downgrade.take());
        untouched(&next, "the next caller of the parent")
    }));
    drop(downgrade.take());
    assert!(next.is_woken(), "the parent itself passes the turn on");
}

/// Its request could not be sent yet: the server has nothing of it.
async fn drop_an_upgrade() {
    let backend = Stuck::default();
    let requests = backend.requests.clone();
    let name = Locker::new(backend).rw_lock("a");
    let mut guard = name.upgradable().acquire().await.expect("a grant");
    let mut upgrade = Some(Box::pin(guard.upgrade()));
    assert!(poll_once(&mut upgrade).await.is_pending());
    let request = requests.lock().expect("nobody panicked").pop().expect("an upgrade");
    let given_up = Arc::new(Woken::default());
    let mut giving_up = Box::pin(request.given_up());
    assert!(given_up.poll(&mut giving_up).is_pending());
    wait_for(fork_off(|| {
        drop(upgrade.take());
        untouched(&given_up, "the parent's request")
    }));
    drop(upgrade.take());
    assert!(given_up.is_woken(), "the parent itself gives it up");
}

/// Its request could not be sent yet. The next caller waits for its turn.
async fn drop_an_acquire() {
    let backend = Stuck::default();
    let sends_nothing = backend.sends_nothing.clone();
    let lock = Locker::new(backend).lock("a");
    // An acquire waits out an outage of a server that was reached before.
    drop(lock.acquire().await.expect("a grant").release().await);
    sends_nothing.store(true, Ordering::SeqCst);
    let mut first = Some(Box::pin(lock.acquire()));
    assert!(poll_once(&mut first).await.is_pending());
    let next = Arc::new(Woken::default());
    let mut waiting = Box::pin(lock.acquire());
    assert!(
        next.poll(&mut waiting).is_pending(),
        "behind the first, in this process"
    );
    wait_for(fork_off(|| {
        drop(first.take());
        untouched(&next, "the next caller of the parent")
    }));
    drop(first.take());
    assert!(next.is_woken(), "the parent itself passes the turn on");
}

/// The parent has not noticed the end of the lease, and another task of it waits for that.
async fn see_it_expired() {
    let locks = Locker::new(MemoryBackend::new());
    // A busy machine may take a while until the watch is polled.
    let ttl = Duration::from_secs(4);
    let guard = locks.lock("a").ttl(ttl).acquire().await;
    let guard = guard.expect("a grant");
    let watch = guard.watch();
    let waiting = Arc::new(Woken::default());
    let mut ended = Box::pin(watch.ended());
    assert!(waiting.poll(&mut ended).is_pending());
    wait_for(fork_off(|| {
        sleep(ttl);
        let causes = [guard.check(), watch.check()].map(|checked| checked.err().map(|lost| lost.cause()));
        if causes != [Some(LostCause::Forked); 2] || watch.is_held() || !watch.valid_for().is_zero() {
            return Err(format!("lost in a forked process by {causes:?}"));
        }
        untouched(&waiting, "a task of the parent")
    }));
    assert!(guard.check().is_err(), "the parent itself has lost it");
    assert!(waiting.is_woken());
}

/// Whether somebody was woken.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    fn poll<F: Future>(self: &Arc<Self>, future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

fn untouched(woken: &Woken, what: &str) -> std::result::Result<(), String> {
    match woken.is_woken() {
        true => Err(format!("a forked process has woken {what}")),
        false => Ok(()),
    }
}

async fn poll_once<F: Future>(future: &mut Option<Pin<Box<F>>>) -> Poll<F::Output> {
    let future = future.as_mut().expect("nobody has dropped it");
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// The memory backend, which answers no downgrade, and to which no upgrade can be sent.
#[derive(Debug, Default)]
struct Stuck {
    server: MemoryBackend,
    /// No other acquire either.
    sends_nothing: Arc<AtomicBool>,
    /// Of the upgrades.
    requests: Arc<Mutex<Vec<AcquireRequest>>>,
}

#[async_trait]
impl DistributedLock for Stuck {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    async fn connect(&self) -> Result<()> {
        self.server.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if self.sends_nothing.load(Ordering::SeqCst) || request.replaces().is_some() {
            self.requests.lock().expect("nobody panicked").push(request.clone());
            return Err(Error::new(ErrorKind::Unavailable, "not connected").not_executed());
        }
        Ok(match self.server.acquire(request).await? {
            Attempt::Granted(hold, armed) => Attempt::Granted(Arc::new(StuckHold(hold)), armed),
            busy => busy,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.server.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server.status(name).await
    }
}

#[derive(Debug)]
struct StuckHold(Arc<dyn Hold>);

#[async_trait]
impl Hold for StuckHold {
    fn token(&self) -> FencingToken {
        self.0.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        self.0.renew(ttl).await
    }

    async fn downgrade(&self, _ttl: Duration) -> Result<Renewal> {
        pending().await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.0.release(how).await
    }
}
