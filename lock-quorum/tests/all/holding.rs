//! Tests of renewals and of losses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, Renewal, Revoke, Revoked};
use lock_core::{ErrorKind, HoldState, LockName};
use tokio::time::{Instant, sleep};

use crate::support::{Servers, TTL};

#[tokio::test(start_paused = true)]
async fn a_node_after_the_other_may_forget() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    for round in 0..9 {
        servers.servers[round % 3].take_away("a").unwrap();
        sleep(TTL / 2).await;
        assert_eq!(guard.state(), HoldState::Held, "round {round}");
    }
    for node in 0..3 {
        assert!(servers.holder(node, "a").await.is_some(), "node {node} votes again");
    }
    guard.release().await.unwrap();
    servers.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_vote_displaces_nobody() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    servers.servers[1].hold_elsewhere("a", 4 * TTL).unwrap();
    sleep(3 * TTL).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(servers.holder(1, "a").await.as_deref(), Some("elsewhere"));
    guard.release().await.unwrap();
    assert_eq!(servers.holder(1, "a").await.as_deref(), Some("elsewhere"));
}

/// Two readers of the same process, which have the same label. Only one node votes for both.
#[tokio::test(start_paused = true)]
async fn a_status_shows_each_of_two_holds_with_the_same_label() {
    let servers = Servers::new(3);
    let (one, other) = (servers.client(), servers.client());
    one.links[2].cut();
    let first = one.locks.rw_lock("a").read().acquire().await.unwrap();
    other.links[0].cut();
    let second = other.locks.rw_lock("a").read().acquire().await.unwrap();
    let observer = servers.client();
    let status = observer.locks.status("a").await.unwrap();
    let tokens: Vec<_> = status.holders.iter().filter_map(|holder| holder.token).collect();
    assert_eq!(tokens, [first.token(), second.token()], "{status:?}");
    let labels: Vec<_> = status.holders.iter().map(|holder| holder.label.clone()).collect();
    assert_eq!(labels[0], labels[1]);
    // Whoever is refused is told the same label.
    let error = observer.locks.lock("a").acquire_within(TTL / 30).await.unwrap_err();
    let label = labels[0].as_deref().unwrap();
    let line = error.to_string();
    assert!(line.contains(label) && !line.contains('#'), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_a_status_its_patience_once() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[1].stall();
    let mut took = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        client.locks.status("a").await.unwrap();
        took.push(started.elapsed());
    }
    assert!(took[0] <= Duration::from_millis(510), "{took:?}");
    assert!(
        took[1..].iter().all(|took| *took <= Duration::from_millis(10)),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_forgets_loses_the_hold() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    servers.servers[0].take_away("a").unwrap();
    servers.servers[2].take_away("a").unwrap();
    sleep(TTL / 2).await;
    assert!(guard.check().is_err(), "{:?}", guard.state());
    servers.until_free("a").await;
}

/// A node that says "revoked" does not vote for it any more, as one that has forgotten it.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_votes_are_revoked_is_lost_if_they_are_a_majority() {
    for (how, nodes) in [
        (Revoke::AtLeaseEnd, 1),
        (Revoke::AtLeaseEnd, 2),
        (Revoke::Now, 1),
        (Revoke::Now, 2),
    ] {
        let servers = Servers::new(3);
        let client = servers.client();
        let guard = client.locks.lock("a").acquire().await.unwrap();
        let name = LockName::new("a").unwrap();
        for server in &servers.servers[..nodes] {
            let token = server.status(&name).await.unwrap().holders[0].token.unwrap();
            let answer = server.revoke(&name, token, how).await.unwrap();
            assert!(matches!(answer, Revoked::Done { .. }), "{answer:?}");
        }
        sleep(2 * TTL).await;
        let is_held = guard.state() == HoldState::Held;
        assert_eq!(is_held, nodes == 1, "{how:?} at {nodes}: {:?}", guard.state());
    }
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_is_cut_off_loses_the_hold_with_its_lease() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    sleep(TTL / 6).await;
    client.links[0].cut();
    client.links[2].cut();
    sleep(TTL / 2).await;
    assert_ne!(guard.state(), HoldState::Held, "suspect at least");
    sleep(TTL / 2).await;
    assert!(matches!(guard.state(), HoldState::Lost(_)), "{:?}", guard.state());
}

#[tokio::test(start_paused = true)]
async fn two_of_three_may_be_cut_off_one_after_the_other() {
    let servers = Servers::new(3);
    let client = servers.client();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    for round in 0..6 {
        client.links[round % 3].cut();
        sleep(2 * TTL).await;
        assert!(guard.check().is_ok(), "round {round}: {:?}", guard.state());
        client.links[round % 3].heal();
        sleep(TTL).await;
    }
    guard.release().await.unwrap();
    servers.until_free("a").await;
}

