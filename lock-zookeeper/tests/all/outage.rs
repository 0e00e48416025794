//! Servers that cannot be asked: what callers learn of it, and that they are served again soon.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{
    AcquireRequest, Attempt, DistributedLock, Hold, ReleaseOptions, RequestControl, RequestOptions, Terms, Wait,
};
use lock_core::{Error, ErrorKind, Guard, Locker, Result};
use lock_zookeeper::ZooKeeperBackend;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

use crate::support::line::Line;
use crate::support::*;

const LIMIT: Duration = Duration::from_secs(2);

fn backend_at(address: &str, root: &str) -> ZooKeeperBackend {
    backend_with(
        config(address, root)
            .with_session_timeout(LONG)
            .with_connect_timeout(LIMIT),
    )
}

fn long(lock: &str, wait: Wait) -> (AcquireRequest, RequestControl) {
    RequestOptions::new(name(lock), Terms::new(2 * LONG).label("holder"))
        .wait(wait)
        .start()
}

fn is_caused_by_refusal(error: &Error) -> bool {
    error.to_string().contains("refused")
}

async fn shared_address() -> &'static str {
    shared_server().await.address()
}

#[testbed::test]
async fn a_try_at_a_server_that_died_is_unavailable_with_the_cause() {
    let server = own_server().await;
    let backend = backend_at(server.address(), "/test");
    let (first, _control) = long("a", Wait::Forever);
    let _hold = granted(within(backend.acquire(&first)).await);
    server.kill().unwrap();
    let (request, _control) = long("b", Wait::No);
    let error = within(backend.acquire(&request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(is_caused_by_refusal(&error), "{error:?}");
    // The same for what only reads.
    for error in [
        within(backend.status(&name("b"))).await.unwrap_err(),
        within(backend.connect()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(is_caused_by_refusal(&error), "{error:?}");
    }
}

#[testbed::test]
async fn what_was_never_sent_was_not_executed() {
    let line = Line::to(shared_address().await);
    line.cut();
    let backend = backend_at(&line.address, &fresh_root());
    let (request, _control) = long("a", Wait::No);
    let error = within(backend.acquire(&request)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_executed()), (ErrorKind::Unavailable, true));
    line.heal();
    granted(within(backend.acquire(&request)).await);
}

fn wait_on(locks: &Locker, limit: Duration) -> JoinHandle<Result<Guard>> {
    let lock = locks.lock("a").ttl(2 * LONG);
    tokio::spawn(async move { lock.acquire_within(limit).await })
}

/// A lock that is held, and a locker on a line to the same server.
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
        let (request, control) = long("a", Wait::Forever);
        let hold = granted(within(backend_at(address, &root).acquire(&request)).await);
        let line = Line::to(address);
        Self {
            _hold: hold,
            _control: control,
            locks: Locker::new(backend_at(&line.address, &root)),
            line,
            client: observer(shared_server().await).await,
            directory: format!("{root}/a"),
        }
    }

    /// Waits until the holder and so many waiters have a node.
    async fn until_waiting(&self, waiters: usize) {
        children_until(&self.client, &self.directory, |children| children.len() == 1 + waiters).await;
    }
}

#[testbed::test]
async fn a_waiter_whose_time_is_up_learns_who_has_the_lock() {
    let taken = Taken::new().await;
    let error = within(wait_on(&taken.locks, LIMIT)).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("holder")));
    taken.until_waiting(0).await;
}

#[testbed::test]
async fn a_waiter_learns_that_the_server_is_away() {
    let taken = Taken::new().await;
    let waiter = wait_on(&taken.locks, LIMIT);
    taken.until_waiting(1).await;
    taken.line.cut();
    let error = within(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.cause().is_some(), "{error:?}");
    taken.line.heal();
    taken.until_waiting(0).await;
}

#[testbed::test]
async fn a_waiter_learns_who_has_the_lock_after_an_outage() {
    let taken = Taken::new().await;
    let waiter = wait_on(&taken.locks, 4 * LIMIT);
    taken.until_waiting(1).await;
    taken.line.cut();
    sleep(LIMIT).await;
    taken.line.heal();
    let error = within(waiter).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("holder")));
}

/// A server that hangs is known by its silence.
#[testbed::test]
async fn a_waiter_learns_that_the_server_is_silent() {
    let server = own_server().await;
    let (holder, locks) = (backend(&server, "/test"), Locker::new(backend(&server, "/test")));
    let (_hold, ..) = hold(&holder, "a").await;
    let waiter = wait_on(&locks, SESSION * 4 / 5);
    let client = observer(&server).await;
    children_until(&client, "/test/a", |children| children.len() == 2).await;
    server.pause().unwrap();
    let error = within(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.cause().is_some(), "{error:?}");
    server.resume().unwrap();
}

