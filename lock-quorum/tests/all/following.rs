//! Observers of elections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, LockName};
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

/// The leader has votes at a node that answers and at one that does not.
#[tokio::test(start_paused = true)]
async fn a_name_is_not_said_to_be_free_if_a_node_that_does_not_answer_decides() {
    let servers = Servers::new(3);
    let (here, elsewhere) = (servers.client(), servers.client());
    elsewhere.links[2].cut();
    let term = elsewhere.locks.election("a").campaign().await.unwrap();
    here.links[0].cut();
    let error = here.locks.status("a").await.expect_err("a vote of node 1 decides");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let line = error.to_string();
    assert!(
        line.contains("2 of 3 nodes have answered") && line.contains("node 1"),
        "{line}"
    );
    let (status, mut change) = here.backend.follow(&LockName::new("a").unwrap()).await.unwrap();
    assert!(status.is_held() && status.holders[0].token.is_none(), "{status:?}");
    let again = timeout(Duration::from_secs(6), change.happened());
    again.await.expect("it is time to ask again");
    here.backend.status(&LockName::new("a").unwrap()).await.unwrap_err();
    // The status before suspects node 0 again. The others do not decide, so this one waits for node 0 all the same.
    here.links[0].heal();
    let status = here.locks.status("a").await.unwrap();
    assert_eq!(status.holders[0].token, Some(term.token()), "{status:?}");
}

/// One node is down, and another one has the vote of somebody who ends.
#[tokio::test(start_paused = true)]
async fn a_status_waits_until_votes_that_are_on_their_way_have_arrived() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[0].cut();
    servers.servers[1].hold_elsewhere("a", TTL).unwrap();
    let ending = async {
        sleep(Duration::from_millis(100)).await;
        servers.servers[1].take_away("a").unwrap();
    };
    let (status, ()) = tokio::join!(client.locks.status("a"), ending);
    assert!(!status.unwrap().is_held());
}

/// It would never answer if each repetition of the question dropped the one before.
#[tokio::test(start_paused = true)]
async fn a_slow_node_that_decides_is_waited_for_although_it_is_suspected() {
    let servers = Servers::new(3);
    let (here, elsewhere) = (servers.client(), servers.client());
    elsewhere.links[2].cut();
    let term = elsewhere.locks.election("a").campaign().await.unwrap();
    // Suspects node 0, without which it is known that nobody has this name.
    here.links[0].stall();
    assert!(!here.locks.status("b").await.unwrap().is_held());
    here.links[0].heal();
    for round_trip in [400, 900] {
        here.links[0].delay(Duration::from_millis(round_trip / 2));
        let status = here.locks.status("a").await.unwrap();
        assert_eq!(status.holders[0].token, Some(term.token()), "{round_trip}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_decides_is_waited_for_for_a_second() {
    let servers = Servers::new(3);
    let (here, elsewhere) = (servers.client(), servers.client());
    elsewhere.links[2].cut();
    let _term = elsewhere.locks.election("a").campaign().await.unwrap();
    let fails_after = async || {
        let begun = Instant::now();
        here.locks.status("a").await.unwrap_err();
        begun.elapsed()
    };
    here.links[0].cut();
    assert_eq!(fails_after().await, Duration::from_secs(1));
    here.links[0].heal();
    here.links[0].stall();
    assert_eq!(fails_after().await, Duration::from_secs(1));
    sleep(Duration::from_secs(6)).await;
    let patience = Duration::from_millis(500);
    assert_eq!(
        fails_after().await,
        patience + Duration::from_secs(1),
        "it is not suspected"
    );
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
