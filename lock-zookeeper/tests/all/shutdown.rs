//! What a shutdown, and acquires that were cancelled anywhere, leave at the server: nothing.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, Locker};
use lock_zookeeper::{ConnectionState, ZooKeeperBackend};
use testbed::Server;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;

use crate::support::line::Line;
use crate::support::*;

/// How many sessions the server has.
async fn sessions(server: &Server) -> usize {
    let answer = ask(server, "mntr").await;
    let count = answer
        .lines()
        .find_map(|line| line.strip_prefix("zk_global_sessions"))
        .unwrap();
    count.trim().parse().unwrap()
}

fn locker(backend: ZooKeeperBackend) -> Locker {
    Locker::new(backend).with_ttl(2 * LONG)
}

#[testbed::test]
async fn it_closes_all_sessions_that_carry_nothing() {
    let server = own_server().await;
    let backend = patient(server.address(), "/locks");
    let mut watch = backend.watch_state();
    assert_eq!(backend.state(), ConnectionState::Unconnected);
    let (locks, other) = (locker(backend.clone()), locker(backend.clone()));
    let mut guards = Vec::new();
    for number in 0..40 {
        guards.push(locks.lock(format!("orders/{number}")).acquire().await.unwrap());
    }
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Connected)
    );
    assert_eq!(sessions(&server).await, 4);
    let held = other.lock("other").acquire().await.unwrap();
    // Released in the background.
    drop(guards);
    happens("the shutdown", locks.shutdown()).await.unwrap();
    assert_eq!(sessions(&server).await, 1);
    held.check().unwrap();
    held.release().await.unwrap();
    happens("the shutdown", other.shutdown()).await.unwrap();
    assert_eq!(sessions(&server).await, 0);
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Unconnected)
    );

    // It connects again.
    let again = locker(backend);
    let guard = happens("an answer to the acquire", again.lock("a").acquire())
        .await
        .unwrap();
    assert_eq!(sessions(&server).await, 1);
    guard.release().await.unwrap();
    happens("the shutdown", again.shutdown()).await.unwrap();
    assert_eq!(sessions(&server).await, 0);
}

#[testbed::test]
async fn it_closes_a_session_whose_connection_has_ended() {
    let server = own_server().await;
    let line = Line::to(server.address());
    let backend = patient(&line.address, "/locks");
    let locks = locker(backend.clone());
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    let mut watch = backend.watch_state();
    line.cut();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Suspended)
    );
    let (shut, ()) = tokio::join!(happens("the shutdown", locks.shutdown()), async {
        sleep(Duration::from_millis(500)).await;
        line.heal();
    });
    shut.unwrap();
    assert_eq!(sessions(&server).await, 0);
}

/// The number of connections to a line that is cut. It ends each after it has counted it.
async fn dials(line: &Line) -> usize {
    let mut own = TcpStream::connect(&line.address).await.unwrap();
    let _ = own.read(&mut [0]).await;
    line.dials().len()
}

/// No request waits for a session any more, so a server that is back gets none.
#[testbed::test]
async fn it_ends_the_attempts_to_connect() {
    let line = Line::to(shared_server().await.address());
    line.cut();
    let backend = patient(&line.address, &fresh_root());
    let locks = locker(backend.clone());
    let lock = locks.lock("a");
    let waiting = lock.acquire_within(Duration::from_secs(1));
    happens("the wait ends", waiting).await.unwrap_err();
    happens("the shutdown", locks.shutdown()).await.unwrap();
    // An attempt that was under way is over by the end of this.
    sleep(Duration::from_millis(500)).await;
    let before = happens("the line counts", dials(&line)).await;
    line.heal();
    // Longer than the longest pause between two attempts.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(line.dials().len(), before);

    // It connects again.
    let again = locker(backend);
    let guard = happens("a grant", again.lock("a").acquire()).await.unwrap();
    guard.release().await.unwrap();
    happens("the shutdown", again.shutdown()).await.unwrap();
}

/// Another locker may wait for a session of the same backend.
#[testbed::test]
async fn it_leaves_an_attempt_alone_for_which_a_request_waits() {
    let line = Line::to(shared_server().await.address());
    line.cut();
    let backend = patient(&line.address, &fresh_root());
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    eventually("it connects", async || !line.dials().is_empty()).await;
    for _ in 0..5 {
        happens("the close", backend.close()).await.unwrap();
    }
    line.heal();
    happens("a connection", connecting).await.unwrap().unwrap();
}

