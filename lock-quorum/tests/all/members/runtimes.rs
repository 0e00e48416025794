//! Marks whose runtime has ended, or is not driven any more.

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::*;

fn runtime() -> Runtime {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap()
}

/// Nobody renewed its marks meanwhile.
#[test]
fn an_acquire_after_the_runtime_of_the_marks_is_seen_again() {
    for idle in [
        Duration::ZERO,
        EXPIRED - A_LOOK,
        EXPIRED - Duration::from_secs(5),
        EXPIRED,
    ] {
        let servers = Servers::new();
        let running = runtime().block_on(servers.running(&[0, 1, 2]));
        runtime().block_on(async {
            sleep(idle).await;
            let _guard = running.locks.lock("a").acquire().await.unwrap();
            for _ in 0..20 {
                let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
                assert!(stranger.is_err(), "after {idle:?}");
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
}

/// The runtime lives, but nobody drives it after the connect.
#[test]
fn an_acquire_beside_an_idle_runtime_of_the_marks_is_seen_again() {
    for idle in [EXPIRED - A_LOOK, EXPIRED, 2 * EXPIRED] {
        let (servers, idle_runtime) = (Servers::new(), runtime());
        let running = idle_runtime.block_on(servers.running(&[0, 1, 2]));
        runtime().block_on(async {
            sleep(idle).await;
            // Its limit is shorter than the time after which a runtime counts as idle.
            let lock = running.locks.lock("a");
            let mut acquired = lock.acquire_within(Duration::from_millis(500)).await;
            if acquired.is_err() {
                sleep(Duration::from_millis(500)).await;
                acquired = lock.acquire_within(Duration::from_millis(500)).await;
            }
            let _guard = acquired.unwrap();
            for _ in 0..20 {
                let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
                assert!(stranger.is_err(), "after {idle:?}");
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
}

/// The runtime of the marks ends, or is idle, after the acquire.
#[test]
fn a_hold_is_seen_without_the_runtime_of_the_marks() {
    for is_kept in [true, false] {
        let (servers, connected, other) = (Servers::new(), runtime(), runtime());
        let running = connected.block_on(servers.running(&[0, 1, 2]));
        let guard = other.block_on(running.locks.lock("a").acquire()).unwrap();
        let _kept = Some(connected).filter(|_| is_kept);
        other.block_on(async {
            sleep(2 * EXPIRED).await;
            let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
            assert!(stranger.is_err(), "kept: {is_kept}");
            guard.release().await.unwrap();
            running.backend.close().await.unwrap();
            servers.running(&[0, 1, 3]).await;
        });
    }
}

/// The runtime of a connect that was dropped at any moment of it is driven no more.
#[test]
fn a_connect_does_not_wait_for_one_on_an_idle_runtime() {
    for millis in (0..1500).step_by(50) {
        let (servers, idle_runtime) = (Servers::new(), runtime());
        let process = servers.far_process(&[0, 1, 2]);
        let connected = idle_runtime.block_on(async {
            let connecting = timeout(Duration::from_millis(millis), process.backend.connect());
            connecting.await.is_ok()
        });
        runtime().block_on(async {
            let again = timeout(A_LOOK, process.backend.connect()).await;
            again.expect("nobody waits for an idle runtime").unwrap();
            let stranger = servers.process(&[0, 1, 3]).backend.connect().await;
            assert!(stranger.is_err(), "after {millis} ms, connected: {connected}");
        });
    }
}
