//! Acquires that look for other processes first: after the end of their own, or beside its first connect.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;

/// The status requests of a process that joins at three nodes: it looks twice at the eight names.
const STATUSES: usize = 2 * 3 * 8;

#[tokio::test(start_paused = true)]
async fn an_acquire_after_the_end_is_seen_again() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    let stranger = servers.running(&[0, 1, 3]).await;
    let lock = running.locks.lock("a");
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    // Until a second is over it asks no node again.
    running.statuses.store(0, Ordering::SeqCst);
    for _ in 0..100 {
        assert!(lock.acquire().await.is_err());
    }
    assert_eq!(running.statuses.load(Ordering::SeqCst), 0);
    stranger.locks.shutdown().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let _guard = lock.acquire().await.unwrap();
    servers.refused(&[0, 1, 3]).await;
}

/// For as long as the first one joins, no acquire waits for the silent node for longer than the patience.
#[tokio::test(start_paused = true)]
async fn a_silent_node_delays_an_acquire_after_the_end_by_a_patience() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.links[2].stall();
    for name in ["a", "b"] {
        let began = Instant::now();
        let lock = running.locks.lock(name);
        let _guard = lock.acquire_within(Duration::from_secs(1)).await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
    }
    servers.refused(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_after_the_end_sees_a_stranger_beside_a_silent_node() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    let _stranger = servers.running(&[0, 3, 4]).await;
    running.links[2].stall();
    let acquired = running.locks.lock("a").acquire_within(Duration::from_secs(1)).await;
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

/// No node answers, so that nothing is known when the patience is over.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_given_up_does_not_wait_until_the_process_has_joined() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.links.iter().for_each(Link::stall);
    let began = Instant::now();
    let lock = running.locks.lock("a");
    lock.acquire_within(Duration::from_millis(100)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn acquires_at_once_after_the_end_join_once() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    running.statuses.store(0, Ordering::SeqCst);
    let acquires = (0..100).map(|number| {
        let lock = running.locks.lock(format!("lock {number}"));
        async move { lock.acquire().await }
    });
    let guards = join_all(acquires).await;
    assert!(guards.iter().all(Result::is_ok), "{guards:?}");
    assert_eq!(running.statuses.load(Ordering::SeqCst), STATUSES);
}

/// Whatever the process is doing then.
#[tokio::test(start_paused = true)]
async fn an_acquire_beside_the_first_connect_does_not_join_again() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let acquired = async {
            sleep(Duration::from_millis(millis)).await;
            process.locks.lock("a").acquire().await
        };
        let (connected, acquired) = tokio::join!(process.backend.connect(), acquired);
        connected.unwrap();
        let _guard = acquired.unwrap();
        assert_eq!(process.statuses.load(Ordering::SeqCst), STATUSES, "after {millis} ms");
        servers.refused(&[0, 1, 3]).await;
    }
}

/// Another locker ends at any moment of it.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_closed_while_it_connected_is_seen_when_it_acquires() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let other = Locker::new(process.backend.clone());
        let ended = async {
            sleep(Duration::from_millis(millis)).await;
            other.shutdown().await
        };
        let (connected, ended) = tokio::join!(process.backend.connect(), ended);
        connected.unwrap();
        ended.unwrap();
        let _guard = process.locks.lock("a").acquire().await.unwrap();
        let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
        assert!(stranger.is_err(), "after {millis} ms");
        sleep(EXPIRED).await;
        servers.refused(&[0, 1, 3]).await;
    }
}
