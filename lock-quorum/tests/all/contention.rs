//! Many who want the same name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock};
use lock_core::{ErrorKind, LockName, Locker, MemoryBackend};
use lock_quorum::{QuorumBackend, rules};
use testbed::assert_safe;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Client, Servers, TTL};

fn clients(servers: &Servers, number: usize) -> Vec<Client> {
    (0..number).map(|_| servers.client()).collect()
}

/// Their requests arrive at each node in another order.
#[tokio::test(start_paused = true)]
async fn one_of_a_hundred_simultaneous_tries_wins() {
    for seed in 0..10 {
        let servers = Servers::new(3);
        let clients = clients(&servers, 100);
        let mut trying = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            for (node, link) in client.links.iter().enumerate() {
                let millis = (number * 7 + node * (31 + 2 * seed)) % 23;
                link.delay(Duration::from_millis(millis as u64));
            }
            let lock = client.locks.lock("a");
            trying.push(tokio::spawn(async move { lock.try_acquire().await.unwrap() }));
        }
        let mut winners = Vec::new();
        for tried in trying {
            winners.extend(tried.await.unwrap());
        }
        assert_eq!(winners.len(), 1, "seed {seed}");
        winners.pop().unwrap().release().await.unwrap();
        clients
            .iter()
            .flat_map(|client| &client.links)
            .for_each(conformance_tests::Link::heal);
        servers.until_free("a").await;
    }
}

/// It waits at the anchor alone. When that votes for it, the nodes that it needs are suspected.
/// After an outage, three clients take another node each for the one that decides. Each has its vote, and waits for the others.
#[tokio::test(start_paused = true)]
async fn clients_with_different_anchors_do_not_wait_for_each_other_for_long() {
    let servers = Servers::new(3);
    let clients = clients(&servers, 3);
    let order: Vec<usize> = rules::order("a", 3).collect();
    for (silent, client) in clients.iter().enumerate() {
        for node in &order[..silent] {
            client.links[*node].cut();
        }
        // It notices which nodes are down.
        let _tried = client.locks.lock("a").try_acquire().await;
        client.links.iter().for_each(conformance_tests::Link::heal);
    }
    servers.until_free("a").await;
    for (near, client) in clients.iter().enumerate() {
        for node in order.iter().filter(|node| **node != order[near]) {
            client.links[*node].delay(Duration::from_millis(10));
        }
    }
    let started = Instant::now();
    let acquiring = clients.iter().map(|client| async {
        let guard = client.locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
        started.elapsed()
    });
    let took = futures_util::future::join_all(acquiring).await;
    assert!(took.iter().all(|took| *took < Duration::from_secs(5)), "{took:?}");
}

/// Its own vote is the anchor's. For a third of the TTL it waits for the others.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_has_the_anchor_is_told_that_the_name_is_taken() {
    let servers = Servers::new(3);
    let client = servers.client();
    for node in rules::order("a", 3).skip(1) {
        servers.servers[node].hold_elsewhere("a", TTL).unwrap();
    }
    let terms = Terms::new(TTL).time_left(Duration::from_secs(2));
    let (request, _control) = RequestOptions::new(LockName::new("a").unwrap(), terms).start();
    let waiting = client.backend.acquire(&request);
    let attempt = timeout(Duration::from_secs(3), waiting).await.unwrap().unwrap();
    let Attempt::Busy(busy) = attempt else {
        panic!("granted")
    };
    assert_eq!(busy.holder.as_deref(), Some("elsewhere"));
    assert_eq!(request.last_busy(), Some(busy));
    client.backend.abandon(&request).await.unwrap();
    let error = client
        .locks
        .lock("a")
        .acquire_within(Duration::from_secs(2))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_suspected_nodes_once_the_anchor_has_voted() {
    let servers = Servers::new(3);
    let (holder, waiter) = (servers.client(), servers.client());
    let held = holder.locks.lock("a").acquire().await.unwrap();
    let lock = waiter.locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let order: Vec<usize> = rules::order("a", 3).collect();
    let name = LockName::new("a").unwrap();
    while servers.servers[order[0]].status(&name).await.unwrap().waiting != Some(1) {
        sleep(Duration::from_millis(1)).await;
    }
    order[1..].iter().for_each(|node| waiter.links[*node].cut());
    waiter.locks.lock("b").try_acquire().await.unwrap_err();
    order[1..].iter().for_each(|node| waiter.links[*node].heal());

    held.release().await.unwrap();
    let granted = timeout(TTL / 3, waiting).await.expect("it is granted").unwrap();
    granted.release().await.unwrap();
}

