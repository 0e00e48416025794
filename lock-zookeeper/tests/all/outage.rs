//! Servers that cannot be asked: what callers learn of it, and that they are served again soon.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions};
use lock_core::{ErrorKind, Guard, Locker, Result};
use lock_zookeeper::{ConnectionState, ZooKeeperBackend};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

use crate::support::line::Line;
use crate::support::*;

mod attempts;

const LIMIT: Duration = Duration::from_secs(2);

fn backend_at(address: &str, root: &str) -> ZooKeeperBackend {
    backend_with(
        config(address, root)
            .with_session_timeout(LONG)
            .with_connect_timeout(LIMIT),
    )
}

fn long(lock: &str, waits: bool) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name(lock), Terms::new(2 * LONG).label("holder"))
        .waits(waits)
        .start()
}

/// Asks until the error names the refusal. On a busy machine the time may be up before the cause is known.
async fn is_refused<T: Debug>(mut ask: impl AsyncFnMut() -> Result<T>) {
    in_some_run("no error names the refusal", async || {
        let error = happens("the task ends", ask()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        println!("{error:?}");
        error.to_string().contains("refused")
    })
    .await;
}

async fn shared_address() -> &'static str {
    shared_server().await.address()
}

#[testbed::test]
async fn a_try_at_a_server_that_died_is_unavailable_with_the_cause() {
    let server = own_server().await;
    let backend = backend_at(server.address(), "/test");
    let (first, _control) = long("a", true);
    let _hold = acquire(&backend, &first).await;
    server.kill().unwrap();
    is_refused(async || {
        let (request, _control) = long("b", false);
        backend.acquire(&request).await
    })
    .await;
    // The same for what only reads.
    let lock = name("b");
    is_refused(async || backend.status(&lock).await).await;
    is_refused(async || backend.connect().await).await;
}

#[testbed::test]
async fn what_was_never_sent_was_not_executed() {
    let line = Line::to(shared_address().await);
    line.cut();
    let backend = backend_at(&line.address, &fresh_root());
    let (request, _control) = long("a", false);
    let error = happens("an answer to the acquire", backend.acquire(&request))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.is_not_executed()), (ErrorKind::Unavailable, true));
    line.heal();
    acquire(&backend, &request).await;
}

/// However long a busy machine takes.
async fn connect(locks: &Locker) {
    happens("a connection again", async {
        while let Err(error) = locks.connect().await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    })
    .await;
}

/// The number of claims that the backend keeps in memory.
fn claims(backend: &ZooKeeperBackend) -> usize {
    format!("{backend:?}").matches("Claim {").count()
}

/// The caller's time ends in an outage, and core asks for the undo in vain until nothing of the request could live any more.
#[testbed::test]
async fn a_waiter_whose_session_expired_in_an_outage_leaves_nothing_in_memory() {
    let (root, address) = (fresh_root(), shared_address().await);
    let client = observer(shared_server().await).await;
    let directory = format!("{root}/a");
    let (_hold, _request, _control) = hold(&patient(address, &root), "a").await;
    let line = Line::to(address);
    let backend = backend_with(config(&line.address, &root).with_connect_timeout(LIMIT));
    let (request, control) = waiting("a");
    let waiter = {
        let (backend, request) = (backend.clone(), request.clone());
        tokio::spawn(async move { backend.acquire(&request).await })
    };
    children_until(&client, &directory, |children| children.len() == 2).await;
    assert_eq!(claims(&backend), 1);
    line.cut();
    control.give_up();
    happens("the wait ends", waiter).await.unwrap().unwrap_err();
    happens("the undo ends", backend.abandon(&request)).await.unwrap_err();
    children_until(&client, &directory, |children| children.len() == 1).await;
    line.heal();
    eventually("the claim is closed", async || claims(&backend) == 0).await;
}

fn wait_on(locks: &Locker, limit: Duration) -> JoinHandle<Result<Guard>> {
    let lock = locks.lock("a").ttl(2 * LONG);
    tokio::spawn(async move { lock.acquire_within(limit).await })
}

/// Waits until there is a second node, or the waiter's time is over.
async fn queued_or_done<T>(client: &Client, directory: &str, waiter: &JoinHandle<T>) {
    eventually("it waits, or its time is over", async || {
        let children = client.list_children(directory).await.unwrap_or_default();
        children.len() == 2 || waiter.is_finished()
    })
    .await;
}

/// A lock that is held, and a locker that is connected by a line to the same server.
struct Taken {
    _hold: Arc<dyn Hold>,
    _control: RequestControl,
    line: Line,
    locks: Locker,
    client: Client,
    directory: String,
}

impl Taken {
    async fn new() -> Self {
        let (root, address) = (fresh_root(), shared_address().await);
        let (request, control) = long("a", true);
        let hold = granted(happens("an answer to the acquire", patient(address, &root).acquire(&request)).await);
        let line = Line::to(address);
        let locks = Locker::new(backend_at(&line.address, &root)).with_ttl(2 * LONG);
        connect(&locks).await;
        Self {
            _hold: hold,
            _control: control,
            locks,
            line,
            client: observer(shared_server().await).await,
            directory: format!("{root}/a"),
        }
    }