/// Of five nodes three voted, and two of these three answer.
#[tokio::test(start_paused = true)]
async fn an_extension_needs_a_majority_of_all_nodes() {
    let servers = Servers::new(5);
    let client = servers.client();
    client.links[3].cut();
    client.links[4].cut();
    let guard = client.locks.lock("a").acquire().await.unwrap();
    client.links[2].cut();
    let error = guard.extend(2 * TTL).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    client.links[4].heal();
    guard
        .extend(2 * TTL)
        .await
        .expect("a node that never voted makes up for it");
    assert!(guard.valid_for() > TTL);
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_name_and_a_writer_waits_for_all() {
    let servers = Servers::new(3);
    let (one, other) = (servers.client(), servers.client());
    let first = one.locks.rw_lock("a").read().acquire().await.unwrap();
    let second = other.locks.rw_lock("a").read().acquire().await.unwrap();
    assert_eq!(one.locks.status("a").await.unwrap().holders.len(), 2);
    assert!(other.locks.rw_lock("a").write().try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    let writer = one.locks.lock("a");
    let writing = tokio::spawn(async move { writer.acquire_within(Duration::from_secs(20)).await });
    sleep(Duration::from_secs(1)).await;
    second.release().await.unwrap();
    writing
        .await
        .unwrap()
        .expect("the readers have left")
        .release()
        .await
        .unwrap();
    servers.until_free("a").await;
}

/// Nobody can send all revokes between two renewals for sure.
#[tokio::test(start_paused = true)]
async fn votes_that_are_revoked_one_after_the_other_end_the_hold() {
    for how in [Revoke::AtLeaseEnd, Revoke::Now] {
        let servers = Servers::new(5);
        let client = servers.client();
        let guard = client.locks.lock("a").acquire().await.unwrap();
        let name = LockName::new("a").unwrap();
        for (revoked, server) in servers.servers[..3].iter().enumerate() {
            assert!(guard.check().is_ok(), "{how:?} at {revoked}: {:?}", guard.state());
            let token = server.status(&name).await.unwrap().holders[0].token.unwrap();
            let answer = server.revoke(&name, token, how).await.unwrap();
            assert!(matches!(answer, Revoked::Done { .. }), "{answer:?}");
            sleep(2 * TTL).await;
        }
        assert!(
            matches!(guard.state(), HoldState::Lost(_)),
            "{how:?}: {:?}",
            guard.state()
        );
        servers.until_free("a").await;
    }
}

/// A node gives a vote that it lost at once, also during its restart delay. One that was revoked is not asked for again: somebody wants
/// the hold to end.
#[tokio::test(start_paused = true)]
async fn a_vote_that_was_revoked_is_not_said_to_be_lost() {
    for (is_revoked, reinstating) in [(false, 1), (true, 0)] {
        let servers = Servers::new(3);
        let client = servers.client();
        let guard = client.locks.lock("a").acquire().await.unwrap();
        let (name, node) = (LockName::new("a").unwrap(), &servers.servers[0]);
        if is_revoked {
            let status = node.status(&name).await.unwrap();
            let token = status.holders[0].token.unwrap();
            let revoked = node.revoke(&name, token, Revoke::Now).await.unwrap();
            assert!(!matches!(revoked, Revoked::NotHeld), "{revoked:?}");
        } else {
            assert!(node.take_away("a").unwrap());
        }
        sleep(TTL / 2).await;
        assert!(guard.check().is_ok(), "{:?}", guard.state());
        assert_eq!(
            servers.holder(0, "a").await.is_some(),
            !is_revoked,
            "it was asked again"
        );
        assert_eq!(servers.counts.reinstating.load(Ordering::SeqCst), reinstating);
    }
}

/// The node has lost the vote, and its answer to the request for a new one gets lost, too. So that vote is given back. The next
/// request says again that it restores a vote.
#[tokio::test(start_paused = true)]
async fn a_lost_vote_is_restored_by_a_later_renewal() {
    let servers = Servers::new(3);
    let client = servers.client();
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, _control) = options.start();
    let Attempt::Granted(hold, _armed) = client.backend.acquire(&request).await.unwrap() else {
        panic!("the name is free");
    };
    sleep(Duration::from_secs(1)).await;
    client.forgets[0].store(true, Ordering::SeqCst);
    // After that to the release and the renewal.
    client.links[0].swallow_reply(3);
    for (reinstating, is_restored) in [(1, false), (2, true), (2, true)] {
        assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Renewed(_))));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(servers.counts.reinstating.load(Ordering::SeqCst), reinstating);
        assert_eq!(servers.holder(0, "a").await.is_some(), is_restored);
    }
}

/// One node votes again, another one has somebody else's vote, and the third does not answer, whose vote lives.
#[tokio::test(start_paused = true)]
async fn a_node_that_votes_again_does_not_count_as_lost() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[2].cut();
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, _control) = options.start();
    let Attempt::Granted(hold, _armed) = client.backend.acquire(&request).await.unwrap() else {
        panic!("the name is free");
    };
    client.links[2].heal();
    servers.servers[2].hold_elsewhere("a", TTL).unwrap();
    assert!(servers.servers[1].take_away("a").unwrap());
    client.links[0].cut();
    let error = hold.renew(TTL).await.expect_err("one node of three keeps it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    client.links[0].heal();
    let renewed = hold.renew(TTL).await;
    assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
}

/// As an extend beside a renewal by core. One node was down when the lock was acquired, and another one forgets it.
#[tokio::test(start_paused = true)]
async fn two_renewals_at_a_time_do_not_take_each_others_votes_for_those_of_somebody_else() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[2].cut();
    let options = RequestOptions::new(LockName::new("a").unwrap(), Terms::new(TTL));
    let (request, _control) = options.start();
    let Attempt::Granted(hold, _armed) = client.backend.acquire(&request).await.unwrap() else {
        panic!("the name is free");
    };
    client.links[2].heal();
    servers.servers[0].take_away("a").unwrap();
    servers.counts.take();
    let (one, other) = tokio::join!(hold.renew(TTL), hold.renew(TTL));
    for renewed in [one, other] {
        assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.counts.take()[0], 2, "each node that has no vote is asked once");
    for node in 0..3 {
        assert!(servers.holder(node, "a").await.is_some(), "node {node}");
    }
    assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Renewed(_))));
}
