//! One client or one node that is ill, beside others that are well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::Locker;
use lock_quorum::rules;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::support::{Client, Servers, TTL};

const HOLD: Duration = Duration::from_millis(2);

/// Acquires and releases until then. Returns how often, and how long it waited at most.
fn contends(locks: &Locker, until: Instant, hold: Duration) -> JoinHandle<(usize, Duration)> {
    let lock = locks.lock("a");
    tokio::spawn(async move {
        let (mut grants, mut longest) = (0, Duration::ZERO);
        while Instant::now() < until {
            let started = Instant::now();
            let guard = lock.acquire().await.unwrap();
            longest = longest.max(started.elapsed());
            grants += 1;
            sleep(hold).await;
            guard.release().await.unwrap();
        }
        (grants, longest)
    })
}

fn near(clients: &[Client]) {
    let links = clients.iter().flat_map(|client| &client.links);
    links.for_each(|link| link.delay(Duration::from_millis(1)));
}

fn order() -> Vec<usize> {
    rules::order("a", 3).collect()
}

/// Its packets to two of three nodes are dropped. It reaches the one that decides.
#[tokio::test(start_paused = true)]
async fn a_client_that_is_cut_off_from_a_majority_does_not_stop_the_others() {
    for tries in [false, true] {
        let servers = Servers::new(3);
        let clients = [servers.client(), servers.client(), servers.client()];
        near(&clients);
        let [sick, well @ ..] = &clients;
        order()[1..].iter().for_each(|node| sick.links[*node].stall());
        let lock = sick.locks.lock("a");
        let waiting = tokio::spawn(async move {
            loop {
                match tries {
                    true => drop(lock.try_acquire().await),
                    false => drop(lock.acquire().await),
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        let contending = well.iter().map(|client| contends(&client.locks, until, HOLD));
        let contending: Vec<_> = contending.collect();
        for well in contending {
            let (grants, longest) = well.await.unwrap();
            println!("tries: {tries}, {grants} grants, longest wait {longest:?}");
            assert!(longest < Duration::from_secs(1), "tries: {tries}, {longest:?}");
            assert!(grants > 100, "tries: {tries}, {grants} grants");
        }
        waiting.abort();
    }
}

/// Its way to the node that decides stalls before it releases, and it never comes back.
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_left_at_one_node_delays_waiters_by_little() {
    let servers = Servers::new(3);
    let (holder, waiter) = (servers.client(), servers.client());
    let held = holder.locks.lock("a").acquire().await.unwrap();
    let lock = waiter.locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    servers.until_waiting(order()[0], "a").await;
    sleep(Duration::from_secs(20)).await;
    holder.links[order()[0]].stall();
    held.release().await.unwrap();
    let released = Instant::now();
    let granted = timeout(TTL / 3, waiting).await.expect("the others are free").unwrap();
    println!("granted {:?} after the release", released.elapsed());
    assert!(
        servers.holder(order()[0], "a").await.is_some(),
        "the vote is still there"
    );
    granted.release().await.unwrap();

    // It remembers: with two free nodes, nothing is slow.
    let started = Instant::now();
    let until = started + Duration::from_secs(5);
    let contending = [&waiter, &waiter, &waiter].map(|client| contends(&client.locks, until, HOLD));
    for contending in contending {
        let (grants, longest) = contending.await.unwrap();
        println!("{grants} grants, longest wait {longest:?}");
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    }
}

/// A hold that the node which decides has no vote for: a waiter waits where the hold is, and does not ask for its votes again and again.
#[tokio::test(start_paused = true)]
async fn a_waiter_waits_where_the_holder_s_votes_are() {
    let servers = Servers::new(3);
    let (holder, waiter) = (servers.client(), servers.client());
    let anchor = order()[0];
    holder.links[anchor].cut();
    let held = holder.locks.lock("a").acquire().await.unwrap();
    let lock = waiter.locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    servers.until_waiting(order()[1], "a").await;
    sleep(Duration::from_secs(1)).await;
    servers.counts.take();
    sleep(Duration::from_secs(60)).await;
    let [acquires, ..] = servers.counts.take();
    println!("{acquires} acquires in a minute");
    assert!(acquires < 120, "{acquires} acquires in a minute");
    held.release().await.unwrap();
    let granted = timeout(Duration::from_secs(1), waiting).await.expect("it is granted");
    granted.unwrap().release().await.unwrap();
}

/// Each takes another node for the one that decides.
#[tokio::test(start_paused = true)]
async fn clients_with_rotated_lists_do_not_block_each_other() {
    let servers = Servers::new(3);
    let clients = [servers.rotated(0), servers.rotated(1), servers.rotated(2)];
    // Each is near the first of its list, and has that vote before the others ask there.
    for (first, client) in clients.iter().enumerate() {
        let anchor = (order()[0] + first) % 3;
        let far = (0..3).filter(|node| *node != anchor);
        far.for_each(|node| client.links[node].delay(Duration::from_millis(10)));
    }
    let until = Instant::now() + Duration::from_secs(60);
    let contending = clients.each_ref().map(|client| contends(&client.locks, until, HOLD));
    for contending in contending {
        let (grants, longest) = contending.await.unwrap();
        println!("{grants} grants, longest wait {longest:?}");
        assert!(longest < Duration::from_secs(5), "{longest:?}");
        assert!(grants > 100, "{grants} grants");
    }
}

/// Whoever waits in its queue hears nothing from it.
#[tokio::test(start_paused = true)]
async fn a_silent_anchor_costs_little_whatever_the_length_of_holds() {
    for hold in [Duration::ZERO, HOLD, Duration::from_millis(200)] {
        let servers = Servers::new(3);
        let clients = [servers.client(), servers.client(), servers.client()];
        near(&clients);
        let until = Instant::now() + Duration::from_secs(20);
        let contending = clients.each_ref().map(|client| contends(&client.locks, until, hold));
        sleep(Duration::from_secs(5)).await;
        clients.iter().for_each(|client| client.links[order()[0]].stall());
        for contending in contending {
            let (grants, longest) = contending.await.unwrap();
            println!("hold {hold:?}: {grants} grants, longest wait {longest:?}");
            assert!(longest < Duration::from_secs(3), "hold {hold:?}: {longest:?}");
        }
    }
}

/// Votes with lower tokens are raised without waiting for it.
#[tokio::test(start_paused = true)]
async fn a_slow_node_does_not_slow_each_acquire() {
    for slow in 0..3 {
        let servers = Servers::new(3);
        let client = servers.client();
        client.links[slow].delay(Duration::from_millis(20));
        let lock = client.locks.lock("a");
        let mut took = Vec::new();
        for round in 0..10 {
            // Their tokens differ: one vote has to be raised.
            servers.use_up_tokens((slow + 1 + round % 2) % 3, 20);
            let started = Instant::now();
            let guard = lock.acquire().await.unwrap();
            took.push(started.elapsed());
            sleep(Duration::from_millis(100)).await;
            guard.release().await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        let later = &took[2..];
        println!("node {slow}: {took:?}");
        assert!(
            later.iter().all(|took| *took < Duration::from_millis(2)),
            "node {slow}: {took:?}"
        );
    }
}

/// Even if all others answer first.
#[tokio::test(start_paused = true)]
async fn a_silent_node_is_suspected_by_whoever_did_not_wait_for_it() {
    let servers = Servers::new(3);
    let client = servers.client();
    client.links[order()[2]].stall();
    let lock = client.locks.lock("a");
    lock.acquire().await.unwrap().release().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    servers.counts.take();
    lock.acquire().await.unwrap().release().await.unwrap();
    let [acquires, ..] = servers.counts.take();
    assert_eq!(acquires, 2, "it is not asked while it is suspected");
}

/// The request has asked the others alone, and one of them refuses it.
#[tokio::test(start_paused = true)]
async fn a_node_whose_suspicion_ends_during_a_request_is_asked() {
    for early in 0..20 {
        let servers = Servers::new(3);
        let client = servers.client();
        let (lock, order) = (client.locks.lock("a"), order());
        client.links[order[0]].cut();
        let suspected = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        client.links[order[0]].heal();
        servers.servers[order[2]].hold_elsewhere("a", TTL).unwrap();
        order[1..]
            .iter()
            .for_each(|node| client.links[*node].delay(Duration::from_millis(5)));
        sleep_until(suspected + rules::suspicion(TTL) - Duration::from_millis(early)).await;
        let granted = timeout(TTL / 6, lock.acquire()).await;
        assert!(granted.is_ok(), "{early} ms before the suspicion ends");
    }
}

/// A majority was suspected, so the anchor is asked after another node has voted. That vote is given back, as the anchor is taken.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_adopts_no_token() {
    let servers = Servers::new(3);
    let (client, order) = (servers.client(), order());
    order[1..].iter().for_each(|node| client.links[*node].cut());
    client.locks.lock("a").try_acquire().await.unwrap_err();
    order[1..].iter().for_each(|node| client.links[*node].heal());
    for node in [order[0], order[2]] {
        servers.servers[node].hold_elsewhere("a", TTL).unwrap();
    }
    let lock = client.locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    servers.until_waiting(order[0], "a").await;
    assert_eq!(servers.counts.adopting_waiters.load(Ordering::SeqCst), 0);
    for node in [order[0], order[2]] {
        servers.servers[node].take_away("a").unwrap();
    }
    waiting.await.unwrap().release().await.unwrap();
}

/// As while a node is added: the one process lists it, and the other one does not yet. Each reaches only a majority of its list.
#[tokio::test(start_paused = true)]
async fn lists_that_differ_by_one_node_exclude_each_other() {
    for nodes in [3, 4] {
        let servers = Servers::new(nodes + 1);
        for (first, second) in [(nodes, nodes + 1), (nodes + 1, nodes)] {
            for cut_of_first in 0..first {
                for cut_of_second in 0..second {
                    let (one, other) = (servers.of_first(first), servers.of_first(second));
                    one.links[cut_of_first].cut();
                    other.links[cut_of_second].cut();
                    let guard = one.locks.lock("a").try_acquire().await.unwrap().unwrap();
                    let refused = other.locks.lock("a").try_acquire().await;
                    assert!(!matches!(refused, Ok(Some(_))), "{first} and {second} nodes");
                    one.links.iter().for_each(conformance_tests::Link::heal);
                    guard.release().await.unwrap();
                    let granted = other.locks.lock("a").acquire().await.unwrap();
                    other.links.iter().for_each(conformance_tests::Link::heal);
                    granted.release().await.unwrap();
                    servers.until_free("a").await;
                }
            }
        }
    }
}

/// Their answers come together, later than the patience.
#[tokio::test(start_paused = true)]
async fn a_lock_of_far_nodes_is_granted() {
    for part in [10, 20, 30, 38] {
        let servers = Servers::new(3);
        let client = servers.client();
        client.links.iter().for_each(|link| link.delay(TTL * part / 200));
        let granted = timeout(TTL * 2, client.locks.lock("a").acquire()).await;
        assert!(granted.is_ok(), "round trip {part} % of the TTL");
    }
}
