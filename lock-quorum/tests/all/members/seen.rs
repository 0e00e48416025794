//! For how long others see a process by its marks.

use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_process_is_seen_for_as_long_as_it_runs() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    sleep(Duration::from_secs(3600)).await;
    servers.refused(&[0, 1, 3]).await;
    // It is dropped without a word.
    drop(running);
    sleep(Duration::from_secs(1)).await;
    servers.running(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_crashed_is_forgotten_when_its_marks_expire() {
    let servers = Servers::new();
    let crashed = servers.running(&[0, 1, 2]).await;
    crashed.links.iter().for_each(Link::cut);
    servers.refused(&[0, 1, 3]).await;
    sleep(EXPIRED).await;
    servers.running(&[0, 1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_anew_is_seen_again() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    running.backend.close().await.unwrap();
    servers.running(&[0, 1, 3]).await.backend.close().await.unwrap();
    running.backend.connect().await.unwrap();
    sleep(EXPIRED).await;
    servers.refused(&[0, 1, 3]).await;
    // It may connect as often as it likes.
    running.backend.connect().await.unwrap();
}

/// Its holds and those of other lockers go on.
#[tokio::test(start_paused = true)]
async fn a_process_is_seen_as_long_as_it_holds_a_lock() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    let guard = running.locks.lock("a").acquire().await.unwrap();
    running.locks.shutdown().await.unwrap();
    sleep(EXPIRED).await;
    servers.refused(&[0, 1, 3]).await;
    guard.release().await.unwrap();
    running.backend.close().await.unwrap();
    servers.running(&[0, 1, 3]).await;
}

/// Its vote there cannot be undone before it expires.
#[tokio::test(start_paused = true)]
async fn a_process_that_released_its_locks_is_not_seen_although_a_node_does_not_answer() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    let guard = running.locks.lock("a").acquire().await.unwrap();
    running.links[2].cut();
    guard.release().await.unwrap();
    running.locks.shutdown().await.unwrap();
    servers.running(&[0, 1, 3]).await;
}

/// The node that decides refuses, and the answers of the far ones are given back when they arrive.
#[tokio::test(start_paused = true)]
async fn a_process_whose_try_was_refused_is_not_seen_after_its_end() {
    for near in 0..3 {
        let servers = Servers::new();
        let running = servers.running(&[0, 1, 2]).await;
        for node in (0..3).filter(|node| *node != near) {
            running.links[node].delay(Duration::from_millis(50));
        }
        for server in &servers.0[..3] {
            server.hold_elsewhere("a", TTL).unwrap();
        }
        assert!(running.locks.lock("a").try_acquire().await.unwrap().is_none());
        running.locks.shutdown().await.unwrap();
        servers.running(&[0, 1, 3]).await;
    }
}

/// A caller leaves at any moment of it.
#[tokio::test(start_paused = true)]
async fn a_process_whose_connect_was_dropped_leaves_no_mark_for_long() {
    for millis in (0..1500).step_by(50) {
        let servers = Servers::new();
        let process = servers.far_process(&[0, 1, 2]);
        let _ = timeout(Duration::from_millis(millis), process.backend.connect()).await;
        drop(process);
        sleep(Duration::from_secs(2)).await;
        servers.running(&[0, 1, 3]).await;
    }
}

/// A stranger that is started again and again leaves nothing that others could take for a process.
#[tokio::test(start_paused = true)]
async fn a_refused_process_leaves_no_mark() {
    let servers = Servers::new();
    let running = servers.running(&[0, 1, 2]).await;
    for _ in 0..10 {
        servers.refused(&[0, 1, 3]).await;
    }
    running.locks.shutdown().await.unwrap();
    servers.running(&[2, 1, 0]).await;
}

/// More processes than there are marks.
#[tokio::test(start_paused = true)]
async fn many_processes_with_one_list_go_on_side_by_side() {
    let servers = Servers::new();
    let mut running = Vec::new();
    for _ in 0..20 {
        running.push(servers.running(&[0, 1, 2]).await);
    }
    servers.refused(&[0, 1, 3]).await;
    // Those that have the marks end first, and others take them.
    for process in running.drain(..15) {
        process.locks.shutdown().await.unwrap();
    }
    sleep(A_LOOK).await;
    servers.refused(&[0, 1, 3]).await;
}
