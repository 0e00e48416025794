//! When a process that was refused may go on.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A process of three nodes with this restart delay.
fn with_delay(servers: &Servers, delay: Duration) -> Process {
    servers.process_with(&[0, 1, 2], Some(delay), "server")
}

async fn is_refused(process: &Process) {
    let error = process.backend.connect().await.expect_err("a stranger runs");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

async fn acquires(process: &Process) {
    process
        .locks
        .lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Its mark was at the two nodes that answer, and it has no majority without them.
#[tokio::test(start_paused = true)]
async fn a_refusal_ends_with_the_stranger_although_a_node_is_down() {
    let servers = Servers::new();
    servers.0[2].set_available(false);
    let (stranger, process) = (with_delay(&servers, 2 * MINUTE), with_delay(&servers, MINUTE));
    stranger.backend.connect().await.unwrap();
    is_refused(&process).await;
    stranger.locks.shutdown().await.unwrap();
    process.backend.connect().await.unwrap();
    acquires(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_with_the_stranger_although_a_node_died_meanwhile() {
    let servers = Servers::new();
    let (stranger, process) = (servers.process(&[0, 1, 3]), servers.process(&[0, 1, 2]));
    stranger.backend.connect().await.unwrap();
    is_refused(&process).await;
    servers.0[2].set_available(false);
    is_refused(&process).await;
    stranger.locks.shutdown().await.unwrap();
    process.backend.connect().await.unwrap();
    acquires(&process).await;
}

/// It looks again by itself.
#[tokio::test(start_paused = true)]
async fn a_running_process_goes_on_after_the_stranger_although_a_node_is_down() {
    let servers = Servers::new();
    let process = servers.process(&[0, 1, 2, 3, 4]);
    process.links[..2].iter().for_each(Link::cut);
    process.backend.connect().await.unwrap();
    let stranger = servers.running(&[0, 1, 5]).await;
    process.links[..2].iter().for_each(Link::heal);
    sleep(A_LOOK).await;
    process.locks.lock("a").acquire().await.expect_err("a stranger runs");
    servers.0[4].set_available(false);
    sleep(A_LOOK).await;
    process.locks.lock("a").acquire().await.expect_err("a stranger runs");
    stranger.locks.shutdown().await.unwrap();
    sleep(A_LOOK).await;
    acquires(&process).await;
}

/// The stranger lost its marks at the two nodes that answer, and holds a lock with the others.
#[tokio::test(start_paused = true)]
async fn a_refusal_lasts_if_the_stranger_has_a_majority_elsewhere() {
    let servers = Servers::new();
    let (stranger, process) = (servers.running(&[0, 1, 2, 3, 4]).await, servers.process(&[0, 1, 2]));
    process.links[2].cut();
    is_refused(&process).await;
    stranger.links[..2].iter().for_each(Link::cut);
    sleep(EXPIRED).await;
    let guard = stranger.locks.lock("a").acquire().await.unwrap();
    is_refused(&process).await;
    process.links[2].heal();
    is_refused(&process).await;
    guard.release().await.unwrap();
    stranger.locks.shutdown().await.unwrap();
    process.backend.connect().await.unwrap();
}

/// A node that had the stranger's mark does not answer, and still has it.
#[tokio::test(start_paused = true)]
async fn a_refusal_lasts_while_a_node_may_have_the_strangers_mark() {
    let servers = Servers::new();
    let (stranger, process) = (servers.running(&[0, 1, 2, 3]).await, servers.process(&[0, 1, 4]));
    is_refused(&process).await;
    process.links[1].cut();
    stranger.links[0].cut();
    sleep(EXPIRED).await;
    let _guard = stranger.locks.lock("a").acquire().await.unwrap();
    is_refused(&process).await;
    process.links[1].heal();
    is_refused(&process).await;
}
