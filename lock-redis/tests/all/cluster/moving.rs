//! Slots that are on their way for long, or move at a bad moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use lock_core::FencingToken;
use lock_core::backend::{DistributedLock, Hold, ListFrom, Mode, Renewal};
use lock_redis::RedisBackend;
use tokio::time::{Instant, sleep};

use super::{Fixture, REFRESH};
use crate::replicas::acknowledged;
use crate::support::waiter::Waiter;
use crate::support::{
    SECOND, TTL, eventually, in_the_end, in_the_end_granted, in_the_end_released, name, refused, release, request,
    request_in, stays_below, take, with_config,
};

/// An operator may leave a slot like this for hours.
#[testbed::test]
async fn holds_live_on_in_a_slot_that_stays_on_its_way() {
    let fixture = Fixture::shared().await;
    live_on_in_a_slot_on_its_way(&fixture, &fixture.backend(), 1).await;
}

/// They are acknowledged by the replicas of whoever has the lock at the time, and no other hold suffers from it.
#[testbed::test]
async fn holds_with_replicas_live_on_in_a_slot_that_stays_on_its_way() {
    let fixture = Fixture::own(true).await;
    fixture.bears_pauses().await;
    let backend = with_config(fixture.config().with_replicas(1));
    live_on_in_a_slot_on_its_way(&fixture, &backend, 1).await;
}

/// It stays exclusive, of which the slot has all keys.
#[testbed::test]
async fn a_hold_whose_downgrade_is_not_served_lives_on() {
    let fixture = Fixture::shared().await;
    let backend = with_config(fixture.config().with_connect_timeout(SECOND));
    let of = fixture.name_on(0).await;
    let slot = fixture.slot(&of).await;
    let hold = in_the_end_granted(&backend, &request(&of, TTL).0).await;
    fixture.cluster.begin_move(slot, 0, 1).await.expect("it begins");
    hold.downgrade(TTL).await.expect_err("not all of its keys are there");
    assert_renewed(in_the_end(async || hold.renew(TTL).await).await);
    fixture.cluster.finish_move(slot, 0, 1).await.expect("it moves");
    assert_renewed(in_the_end(async || hold.downgrade(TTL).await).await);
    in_the_end_released(&hold).await;
    fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
}

/// What the server of another connection may have forgotten is repeated. Meanwhile the slot lacks keys for that.
#[testbed::test]
async fn holds_that_were_changed_live_on_over_another_connection() {
    let fixture = Fixture::shared().await;
    let (proxies, backend) = fixture.proxied().await;
    let of = fixture.name_on(0).await;
    let (slot, tag) = (fixture.slot(&of).await, fixture.key(&of));
    let names = ["downgraded", "forgotten", "raised"].map(|what| format!("{{{tag}}}-{what}"));
    let mut holds = Vec::new();
    for name in &names {
        holds.push(in_the_end_granted(&backend, &request(name, TTL).0).await);
    }
    let [downgraded, forgotten, raised] = &holds[..] else {
        unreachable!("as many as names")
    };
    let key = fixture.key(&names[1]);
    let before = fixture.call(0, &["GET", &key]).await;
    for hold in [downgraded, forgotten] {
        assert_renewed(in_the_end(async || hold.downgrade(TTL).await).await);
    }
    let token = FencingToken::new(raised.token().as_u64() + 1000).expect("a token");
    in_the_end(async || raised.raise_token(token).await).await;
    let shared = ["ends", "terms"].map(|purpose| format!("{{{tag}}}:{purpose}:{key}"));
    assert_eq!(fixture.call(0, &["DEL", &shared[0], &shared[1]]).await, "2");
    fixture.call(0, &["SET", &key, &before, "PX", "60000"]).await;

    fixture.cluster.begin_move(slot, 0, 1).await.expect("it begins");
    proxies[0].cut();
    let renew = async |hold: &Arc<dyn Hold>| in_the_end(async || hold.renew(TTL).await).await;
    for renewal in join_all(holds.iter().map(&renew)).await {
        assert_renewed(renewal);
    }
    fixture.cluster.finish_move(slot, 0, 1).await.expect("it moves");
    eventually("its downgrade is repeated", async || {
        assert_renewed(renew(forgotten).await);
        let status = in_the_end(async || backend.status(&name(&names[1])).await).await;
        status.holders[0].mode == Some(Mode::Shared)
    })
    .await;
    for hold in &holds {
        assert_renewed(renew(hold).await);
        in_the_end_released(hold).await;
    }
    fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
}