#[testbed::test]
async fn who_gives_up_in_an_outage_is_not_told_that_the_lock_is_taken() {
    let (root, line) = (fresh_root(), Line::to(shared_address().await));
    let holder = backend_at(shared_address().await, &root);
    let (first, _control) = long("a", Wait::Forever);
    let _hold = granted(within(holder.acquire(&first)).await);
    let backend = backend_at(&line.address, &root);
    let terms = Terms::new(2 * LONG).time_left(LIMIT);
    let (request, _control) = RequestOptions::new(name("a"), terms).wait(Wait::Until).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    let client = observer(shared_server().await).await;
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    line.cut();
    within(request.given_up()).await;
    sleep(Duration::from_millis(100)).await;
    line.heal();
    let error = match within(waiting).await.unwrap() {
        Ok(Attempt::Busy(_)) => panic!("nobody knows whether it is taken"),
        answer => answer.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.cause().is_some(), "{error:?}");
}

/// With a hold and a place that live by the session, which goes on.
#[testbed::test]
async fn a_client_is_served_soon_after_a_long_outage() {
    let (root, line) = (fresh_root(), Line::to(shared_address().await));
    let (stranger, backend) = (
        backend_at(shared_address().await, &root),
        backend_at(&line.address, &root),
    );
    let (first, _control) = long("a", Wait::Forever);
    let _hold = granted(within(backend.acquire(&first)).await);
    let (second, _control) = long("b", Wait::Forever);
    let taken = granted(within(stranger.acquire(&second)).await);
    let (third, _control) = long("b", Wait::Forever);
    let waiting = tokio::spawn({
        let (backend, third) = (backend.clone(), third.clone());
        async move { acquire(&backend, &third).await }
    });
    let client = observer(shared_server().await).await;
    let directory = format!("{root}/b");
    let places = children_until(&client, &directory, |children| children.len() == 2).await;
    line.cut();
    // So long that the driver would try again after more than the connect timeout.
    sleep(Duration::from_millis(7500)).await;
    line.heal();
    let (other, _control) = long("c", Wait::No);
    granted(within(backend.acquire(&other)).await);
    assert_eq!(children_until(&client, &directory, |_| true).await.len(), places.len());
    taken.release(ReleaseOptions::default()).await.unwrap();
    within(waiting).await.unwrap();
    assert!(is_live(first.lease()) && is_live(third.lease()));
}

#[testbed::test]
async fn requests_shorten_the_rest_between_attempts_but_not_below_50_ms() {
    let line = Line::to(shared_address().await);
    line.cut();
    let backend = backend_at(&line.address, &fresh_root());
    // Each attempt connects once, and twice more to find out why it failed: the server might speak TLS.
    let attempts = || line.dials().len() / 3;
    // One that waits.
    let (request, _control) = long("a", Wait::Forever);
    let before = attempts();
    let _ = timeout(3 * LIMIT, async { while backend.acquire(&request).await.is_err() {} }).await;
    let while_one_waited = attempts() - before;
    assert!(while_one_waited >= 12, "{while_one_waited} attempts in {:?}", 3 * LIMIT);
    // Many.
    let asking: Vec<_> = (0..20)
        .map(|number| {
            let backend = backend.clone();
            tokio::spawn(async move {
                loop {
                    let (request, _control) = long(&format!("b{number}"), Wait::No);
                    let _ = timeout(Duration::from_millis(5), backend.acquire(&request)).await;
                }
            })
        })
        .collect();
    let (started, before) = (Instant::now(), attempts());
    sleep(LIMIT).await;
    let (took, made) = (started.elapsed(), attempts() - before);
    for asking in asking {
        asking.abort();
    }
    let most = took.as_millis() as usize / 50 + 2;
    assert!(made <= most, "{made} attempts in {took:?}");
    line.heal();
    granted(within(backend.acquire(&request)).await);
}

#[testbed::test]
async fn a_session_whose_connections_end_at_once_is_not_dialed_without_a_rest() {
    const TIME: Duration = Duration::from_secs(2);
    let line = Line::to(shared_address().await);
    let backend = backend_at(&line.address, &fresh_root());
    let (request, _control) = long("a", Wait::Forever);
    let _hold = granted(within(backend.acquire(&request)).await);
    let (started, before) = (Instant::now(), line.dials().len());
    while started.elapsed() < TIME {
        if within(backend.status(&name("a"))).await.is_ok() {
            line.reset();
        }
    }
    // Each comes with one that asks what kind of server there is, and one that the driver begins before it is ended.
    let most = 3 * (started.elapsed().as_millis() as usize / 50 + 2);
    let made = line.dials().len() - before;
    assert!(made <= most, "{made} connections in {:?}", started.elapsed());
}

/// The process stood still for longer than its session lived, and does not know it yet.
#[testbed::test]
async fn a_try_on_a_session_that_has_expired_is_asked_on_another_one() {
    let server = own_server().await;
    let backend = backend(&server, "/test");
    let (_hold, ..) = hold(&backend, "a").await;
    std::thread::sleep(SESSION * 3 / 2);
    let (request, _control) = trying("b");
    granted(within(backend.acquire(&request)).await);
}