    /// Waits in a task of its own, and returns when the waiter has a node, or its time is over.
    async fn wait_on(&self, limit: Duration) -> JoinHandle<Result<Guard>> {
        let waiter = wait_on(&self.locks, limit);
        queued_or_done(&self.client, &self.directory, &waiter).await;
        waiter
    }

    /// Waits until the holder and so many waiters have a node.
    async fn until_waiting(&self, waiters: usize) {
        children_until(&self.client, &self.directory, |children| children.len() == 1 + waiters).await;
    }
}

#[testbed::test]
async fn a_waiter_whose_time_is_up_learns_who_has_the_lock() {
    let taken = Taken::new().await;
    // A busy machine may stand still for all of it.
    in_some_run("the waiter does not know who has the lock", async || {
        let error = happens("the wait ends", wait_on(&taken.locks, LIMIT))
            .await
            .unwrap()
            .unwrap_err();
        println!("{error:?}");
        (error.kind(), error.holder()) == (ErrorKind::TimedOut, Some("holder"))
    })
    .await;
    taken.until_waiting(0).await;
}

#[testbed::test]
async fn a_waiter_learns_that_the_server_is_away() {
    let taken = Taken::new().await;
    // A busy machine may take all the time to queue, or to notice the outage.
    in_some_run("the waiter does not know of the outage", async || {
        connect(&taken.locks).await;
        let waiter = taken.wait_on(3 * LIMIT).await;
        taken.line.cut();
        let error = happens("the wait ends", waiter).await.unwrap().unwrap_err();
        taken.line.heal();
        taken.until_waiting(0).await;
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        assert!(error.cause().is_some(), "{error:?}");
        Ok(())
    })
    .await;
}

#[testbed::test]
async fn a_waiter_learns_who_has_the_lock_after_an_outage() {
    let taken = Taken::new().await;
    // The outage, a rest between two attempts, and time to connect. A busy machine may take more.
    in_some_run("the waiter does not know who has the lock", async || {
        connect(&taken.locks).await;
        let waiter = taken.wait_on(6 * LIMIT).await;
        taken.line.cut();
        sleep(LIMIT).await;
        taken.line.heal();
        let error = happens("the wait ends", waiter).await.unwrap().unwrap_err();
        taken.until_waiting(0).await;
        let is_known = (error.kind(), error.holder()) == (ErrorKind::TimedOut, Some("holder"));
        is_known.then_some(()).ok_or(error)
    })
    .await;
}

/// A server that hangs is known by its silence.
#[testbed::test]
async fn a_waiter_learns_that_the_server_is_silent() {
    let server = own_server().await;
    let (holder, locks) = (backend(&server, "/test"), Locker::new(short_lived(&server, "/test")));
    let client = observer(&server).await;
    // A silence of half a session timeout is noticed. A busy machine may take the rest to queue, or to notice it.
    in_some_run("the waiter does not know of the silence", async || {
        // Its own session may end in the silence.
        let (held, _control) = waiting("a");
        let hold = acquire(&holder, &held).await;
        connect(&locks).await;
        let waiter = wait_on(&locks, SESSION * 3 / 2);
        queued_or_done(&client, "/test/a", &waiter).await;
        server.pause().unwrap();
        let error = happens("the wait ends", waiter).await.unwrap().unwrap_err();
        server.resume().unwrap();
        let _ = happens("the release", hold.release(ReleaseOptions::default())).await;
        children_until(&client, "/test/a", <[String]>::is_empty).await;
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        assert!(error.cause().is_some(), "{error:?}");
        Ok(())
    })
    .await;
}

#[testbed::test]
async fn who_gives_up_in_an_outage_is_not_told_that_the_lock_is_taken() {
    let (root, line) = (fresh_root(), Line::to(shared_address().await));
    let holder = patient(shared_address().await, &root);
    let (first, _control) = long("a", true);
    let _hold = granted(happens("an answer to the acquire", holder.acquire(&first)).await);
    let backend = backend_at(&line.address, &root);
    let mut watch = backend.watch_state();
    let terms = Terms::new(2 * LONG).time_left(10 * LONG);
    let (request, control) = RequestOptions::new(name("a"), terms).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move {
            loop {
                match backend.acquire(&request).await {
                    // It is connected too late for its short connect timeout.
                    Err(error) if !request.is_given_up() => assert!(error.is_retryable(), "{error}"),
                    answer => return answer,
                }
            }
        }
    });
    let client = observer(shared_server().await).await;
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    line.cut();
    happens("the client notices", async {
        while watch.changed().await != Some(ConnectionState::Suspended) {}
    })
    .await;
    control.give_up();
    let error = match happens("the wait ends", waiting).await.unwrap() {
        Ok(Attempt::Busy(_)) => panic!("nobody knows whether it is taken"),
        answer => answer.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.cause().is_some(), "{error:?}");
}

/// The process stood still for longer than its session lived, and does not know it yet.
#[testbed::test]
async fn a_try_on_a_session_that_has_expired_is_asked_on_another_one() {
    let server = own_server().await;
    let backend = short_lived(&server, "/test");
    let (_hold, ..) = hold(&backend, "a").await;
    std::thread::sleep(SESSION * 3 / 2);
    let (request, _control) = trying("b");
    granted(happens("an answer to the acquire", backend.acquire(&request)).await);
}