fn assert_renewed(renewal: Renewal) {
    assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
}

/// As an operator does who adds a master. It can have no mark.
#[testbed::test]
async fn holds_live_on_in_a_slot_on_its_way_to_a_master_without_slots() {
    let fixture = Fixture::own(true).await;
    let to = without_slots(&fixture).await;
    fixture.bears_pauses().await;
    let of = fixture.name_on(0).await;
    let slot = fixture.slot(&of).await;
    let backends = [(fixture.backend(), false), (fixture.trusting(&[0, 1, 2]).await, true)];
    for (backend, is_delayed) in backends {
        live_on_in_a_slot_on_its_way(&fixture, &backend, to).await;

        // The master in its delay is asked for no grant, and so does not say that the slot is back.
        backend.status(&name(&of)).await.expect("an answer");
        let hold = in_the_end_granted(&backend, &request(&of, TTL).0).await;
        fixture.cluster.begin_move(slot, 0, to).await.expect("it begins");
        fixture
            .cluster
            .migrate(&[&fixture.key(&of)], 0, to)
            .await
            .expect("it moves");
        let renew = async || in_the_end(async || hold.renew(TTL).await).await;
        renew().await;
        let before = clients(&fixture, to, "cmd=eval").await;
        assert!(!before.is_empty(), "that of the renewal");
        for _ in 0..5 {
            assert!(matches!(renew().await, Renewal::Renewed(_)));
            // It learns anew who has slots, which this master has not.
            in_the_end(async || backend.list(&ListFrom::all(), 1000).await).await;
        }
        let after = clients(&fixture, to, "").await;
        assert!(before.is_subset(&after), "{before:?}, then {after:?}");
        if is_delayed {
            let error = refused(&backend, &format!("{{{}}}-fresh", fixture.key(&of))).await;
            let said = error.to_string();
            assert!(
                said.contains("had no hash slots") && said.contains("(restart_delay)"),
                "{said}"
            );
        }
        fixture.cluster.finish_move(slot, 0, to).await.expect("it moves");
        assert!(release(&hold).await);
        fixture.cluster.move_slot(slot, to, 0).await.expect("it moves back");
    }
}

