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

/// As in a rollout of a longer delay: old processes look again for many reasons.
#[tokio::test(start_paused = true)]
async fn a_process_goes_on_beside_a_longer_delay_that_came_later() {
    let servers = Servers::new();
    let (minute, longer) = (with_delay(&servers, MINUTE), with_delay(&servers, 2 * MINUTE));
    minute.backend.connect().await.unwrap();
    longer.backend.connect().await.unwrap();
    minute.backend.connect().await.unwrap();
    // A node is out of reach for longer than its mark lives, then down for all, and then the nodes lose the marks, one after the other.
    minute.links[2].cut();
    sleep(EXPIRED).await;
    acquires(&minute).await;
    minute.links[2].heal();
    sleep(A_LOOK).await;
    servers.0[0].set_available(false);
    sleep(EXPIRED).await;
    acquires(&minute).await;
    servers.0[0].set_available(true);
    sleep(2 * A_LOOK).await;
    for server in &servers.0[..3] {
        lose_marks(server);
        sleep(2 * A_LOOK).await;
        acquires(&minute).await;
        let long = longer.locks.lock("a").ttl(2 * MINUTE);
        let error = long.acquire().await.unwrap_err();
        assert!(error.to_string().contains("choose at most 60s"), "{error}");
    }
}

/// The look that a single node answers says nothing of the others.
#[tokio::test(start_paused = true)]
async fn a_process_that_hears_one_node_for_a_moment_goes_on_beside_a_longer_delay() {
    let servers = Servers::new();
    let (minute, longer) = (with_delay(&servers, MINUTE), with_delay(&servers, 2 * MINUTE));
    minute.backend.connect().await.unwrap();
    longer.backend.connect().await.unwrap();
    minute.backend.connect().await.unwrap();
    for link in [2, 1] {
        minute.links[link].cut();
        sleep(A_LOOK).await;
    }
    minute.links.iter().for_each(Link::heal);
    acquires(&minute).await;
    sleep(2 * A_LOOK).await;
    acquires(&minute).await;
}

fn lose_marks(server: &MemoryBackend) {
    for number in 0..8 {
        server.take_away(format!("polylock-quorum-member-{number}")).unwrap();
    }
}

/// The other one did not see it for a while, and may hold a lock for longer than its delay.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_unseen_for_a_while_is_refused_beside_a_longer_delay() {
    let servers = Servers::new();
    let (minute, longer) = (with_delay(&servers, MINUTE), with_delay(&servers, 2 * MINUTE));
    minute.backend.connect().await.unwrap();
    longer.backend.connect().await.unwrap();
    minute.links.iter().for_each(Link::cut);
    sleep(EXPIRED + A_LOOK).await;
    let long = longer.locks.lock("a").ttl(2 * MINUTE);
    let _guard = long.acquire().await.unwrap();
    minute.links.iter().for_each(Link::heal);
    sleep(A_LOOK).await;
    let acquires = || async { minute.locks.lock("b").acquire().await };
    let error = acquires().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    // Nor if it takes new marks before the other one does.
    for (server, link) in servers.0.iter().zip(&longer.links) {
        link.cut();
        lose_marks(server);
        sleep(2 * A_LOOK).await;
        link.heal();
        sleep(2 * A_LOOK).await;
        let error = acquires().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
}

/// Nobody knows whether the other one has seen marks with the shorter delay all the time.
#[tokio::test(start_paused = true)]
async fn a_process_that_had_no_mark_is_refused_beside_a_longer_delay() {
    let servers = Servers::new();
    let mut running = Vec::new();
    for _ in 0..9 {
        let process = with_delay(&servers, MINUTE);
        process.backend.connect().await.unwrap();
        running.push(process);
    }
    let without = running.pop().unwrap();
    let longer = with_delay(&servers, 2 * MINUTE);
    for process in running.drain(..2) {
        process.locks.shutdown().await.unwrap();
        longer.backend.connect().await.unwrap();
    }
    sleep(A_LOOK).await;
    let error = without.locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    for process in &running {
        process.backend.connect().await.unwrap();
        acquires(process).await;
    }
}

/// Others have taken the names, so the longer one does not see it any more.
#[tokio::test(start_paused = true)]
async fn a_process_that_loses_its_marks_is_refused_beside_a_longer_delay() {
    let servers = Servers::new();
    let (minute, longer) = (with_delay(&servers, MINUTE), with_delay(&servers, 2 * MINUTE));
    minute.backend.connect().await.unwrap();
    longer.backend.connect().await.unwrap();
    minute.backend.connect().await.unwrap();
    for server in &servers.0[..2] {
        for number in 0..8 {
            let name = format!("polylock-quorum-member-{number}");
            server.hold_elsewhere(name, 60 * MINUTE).unwrap();
        }
    }
    sleep(A_LOOK).await;
    let error = minute.locks.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

/// Its list has an address that was replaced, which nobody can know while that node is down. When it is back, the node that knows of the
/// others' holds is back as well, and has forgotten none: their votes there have expired. docs/quorum.md says so.
#[tokio::test(start_paused = true)]
async fn a_replaced_node_that_comes_back_may_grant_what_is_held() {
    let servers = Servers::new();
    servers.0[2].set_available(false);
    let replaced = servers.running(&[0, 1, 3]).await;
    let process = servers.running(&[0, 1, 2]).await;
    servers.0[1].set_available(false);
    sleep(EXPIRED).await;
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(replaced.locks.lock(format!("lock {number}")).acquire().await.unwrap());
    }
    servers.0[1].set_available(true);
    servers.0[2].set_available(true);
    let mut again = Vec::new();
    for guard in &held {
        again.extend(process.locks.lock(guard.name()).try_acquire().await.unwrap());
    }
    assert!(!again.is_empty(), "if this is seen, the page may promise more");

    sleep(A_LOOK).await;
    let error = process.locks.lock("another").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}
