//! The queue when requests arrive late, memory is full, scripts are forgotten and connections die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::{DistributedLock, Hold, ReleaseOptions, ReleaseOutcome};
use testbed::{assert_safe, happens};

use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, Fixture, Proxied, SECOND, TTL, eventually, in_the_end, in_the_end_granted, release, request, take,
};

#[testbed::test]
async fn a_late_grant_removes_the_queue_entry_that_was_added_meanwhile() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let client = Proxied::quick(&fixture).await;
    // Its first request, which knows of no entry, is still in flight when the next one adds one.
    client.proxy.hold_requests();
    // Of which a refresh is a third.
    let waiter = Waiter::start(&client.backend, "a", 6 * SECOND);
    let id = waiter.id();
    eventually("it has its entry", async || fixture.queue("a").await.contains(&id)).await;
    // As if the hold had expired just before that first one arrives.
    let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    client.proxy.drain_the_held().await;
    assert!(fixture.value("a").await.starts_with(&id), "the late one was granted");
    let granted = waiter.granted().await;
    assert_eq!(
        fixture.queue("a").await,
        <[String; 0]>::default(),
        "its entry is still there"
    );
    assert!(!release(&hold).await);
    assert!(release(&granted).await);
    assert!(!fixture.exists("a").await, "it was offered to itself");
}

#[testbed::test]
async fn a_late_acquire_of_an_abandoned_holder_adds_no_queue_entry() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let client = Proxied::quick(&fixture).await;
    client.proxy.hold_requests();
    let waiter = Waiter::start(&client.backend, "a", TTL);
    eventually("another connection", async || client.proxy.connections() > 1).await;
    let (id, request) = (waiter.id(), waiter.request.clone());
    waiter.control.give_up();
    in_the_end(async || client.backend.abandon(&request).await).await;
    client.proxy.drain_the_held().await;
    assert!(!fixture.queue("a").await.contains(&id));
    assert!(release(&hold).await);
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn a_tombstone_is_left_however_full_the_memory_is() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let client = Proxied::quick(&fixture).await;
    let ((lost, _control), (unanswered, _other)) = (request("a", TTL), request("b", TTL));
    client.proxy.hold_requests();
    let (one, two) = tokio::join!(client.backend.acquire(&lost), client.backend.acquire(&unanswered));
    assert!(one.is_err() && two.is_err(), "they never get there");
    eventually("another connection", async || client.proxy.connections() > 1).await;
    let hold = in_the_end_granted(&client.backend, &lost).await;
    let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // Neither has anything at the server that could be deleted first.
    let released = in_the_end(async || hold.release(ReleaseOptions::default()).await);
    let released = happens("it is not tried for ever", released).await;
    assert_eq!(released, ReleaseOutcome::AlreadyLost);
    in_the_end(async || client.backend.abandon(&unanswered).await).await;
    for (request, of) in [(&lost, "a"), (&unanswered, "b")] {
        let fence = fixture.fence(of).await;
        assert!(fence.contains(&format!(" {}:", request.holder())), "{fence}");
    }
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "0"]).await;
    client.proxy.drain_the_held().await;
    assert!(
        !fixture.exists("a").await && !fixture.exists("b").await,
        "an ended holder id came back"
    );
}

/// Clients that take turns while something is done to the server; returns how often each had it.
async fn turmoil(fixture: &Fixture, harm: impl AsyncFn()) -> Vec<u32> {
    let over = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let locker = Locker::new(fixture.backend()).with_operation_timeout(AT_MOST);
            let (over, inside) = (over.clone(), inside.clone());
            tokio::spawn(async move {
                let (mut had, lock) = (0, locker.lock("a").ttl(TTL));
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.acquire_within(AT_MOST).await.expect("a grant");
                    assert_safe!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two have it");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("still ours");
                    had += 1;
                }
                locker.shutdown().await.expect("nothing is left");
                had
            })
        })
        .collect();
    for _ in 0..40 {
        harm().await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    over.store(true, Ordering::Relaxed);
    let mut had = Vec::new();
    for client in clients {
        had.push(client.await.expect("no panic"));
    }
    had
}

#[testbed::test]
async fn scripts_that_are_forgotten_again_and_again_disturb_nobody() {
    let fixture = Fixture::new().await;
    let had = turmoil(&fixture, async || fixture.raw::<()>(&["SCRIPT", "FLUSH"]).await).await;
    assert!(had.iter().all(|had| *had > 0), "{had:?}");
    assert_eq!(fixture.keys().await, [fixture.fence_key("a")]);
}

#[testbed::test]
async fn connections_that_are_killed_again_and_again_keep_nobody_from_a_turn() {
    let fixture = Fixture::new().await;
    let kill = async || {
        let list: String = fixture.raw(&["CLIENT", "LIST"]).await;
        for client in list.lines().filter(|line| line.contains("resp=3")) {
            let id = client.trim_start_matches("id=").split(' ').next().expect("an id");
            // It may have gone meanwhile.
            let _ = fixture.try_raw::<i64>(&["CLIENT", "KILL", "ID", id]).await;
        }
    };
    let had = turmoil(&fixture, kill).await;
    assert!(had.iter().all(|had| *had > 0), "{had:?}");
    eventually("nothing stays but the fence", async || {
        fixture.keys().await == [fixture.fence_key("a")]
    })
    .await;
}

#[testbed::test]
async fn a_server_that_lost_its_data_has_its_waiters_back() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let hold: Arc<dyn Hold> = take(&fixture.backend(), "a").await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    fixture.server.restart_without_data().await.expect("it starts");
    fixture.reconnect().await;
    let next = waiter.granted().await;
    assert!(next.token() > hold.token());
    let lost = in_the_end(async || hold.release(ReleaseOptions::default()).await).await;
    assert_eq!(lost, ReleaseOutcome::AlreadyLost);
    assert!(release(&next).await);
}