/// Makes a replica a master that has nothing yet.
async fn without_slots(fixture: &Fixture) -> usize {
    const NODE: usize = 3;
    // It stays one when it has lost its last slot.
    fixture
        .call(NODE, &["CONFIG", "SET", "cluster-allow-replica-migration", "no"])
        .await;
    fixture.call(NODE, &["CLUSTER", "RESET"]).await;
    let port = async |setting| {
        let setting = fixture.call(0, &["CONFIG", "GET", setting]).await;
        setting.lines().nth(1).expect("its value").to_owned()
    };
    let (port, bus) = (port("port").await, port("cluster-port").await);
    fixture.call(NODE, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
    let id = fixture.call(NODE, &["CLUSTER", "MYID"]).await;
    eventually("all take it for a master", async || {
        for node in 0..6 {
            let nodes = fixture.call(node, &["CLUSTER", "NODES"]).await;
            let is_master = |line: &str| line.starts_with(&id) && line.contains("master");
            if !nodes.lines().any(is_master) {
                return false;
            }
        }
        true
    })
    .await;
    fixture.cluster.until_it_serves().await.expect("it does");
    NODE
}

/// The connections to a node of which it says this, by their ids.
async fn clients(fixture: &Fixture, node: usize, what: &str) -> BTreeSet<String> {
    let clients = fixture.call(node, &["CLIENT", "LIST"]).await;
    let clients = clients.lines().filter(|client| client.contains(what));
    let id = |client: &str| client.split(' ').next().expect("its id").to_owned();
    clients.map(id).collect()
}

async fn live_on_in_a_slot_on_its_way(fixture: &Fixture, backend: &RedisBackend, to: usize) {
    let of = fixture.name_on(0).await;
    let slot = fixture.slot(&of).await;
    // All in one slot.
    let names = ["", "-2", "-3"].map(|end| format!("{{{}}}{end}", fixture.key(&of)));
    let mut holds = Vec::new();
    for name in &names {
        holds.push(in_the_end_granted(backend, &request(name, TTL).0).await);
    }
    let shared = format!("{{{}}}-shared", fixture.key(&of));
    let (readers, _controls): (Vec<_>, Vec<_>) = (0..2).map(|_| request_in(Mode::Shared, &shared)).unzip();
    for reader in &readers {
        holds.push(in_the_end_granted(backend, reader).await);
    }
    // In another slot of the same master.
    let elsewhere = fixture.name_on_beside(0, slot).await;
    holds.push(in_the_end_granted(backend, &request(&elsewhere, TTL).0).await);
    fixture.cluster.begin_move(slot, 0, to).await.expect("it begins");
    let all_live = async || {
        let renew = async |hold: &Arc<dyn Hold>| acknowledged(async || hold.renew(TTL).await).await;
        let alone = renew(&holds[0]).await;
        let together = join_all(holds.iter().map(renew)).await;
        for renewal in [alone].into_iter().chain(together) {
            assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
        }
    };
    all_live().await;
    // The first is there, and the others are not; then all are that nobody shares.
    for name in &names {
        let key = fixture.key(name);
        fixture.cluster.migrate(&[&key], 0, to).await.expect("it moves");
        all_live().await;
    }
    fixture.cluster.finish_move(slot, 0, to).await.expect("it moves");
    all_live().await;
    for hold in &holds {
        assert!(release(hold).await);
    }
    fixture.cluster.move_slot(slot, to, 0).await.expect("it moves back");
}

/// The reply that it waits is late: by then its subscription has ended, which woke nobody.
#[testbed::test]
async fn a_waiter_that_does_not_know_yet_that_it_waits_follows_its_slot() {
    let fixture = Fixture::shared().await;
    let (holder, (proxies, backend)) = (fixture.backend(), fixture.proxied().await);
    let of = fixture.name_on(0).await;
    let slot = fixture.slot(&of).await;
    let queue = format!("{{{}}}:queue", fixture.key(&of));
    stays_below(REFRESH, "the waiter did not hear of the move", async || {
        let first = take(&holder, &of).await;
        // Of the only request with the lifetime of a queue entry.
        proxies[0].swallow_after("\r\n15000\r\n");
        let waiter = Waiter::start(&backend, &of, TTL);
        let id = waiter.id();
        let entries = async || fixture.call(0, &["ZRANGE", &queue, "0", "-1"]).await;
        eventually("it has its entry", async || entries().await.contains(&id)).await;
        let moving = tokio::spawn({
            let cluster = fixture.cluster.clone();
            async move { cluster.move_slot(slot, 0, 1).await }
        });
        let listens_to = async |node| {
            let channels = fixture.call(node, &["PUBSUB", "SHARDCHANNELS"]).await;
            channels.contains(&fixture.key(&of))
        };
        eventually("its subscription ends", async || !listens_to(0).await).await;
        // Until it has heard of that, which nobody sees. Too early, this shows nothing.
        sleep(SECOND / 20).await;
        let start = Instant::now();
        proxies[0].let_go();
        eventually("it listens to the new master", async || listens_to(1).await).await;
        let waited = start.elapsed();
        moving.await.expect("no panic").expect("it moves");
        assert!(release(&first).await);
        assert!(release(&waiter.granted().await).await);
        fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
        waited
    })
    .await;
}
