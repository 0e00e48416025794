//! Servers that go away, sessions that expire, tasks that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Lease, ReleaseOptions, ReleaseOutcome};
use lock_core::{Ended, ErrorKind, HoldState, LostCause};
use testbed::Server;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::line::Line;
use crate::support::*;

async fn until_state(lease: &Lease, wanted: HoldState) {
    eventually("this state", async || lease.state() == wanted).await;
}

#[testbed::test]
async fn a_hold_and_a_place_survive_a_restart_of_the_server() {
    let server = own_server().await;
    let (one, two) = (patient(server.address(), "/test"), patient(server.address(), "/test"));
    let (request, _control) = long("a");
    let hold = granted(happens("an answer to the acquire", one.acquire(&request)).await);
    let (other, _control) = long("a");
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { (granted(two.acquire(&other).await), two) }
    });
    let client = observer(&server).await;
    let nodes = children_until(&client, "/test/a", |children| children.len() == 2).await;
    server.kill().unwrap();
    until_state(request.lease(), HoldState::Suspect).await;
    server.restart().await.unwrap();
    until_state(request.lease(), HoldState::Held).await;
    let client = observer(&server).await;
    let mut after = client.list_children("/test/a").await.unwrap();
    let mut before = nodes;
    before.sort();
    after.sort();
    assert_eq!(before, after);
    assert!(!waiting.is_finished());
    assert_eq!(
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap(),
        ReleaseOutcome::Released
    );
    let (next, _two) = happens("the grant", waiting).await.unwrap();
    assert!(next.token() > hold.token());
}

#[testbed::test]
async fn a_server_that_is_silent_for_too_long_ends_the_hold_by_our_clock() {
    let server = own_server().await;
    let backend = backend_with(config(server.address(), "/test").with_connect_timeout(SESSION / 4));
    let (request, _control) = waiting("a");
    // A busy machine may need several tries of a second.
    let hold = acquire(&backend, &request).await;
    server.pause().unwrap();
    // Its last heartbeat went out before the pause.
    sleep(SESSION).await;
    assert!(!is_live(request.lease()), "{:?}", request.lease().valid_for());
    let Ended::Lost(lost) = happens("the end of the lease", request.lease().ended()).await else {
        panic!("nobody released it")
    };
    assert_eq!(lost.cause(), LostCause::Expired);
    let (other, _control) = trying("b");
    let error = happens("an answer to the acquire", backend.acquire(&other))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    server.resume().unwrap();
    // Whether the session has outlived it or not: the name is free again, and the hold stays lost.
    let (again, _control) = waiting("a");
    let next = acquire(&backend, &again).await;
    assert!(next.token() > hold.token());
    assert!(matches!(request.lease().state(), HoldState::Lost(_)));
    happens("it is granted again", async {
        while let Err(error) = backend.abandon(&other).await {
            assert!(error.is_retryable(), "{error}");
        }
    })
    .await;
    let observer = patient(server.address(), "/test");
    assert!(!observer.status(&name("b")).await.unwrap().is_held());
}

/// Its own end does not move, but it is no longer believed in than its session.
#[testbed::test]
async fn a_fixed_lease_does_not_outlive_its_session() {
    let server = own_server().await;
    in_some_run("it did not outlive a session timeout", async || {
        let backend = short_lived(&server, "/test");
        let options = RequestOptions::new(name("a"), Terms::new(10 * LONG)).fixed(true);
        let (request, _control) = options.start();
        let _hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
        sleep(SESSION * 5 / 4).await;
        let was_live = is_live(request.lease());
        assert!(
            request.lease().valid_for() <= SESSION,
            "it is believed in no longer than the session"
        );
        server.pause().unwrap();
        sleep(SESSION).await;
        assert!(!is_live(request.lease()), "{:?}", request.lease().valid_for());
        assert!(matches!(
            happens("the end of the lease", request.lease().ended()).await,
            Ended::Lost(_)
        ));
        server.resume().unwrap();
        was_live
    })
    .await;
}

/// Waiters are told of a session's end, and asking again gets them a new place on a new session.
#[testbed::test]
async fn an_expired_session_is_replaced() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let backend = backend_with(config(&line.address, &root));
    let (_hold, first, _control) = hold(&backend, "a").await;
    let (request, _control) = waiting("a");
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    let client = observer(server).await;
    let directory = format!("{root}/a");
    let before = children_until(&client, &directory, |children| children.len() == 2).await;
    line.cut();
    children_until(&client, &directory, <[String]>::is_empty).await;
    assert!(matches!(first.lease().state(), HoldState::Lost(_)));
    line.heal();
    let error = happens("the wait ends", waiting).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    let hold = acquire(&backend, &request).await;
    let after = client.list_children(&directory).await.unwrap();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(!before.contains(&after[0]));
    hold.release(ReleaseOptions::default()).await.unwrap();
}

/// It counts its sessions anew: whoever waited keeps its place.
#[testbed::test]
async fn a_place_survives_a_server_that_was_away_for_longer_than_the_session_timeout() {
    let server = own_server().await;
    // If the machine stands still after the restart, the session ends, and whoever waited takes a new place.
    in_some_run("it has another place", async || {
        keeps_its_place(&server, &fresh_root()).await
    })
    .await;
}