/// It waits at the second node meanwhile, while all others wait at the first. Nobody releases anything.
#[tokio::test(start_paused = true)]
async fn a_waiter_goes_back_to_the_first_node_when_its_suspicion_has_ended() {
    let servers = Servers::new(3);
    let (holder, waiter) = (servers.client(), servers.client());
    let _held = holder.locks.lock("a").acquire().await.unwrap();
    let order: Vec<usize> = rules::order("a", 3).collect();
    waiter.links[order[0]].cut();
    let lock = waiter.locks.lock("a");
    let _waiting = AbortOnDrop(tokio::spawn(async move { lock.acquire().await.map(drop) }));
    let name = LockName::new("a").unwrap();
    let waits_at = async |node: usize| {
        while servers.servers[node].status(&name).await.unwrap().waiting != Some(1) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TTL / 3, waits_at(order[1]))
        .await
        .expect("it waits at the second");
    waiter.links[order[0]].heal();
    timeout(TTL, waits_at(order[0])).await.expect("it waits at the first");
}

/// Ends its task.
struct AbortOnDrop(JoinHandle<lock_core::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The second waiter asks the anchor alone. Servers in the process answer while they are asked.
#[tokio::test(start_paused = true)]
async fn each_short_wait_for_a_taken_name_times_out() {
    let nodes = [(); 3].map(|()| Arc::new(MemoryBackend::new()) as Arc<dyn DistributedLock>);
    let locks = Locker::new(QuorumBackend::new(nodes.clone()).unwrap()).with_ttl(TTL);
    let _held = locks.lock("a").acquire().await.unwrap();
    let others = Locker::new(QuorumBackend::new(nodes).unwrap()).with_ttl(TTL);
    for wait in 0..3 {
        let error = others
            .lock("a")
            .acquire_within(Duration::from_millis(100))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "wait {wait}: {error}");
    }
}

/// Every client gets the name, nobody beside another, and requests do not multiply.
async fn takes_turns(nodes: usize, down: Option<usize>) -> usize {
    const CLIENTS: usize = 30;
    const TURNS: usize = 10;
    let servers = Servers::new(nodes);
    let clients = clients(&servers, CLIENTS);
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for client in &clients {
        client
            .links
            .iter()
            .for_each(|link| link.delay(Duration::from_micros(500)));
        if let Some(down) = down {
            client.links[down].cut();
        }
        let (lock, inside) = (client.locks.lock("a"), inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut last = None;
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                assert_safe!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two at a time");
                assert_safe!(Some(guard.token()) > last, "{last:?} was followed by {}", guard.token());
                last = Some(guard.token());
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    servers.until_free("a").await;
    let counts = servers.counts.take();
    println!("{counts:?} for {} grants", CLIENTS * TURNS);
    counts.iter().sum::<usize>() / (CLIENTS * TURNS)
}

#[tokio::test(start_paused = true)]
async fn many_waiters_take_turns() {
    let requests = takes_turns(3, None).await;
    assert!(requests <= 10, "{requests} requests a grant");
}

#[tokio::test(start_paused = true)]
async fn many_waiters_take_turns_with_any_node_down() {
    for down in 0..3 {
        let requests = takes_turns(3, Some(down)).await;
        assert!(requests <= 12, "{requests} requests a grant, node {down} down");
    }
}