/// The task that was to close that session connects in vain, and is ended.
#[testbed::test]
async fn it_closes_a_session_whose_runtime_has_gone() {
    let server = own_server().await;
    let line = Line::to(server.address());
    let backend = patient(&line.address, "/locks");
    spawn_blocking({
        let backend = backend.clone();
        move || Runtime::new().unwrap().block_on(backend.connect())
    })
    .await
    .unwrap()
    .unwrap();
    assert_eq!(sessions(&server).await, 1);
    line.cut();
    let before = line.dials().len();
    let connecting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.connect().await }
    });
    eventually("it connects", async || line.dials().len() > before).await;
    connecting.abort();
    let _ = happens("the request ends", connecting).await;
    let (closed, ()) = tokio::join!(happens("the close", backend.close()), async {
        sleep(Duration::from_millis(500)).await;
        line.heal();
    });
    closed.unwrap();
    assert_eq!(sessions(&server).await, 0);
}

/// Polls it so many times.
async fn polled<F: Future>(mut future: Pin<&mut F>, times: usize) -> Option<F::Output> {
    let mut polls = 0;
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Acquires 200 names, and gives each up after another number of polls and of other tasks' turns. Returns how many were
/// granted before.
async fn cancel_anywhere(locks: &Locker, line: Option<&Line>) -> usize {
    const POLLS: usize = 8;
    const TURNS: usize = 25;
    let mut granted = 0;
    for (polls, turns) in (0..TURNS).flat_map(|turns| (0..POLLS).map(move |polls| (polls, turns))) {
        let lock = locks.lock(format!("{polls}-{turns}"));
        let mut acquiring = pin!(async { lock.acquire().await });
        let before = polls / 2;
        let mut answer = polled(acquiring.as_mut(), before).await;
        if let Some(line) = line {
            line.reset();
        }
        if answer.is_none() {
            answer = polled(acquiring.as_mut(), polls - before).await;
        }
        if answer.is_none() {
            for _ in 0..turns {
                yield_now().await;
            }
        }
        // A guard is dropped too, and released in the background.
        granted += usize::from(answer.is_some());
    }
    granted
}

async fn left(server: &Server, root: &str) -> Vec<String> {
    let client = observer(server).await;
    let mut left = Vec::new();
    for name in children_until(&client, root, |_| true).await {
        let directory = format!("{root}/{name}");
        let children = children_until(&client, &directory, |_| true).await;
        left.extend(children.iter().map(|child| format!("{directory}/{child}")));
    }
    left
}

#[testbed::test]
async fn an_acquire_that_is_cancelled_anywhere_leaves_nothing() {
    let server = own_server().await;
    let locks = locker(patient(server.address(), "/locks"));
    locks.connect().await.unwrap();
    let granted = cancel_anywhere(&locks, None).await;
    happens("the shutdown", locks.shutdown()).await.unwrap();
    println!("{granted} of 200 were granted");
    assert_eq!(left(&server, "/locks").await, [""; 0]);
}

#[testbed::test]
async fn an_acquire_that_is_cancelled_while_its_connection_ends_leaves_nothing() {
    let server = own_server().await;
    let line = Line::to(server.address());
    let locks = locker(patient(&line.address, "/locks"));
    locks.connect().await.unwrap();
    let granted = cancel_anywhere(&locks, Some(&line)).await;
    happens("the shutdown", locks.shutdown()).await.unwrap();
    println!("{granted} of 200 were granted");
    assert_eq!(left(&server, "/locks").await, [""; 0]);
}

#[testbed::test]
async fn every_failed_try_says_why() {
    let server = own_server().await;
    let line = Line::to(server.address());
    let config = config(&line.address, "/locks").with_session_timeout(LONG);
    let backend = backend_with(config.with_connect_timeout(Duration::from_secs(1)));
    let locks = locker(backend.clone());
    // A busy machine may need several tries of a second.
    while let Err(error) = locks.connect().await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let mut watch = backend.watch_state();
    line.cut();
    assert_eq!(
        happens("a change of the state", watch.changed()).await,
        Some(ConnectionState::Suspended)
    );
    for number in 0..5 {
        let error = locks.lock(format!("a{number}")).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let cause = error.cause().map(ToString::to_string).unwrap_or_default();
        assert!(
            [
                "the connection to ZooKeeper broke",
                "does not answer",
                "cannot connect to"
            ]
            .iter()
            .any(|why| cause.contains(why)),
            "{number}: {error}"
        );
    }
}

/// A backend that closes its idle sessions serves on: whoever was about to use one gets another one.
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_closed_beside_requests_that_need_them() {
    const REQUESTS: usize = 1000;
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend_with(
        config(server.address(), &root)
            .with_session_timeout(STEADY)
            .with_sessions(1),
    );
    let closing = tokio::spawn({
        let backend = backend.clone();
        async move {
            loop {
                happens("the close", backend.close()).await.unwrap();
                yield_now().await;
            }
        }
    });
    for _ in 0..REQUESTS {
        let (request, _control) = trying("a");
        let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
        happens("the release", hold.release(Default::default())).await.unwrap();
    }
    assert!(!closing.is_finished());
    closing.abort();
}
