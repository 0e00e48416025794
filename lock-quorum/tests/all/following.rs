//! Observers of elections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::DistributedLock;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Servers, TTL};

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_leader_elsewhere_while_a_node_is_down() {
    let servers = Servers::new(3);
    servers.servers[1].set_available(false);
    let (here, elsewhere) = (servers.client(), servers.client());
    let mut seen = here.locks.election("a").observe();
    for _ in 0..5 {
        let seeing = tokio::spawn(async move {
            let term = seen.changed().await.unwrap().term();
            (seen, term)
        });
        sleep(Duration::from_secs(1)).await;
        let term = elsewhere.locks.election("a").campaign().await.unwrap();
        let elected = Instant::now();
        let (observer, seen_term) = seeing.await.unwrap();
        assert_eq!(seen_term, term.token());
        assert!(elected.elapsed() < Duration::from_secs(1), "told, and not asked");
        term.resign().await.unwrap();
        seen = observer;
    }
}

#[tokio::test(start_paused = true)]
async fn the_nodes_are_to_show_the_token_of_a_leader_and_no_other() {
    let servers = Servers::new(3);
    let client = servers.client();
    let _guard = client.locks.lock("a").acquire().await.unwrap();
    assert_eq!(servers.counts.shown.load(Ordering::SeqCst), 0);
    let _term = client.locks.election("b").campaign().await.unwrap();
    assert_eq!(servers.counts.shown.load(Ordering::SeqCst), 3);
}

/// A node that was away when the leader was elected, and has voted since.
#[tokio::test(start_paused = true)]
async fn a_node_that_votes_later_shows_the_token_as_well() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[2].cut();
    let _term = client.locks.election("b").campaign().await.unwrap();
    assert_eq!(servers.counts.shown.load(Ordering::SeqCst), 3);
    client.links[2].heal();
    let votes = async {
        while servers.holder(2, "b").await.is_none() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(TTL, votes).await.expect("it votes");
    assert_eq!(servers.counts.shown.load(Ordering::SeqCst), 4);
}

/// The vote that decides may be at a node that was not asked: one that is believed to be silent for five seconds.
#[tokio::test(start_paused = true)]
async fn an_observer_asks_again_while_a_node_does_not_answer() {
    let servers = Servers::new(3);
    let (here, elsewhere) = (servers.client(), servers.client());
    let term = elsewhere.locks.election("a").campaign().await.unwrap();
    servers.servers[1].set_available(false);
    let (status, mut change) = here.backend.follow(&LockName::new("a").unwrap()).await.unwrap();
    assert_eq!(status.holders[0].token, Some(term.token()));
    let again = timeout(Duration::from_secs(6), change.happened());
    again.await.expect("it is time to ask again");
    servers.servers[1].set_available(true);
    sleep(Duration::from_secs(6)).await;
    let (_, mut change) = here.backend.follow(&LockName::new("a").unwrap()).await.unwrap();
    let reported = timeout(Duration::from_secs(60), change.happened());
    assert!(reported.await.is_err(), "all nodes answered, and nothing changes");
}
