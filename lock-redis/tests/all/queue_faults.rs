//! The queue when answers get lost, memory is full, scripts are forgotten and connections die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::backend::{
    DistributedLock, HandOver, Hold, ReleaseOptions, ReleaseOutcome, Renewal, RequestOptions, Terms,
};
use lock_core::{ErrorKind, Locker};
use lock_redis::RedisBackend;
use tokio::time::timeout;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, TTL, World, in_the_end, in_the_end_granted, in_the_end_released, name, release, request, take, until,
};

/// How soon silence is taken for an end: longer than a busy machine keeps an answer waiting.
const QUICK: Duration = Duration::from_secs(1);

/// A backend of which the answers can be swallowed.
struct Client {
    proxy: Proxy,
    backend: RedisBackend,
}

impl Client {
    async fn new(world: &World) -> Self {
        let proxy = Proxy::start(world.server.address()).await;
        let config = world.config_at(&proxy.address).with_response_timeout(QUICK);
        let backend = RedisBackend::new(config).expect("a good configuration");
        in_the_end(async || backend.connect().await).await;
        Self { proxy, backend }
    }

    /// Swallows the answer to what is sent next with this holder id in it, and what follows on that connection.
    fn swallow_next(&self, holder: &str) {
        self.proxy.swallow_after(holder);
    }
}

fn is_unknown<T: std::fmt::Debug>(answer: lock_core::Result<T>) {
    let error = answer.expect_err("the answer is swallowed");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable());
}

#[testbed::test]
async fn a_reply_swallowed_on_an_acquire_or_a_renewal_is_made_up_for() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    let (wanted, _control) = request("a", TTL);
    let id = wanted.holder().to_string();

    client.swallow_next(&id);
    is_unknown(client.backend.acquire(&wanted).await);
    until("it was granted", async || world.value("a").await.starts_with(&id)).await;
    let hold = in_the_end_granted(&client.backend, &wanted).await;
    client.swallow_next(&id);
    is_unknown(hold.renew(2 * TTL).await);
    until("it was renewed", async || world.rest("a").await > TTL).await;
    assert!(matches!(
        in_the_end(async || hold.renew(2 * TTL).await).await,
        Renewal::Renewed(_)
    ));
    in_the_end_released(&hold).await;
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn a_reply_swallowed_on_a_hand_over_or_a_release_is_made_up_for() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    let hold = in_the_end_granted(&client.backend, &request("a", TTL).0).await;
    let (next, _control) = request("a", TTL);
    let id = next.holder().to_string();
    client.swallow_next(&id);
    is_unknown(hold.hand_over(&next).await);
    until("it was handed over", async || world.value("a").await.starts_with(&id)).await;
    let token = world.value("a").await;
    let passed_on = in_the_end(async || hold.hand_over(&next).await).await;
    let HandOver::Granted(second, _) = passed_on else {
        panic!("{passed_on:?}");
    };
    assert_eq!(world.value("a").await, token, "the same grant");
    client.swallow_next(&id);
    is_unknown(second.release(ReleaseOptions::default()).await);
    until("it was released", async || !world.exists("a").await).await;
    assert!(!in_the_end(async || second.release(ReleaseOptions::default()).await.map(is_released)).await);
}

#[testbed::test]
async fn a_reply_swallowed_on_a_release_that_keeps_the_name_is_made_up_for() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    let (wanted, _control) = request("a", TTL);
    let hold = in_the_end_granted(&client.backend, &wanted).await;
    client.swallow_next(&wanted.holder().to_string());
    let keep = ReleaseOptions::default().keep_for(TTL);
    is_unknown(hold.release(keep).await);
    until("it was kept", async || world.value("a").await.starts_with("kept")).await;
    let value = world.value("a").await;
    assert!(!in_the_end(async || hold.release(keep).await.map(is_released)).await);
    assert_eq!(world.value("a").await, value);
}

fn is_released(outcome: ReleaseOutcome) -> bool {
    outcome == ReleaseOutcome::Released
}

#[testbed::test]
async fn a_reply_swallowed_on_the_first_request_of_a_locker_is_outlasted() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    client.swallow_next(&world.lock_key("a"));
    let locks = Locker::new(client.backend.clone());
    let guard = locks.lock("a").ttl(TTL).acquire_within(AT_MOST).await;
    guard.expect("it was there").release().await.expect("still ours");
    locks.shutdown().await.expect("nothing is left");
    assert_eq!(world.keys().await, [world.fence_key("a")]);
}