async fn keeps_its_place(server: &Server, root: &str) -> bool {
    let (holder, backend) = (short_lived(server, root), short_lived(server, root));
    let directory = format!("{root}/a");
    let (_hold, first, _control) = hold(&holder, "a").await;
    let (request, _control) = waiting("a");
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { acquire(&backend, &request).await }
    });
    let client = observer(server).await;
    let before = children_until(&client, &directory, |children| children.len() == 2).await;
    server.kill().unwrap();
    let killed = Instant::now();
    happens("the end of the lease", first.lease().ended()).await;
    sleep_until(killed + SESSION * 5 / 4).await;
    server.restart().await.unwrap();
    // The hold is over, and its node deleted: the next in turn is granted its own.
    happens("the grant", waiting).await.unwrap();
    let client = observer(server).await;
    let after = children_until(&client, &directory, |children| children.len() == 1).await;
    println!("{before:?} {after:?}");
    before.contains(&after[0])
}

#[testbed::test]
async fn a_server_that_lost_its_data_serves_again() {
    let server = own_server().await;
    let backend = backend(&server, "/test");
    let (_hold, request, _control) = hold(&backend, "a").await;
    server.restart_without_data().await.unwrap();
    assert!(matches!(
        happens("the end of the lease", request.lease().ended()).await,
        Ended::Lost(_)
    ));
    let (again, _control) = waiting("a");
    acquire(&backend, &again).await;
}

#[testbed::test]
async fn holds_outlive_the_backends_handle() {
    let server = shared_server().await;
    in_some_run("the hold was lost", async || {
        let backend = short_lived(server, &fresh_root());
        let (hold, request, _control) = hold(&backend, "a").await;
        drop(backend);
        sleep(SESSION * 3 / 2).await;
        println!("{:?}", request.lease().state());
        is_live(request.lease()) && hold.release(ReleaseOptions::default()).await.unwrap() == ReleaseOutcome::Released
    })
    .await;
}

/// More watched path bytes than the driver can restore after a reconnect: some wait by asking.
#[testbed::test]
async fn many_waiters_with_long_names_survive_a_reconnect() {
    const LOCKS: usize = 100;
    let server = own_server().await;
    let (holder, waiter) = (patient(server.address(), "/test"), patient(server.address(), "/test"));
    let names: Vec<_> = (0..LOCKS)
        .map(|number| format!("{number:0>3}{}", "/".repeat(509)))
        .collect();
    // Tells how the waiters' session is.
    let (own, _control) = long("own");
    let _own = granted(happens("an answer to the acquire", waiter.acquire(&own)).await);
    let mut holds = Vec::new();
    let mut waiters = Vec::new();
    for lock in &names {
        let (request, control) = long(lock);
        holds.push((
            granted(happens("an answer to the acquire", holder.acquire(&request)).await),
            control,
        ));
        let (request, control) = long(lock);
        let waiter = waiter.clone();
        waiters.push(tokio::spawn(async move {
            (granted(waiter.acquire(&request).await), control)
        }));
    }
    let client = observer(&server).await;
    let directory = |lock: &str| format!("/test/{}", lock.replace('/', "%2F"));
    let mut before = Vec::new();
    for lock in &names {
        before.push(children_until(&client, &directory(lock), |children| children.len() == 2).await);
    }
    server.restart().await.unwrap();
    let client = observer(&server).await;
    until_state(own.lease(), HoldState::Held).await;
    // Time for the driver to lose the connection again and again, if it would.
    let steady = Instant::now();
    while steady.elapsed() < Duration::from_secs(5) {
        assert_eq!(own.lease().state(), HoldState::Held);
        sleep(Duration::from_millis(5)).await;
    }
    for (lock, before) in names.iter().zip(&mut before) {
        let mut after = client.list_children(&directory(lock)).await.unwrap();
        before.sort();
        after.sort();
        assert_eq!(*before, after);
    }
    for (hold, _control) in &holds {
        assert_eq!(
            happens("the release", hold.release(ReleaseOptions::default()))
                .await
                .unwrap(),
            ReleaseOutcome::Released
        );
    }
    for waiter in waiters {
        happens("the grant", waiter).await.unwrap();
    }
}

/// Whoever is to be woken by it panics, and the task that does it with it. Nobody was told of the grant, so its minimum is not kept.
#[testbed::test]
async fn a_panic_of_the_task_that_works_on_a_hold_leaves_nothing() {
    struct Bomb(AtomicBool);
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            assert!(self.0.swap(true, Ordering::SeqCst), "planted");
        }
    }
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    backend.connect().await.unwrap();
    for minimum in [Duration::ZERO, LONG] {
        let terms = Terms::new(LONG).minimum(minimum);
        let (request, _control) = RequestOptions::new(name("a"), terms).start();
        let mut acquiring = backend.acquire(&request);
        let bomb = Waker::from(Arc::new(Bomb(AtomicBool::new(false))));
        assert!(acquiring.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending());
        // The grant wakes the one that waits for it.
        assert!(matches!(
            happens("the end of the lease", request.lease().ended()).await,
            Ended::Lost(_)
        ));
        drop(acquiring);
        children_until(&client, &format!("{root}/a"), <[String]>::is_empty).await;
        let (other, _control) = waiting("a");
        let hold = granted(happens("an answer to the acquire", backend.acquire(&other)).await);
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
    }
}