#[testbed::test]
async fn a_reply_swallowed_while_waiting_is_made_up_for() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    let hold = take(&world.backend(), "a").await;

    // The answer that it has a place: asked again, it has the same one.
    let before = RequestOptions::new(name("a"), Terms::new(TTL)).start();
    let id = before.0.holder().to_string();
    client.swallow_next(&id);
    let waiter = Waiter::of(&client.backend, before);
    until("it waits over another connection", async || {
        client.proxy.connections() > 1 && waiter.request.last_busy().is_some()
    })
    .await;
    assert_eq!(world.queue("a").await, std::slice::from_ref(&id));

    // The answer to its confirm.
    client.swallow_next(&id);
    assert!(release(&hold).await);
    let hold = waiter.granted().await;
    assert!(world.value("a").await.starts_with(&id));
    assert_eq!(world.queue("a").await, <[String; 0]>::default());

    // The answer to the abandon of a place.
    let leaving = Waiter::queued(&world, &client.backend, "a", TTL).await;
    client.swallow_next(&leaving.id());
    leaving.control.give_up();
    is_unknown(client.backend.abandon(&leaving.request).await);
    until("it has left", async || world.queue("a").await.is_empty()).await;
    in_the_end(async || client.backend.abandon(&leaving.request).await).await;
    in_the_end_released(&hold).await;
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn a_grant_that_comes_late_ends_the_place_that_was_taken_meanwhile() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    // Its first request, which knows of no place, is still under way when the next one takes one.
    client.proxy.hold_requests();
    let waiter = Waiter::start(&client.backend, "a", TTL);
    let hold = take(&world.backend(), "a").await;
    let id = waiter.id();
    until("it has its place", async || world.queue("a").await.contains(&id)).await;
    // As if the hold had expired just before that first one arrives.
    let _: i64 = world.raw(&["DEL", &world.lock_key("a")]).await;
    client.proxy.drain_the_first().await;
    assert!(world.value("a").await.starts_with(&id), "the late one was granted");
    let granted = waiter.granted().await;
    assert_eq!(
        world.queue("a").await,
        <[String; 0]>::default(),
        "its place is there still"
    );
    assert!(!release(&hold).await);
    assert!(release(&granted).await);
    assert!(!world.exists("a").await, "it was offered to itself");
}

#[testbed::test]
async fn a_place_that_is_asked_for_late_is_not_taken_for_the_dead() {
    let world = World::new().await;
    let client = Client::new(&world).await;
    let hold = take(&world.backend(), "a").await;
    client.proxy.hold_requests();
    let waiter = Waiter::start(&client.backend, "a", TTL);
    until("another connection", async || client.proxy.connections() > 1).await;
    let (id, request) = (waiter.id(), waiter.request.clone());
    waiter.control.give_up();
    in_the_end(async || client.backend.abandon(&request).await).await;
    client.proxy.drain_the_first().await;
    assert!(!world.queue("a").await.contains(&id));
    assert!(release(&hold).await);
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn a_tombstone_is_left_however_full_the_memory_is() {
    let world = World::new().await;
    if world.server.is_external() {
        return;
    }
    let client = Client::new(&world).await;
    let ((lost, _control), (unanswered, _other)) = (request("a", TTL), request("b", TTL));
    client.proxy.hold_requests();
    let (one, two) = tokio::join!(client.backend.acquire(&lost), client.backend.acquire(&unanswered));
    assert!(one.is_err() && two.is_err(), "they never get there");
    until("another connection", async || client.proxy.connections() > 1).await;
    let hold = in_the_end_granted(&client.backend, &lost).await;
    let _: i64 = world.raw(&["DEL", &world.lock_key("a")]).await;
    let _: () = world.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // Neither has anything at the server that could be deleted first.
    let released = in_the_end(async || hold.release(ReleaseOptions::default()).await);
    let released = timeout(AT_MOST, released).await.expect("it is not tried for ever");
    assert_eq!(released, ReleaseOutcome::AlreadyLost);
    in_the_end(async || client.backend.abandon(&unanswered).await).await;
    for (request, of) in [(&lost, "a"), (&unanswered, "b")] {
        let fence: String = world.raw(&["GET", &world.fence_key(of)]).await;
        assert!(fence.contains(&format!(" {}:", request.holder())), "{fence}");
    }
    let _: () = world.raw(&["CONFIG", "SET", "maxmemory", "0"]).await;
    client.proxy.drain_the_first().await;
    assert!(
        !world.exists("a").await && !world.exists("b").await,
        "a dead id came back"
    );
}

/// Clients that take turns while something is done to the server; returns how often each had it.
async fn turmoil(world: &World, harm: impl AsyncFn()) -> Vec<u32> {
    let over = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, inside, locker) = (over.clone(), inside.clone(), Locker::new(world.backend()));
            tokio::spawn(async move {
                let (mut had, lock) = (0, locker.lock("a").ttl(TTL));
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.acquire_within(AT_MOST).await.expect("a grant");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
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
    let world = World::new().await;
    let had = turmoil(&world, async || world.raw::<()>(&["SCRIPT", "FLUSH"]).await).await;
    assert!(had.iter().all(|had| *had > 0), "{had:?}");
    assert_eq!(world.keys().await, [world.fence_key("a")]);
}

#[testbed::test]
async fn connections_that_are_killed_again_and_again_keep_nobody_from_a_turn() {
    let world = World::new().await;
    let kill = async || {
        let list: String = world.raw(&["CLIENT", "LIST"]).await;
        for client in list.lines().filter(|line| line.contains("resp=3")) {
            let id = client.trim_start_matches("id=").split(' ').next().expect("an id");
            // It may have gone meanwhile.
            let _ = world.try_raw::<i64>(&["CLIENT", "KILL", "ID", id]).await;
        }
    };
    let had = turmoil(&world, kill).await;
    assert!(had.iter().all(|had| *had > 0), "{had:?}");
    until("nothing stays but the fence", async || {
        world.keys().await == [world.fence_key("a")]
    })
    .await;
}

#[testbed::test]
async fn a_server_that_lost_its_data_has_its_waiters_back() {
    let mut world = World::new().await;
    if world.server.is_external() {
        return;
    }
    let hold: Arc<dyn Hold> = take(&world.backend(), "a").await;
    let waiter = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    world.server.restart_without_data().await.expect("it starts");
    world.reconnect().await;
    let next = waiter.granted().await;
    assert!(next.token() > hold.token());
    let lost = in_the_end(async || hold.release(ReleaseOptions::default()).await).await;
    assert_eq!(lost, ReleaseOutcome::AlreadyLost);
    assert!(release(&next).await);
}
