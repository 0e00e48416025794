//! The queue: who is served, in which order, and at what cost.

use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::{DistributedLock, Renewal};
use lock_redis::{RedisBackend, RedisConfig};
use redis::{PushInfo, PushKind};
use tokio::time::Instant;

use crate::support::waiter::Waiter;
use crate::support::{AT_MOST, TTL, World, busy, granted, release, request, take, until};

const SECOND: Duration = Duration::from_secs(1);

/// So long that whoever waits for it is seen to do so.
fn with_long_grace(world: &World) -> RedisBackend {
    RedisBackend::new(world.config().with_grace(5 * SECOND)).expect("a good configuration")
}

#[testbed::test]
async fn a_release_passes_to_who_came_first_of_all_clients() {
    let world = World::new().await;
    let clients = [world.backend(), world.backend(), world.backend()];
    let first = take(&world.backend(), "a").await;
    let mut waiters = Vec::new();
    for step in 0..6 {
        waiters.push(Waiter::queued(&world, &clients[step % 3], "a", TTL).await);
    }
    let order: Vec<String> = waiters.iter().map(Waiter::id).collect();
    assert_eq!(world.queue("a").await, order);

    let mut token = first.token();
    assert!(release(&first).await);
    for (served, waiter) in waiters.into_iter().enumerate() {
        let id = waiter.id();
        let hold = waiter.granted().await;
        assert!(hold.token() > token, "{} after {token}", hold.token());
        token = hold.token();
        assert_eq!(world.value("a").await, format!("{id} {token} 60000"));
        assert_eq!(
            world.queue("a").await,
            order[served + 1..],
            "a grant ends its place alone"
        );
        assert!(release(&hold).await);
    }
    assert_eq!(
        world.keys().await,
        [world.fence_key("a")],
        "nothing stays but the fence"
    );
}

#[testbed::test]
async fn a_refused_acquire_takes_its_place_in_the_same_script() {
    let world = World::new().await;
    let (ours, other) = (world.backend(), world.backend());
    let hold = take(&other, "a").await;
    ours.connect().await.expect("it is there");
    let before = world.scripts_run().await;
    let waiter = Waiter::queued(&world, &ours, "a", TTL).await;
    assert_eq!(world.scripts_run().await, before + 1);
    assert!(waiter.request.last_busy().is_some(), "core was told");
    busy(&ours, &request("a", TTL).0).await;
    assert_eq!(world.queue("a").await, [waiter.id()], "a try takes none");
    assert_eq!(
        other.status(waiter.request.name()).await.expect("an answer").waiting,
        Some(1)
    );
    waiter.leave().await;
    assert!(!world.raw::<bool>(&["EXISTS", &world.queue_key("a")]).await);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn three_requests_for_each_contended_acquisition_however_many_wait() {
    for clients in [2_u64, 8, 32] {
        let world = World::new().await;
        // Long enough that no stand-by looks.
        let lockers: Vec<Locker> = (0..clients).map(|_| Locker::new(with_long_grace(&world))).collect();
        for locker in &lockers {
            locker.connect().await.expect("it is there");
        }
        let holder = with_long_grace(&world);
        let hold = take(&holder, "a").await;
        let before = world.scripts_run().await;
        let start = Instant::now();
        let tasks: Vec<_> = lockers
            .iter()
            .cloned()
            .map(|locker| {
                tokio::spawn(async move {
                    let lock = locker.lock("a").ttl(TTL);
                    for _ in 0..5 {
                        lock.acquire()
                            .await
                            .expect("a grant")
                            .release()
                            .await
                            .expect("still ours");
                    }
                })
            })
            .collect();
        until("all wait", async || world.queue("a").await.len() == lockers.len()).await;
        assert!(release(&hold).await);
        for task in tasks {
            task.await.expect("no panic");
        }
        let acquired = 5 * clients;
        let run = world.scripts_run().await - before - 1;
        // On a slow machine each of them may have refreshed its place, every 4 s at most.
        let refreshes = clients * (start.elapsed().as_secs() / 4);
        assert!(
            run <= 3 * acquired + refreshes,
            "{run} for {acquired} by {clients}, and up to {refreshes} refreshes"
        );
    }
}

#[testbed::test]
async fn a_dead_waiter_is_passed_over_at_once_even_when_a_stranger_listens_to_everything() {
    let world = World::new().await;
    let (pushed, mut heard) = tokio::sync::mpsc::unbounded_channel::<PushInfo>();
    let settings = crate::support::patient().set_push_sender(pushed);
    let url = format!("{}/?protocol=resp3", world.server.url().trim_end_matches('/'));
    let client = redis::Client::open(url).expect("a good URL");
    let mut stranger = client
        .get_multiplexed_async_connection_with_config(&settings)
        .await
        .expect("it is there");
    stranger.psubscribe("*").await.expect("it may");

    let hold = take(&with_long_grace(&world), "a").await;
    let mortal = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let alive = world.backend();
    let dead = {
        let _within = mortal.enter();
        Waiter::start(&world.backend(), "a", TTL)
    };
    let died = dead.id();
    until("it has its place", async || world.queue("a").await.contains(&died)).await;
    let waiter = Waiter::queued(&world, &alive, "a", TTL).await;
    mortal.shutdown_background();
    until("the server sees it gone", async || {
        let channels: Vec<String> = world
            .raw(&["PUBSUB", "CHANNELS", &format!("{}inbox:*", world.prefix)])
            .await;
        channels.len() == 2
    })
    .await;
    assert_eq!(world.queue("a").await, [died, waiter.id()], "its place is there still");

    assert!(release(&hold).await);
    // In the same script, or confirmed since.
    assert!(world.value("a").await.starts_with(&waiter.id()));
    assert!(release(&waiter.granted().await).await);
    until("the stranger has heard of it", async || {
        heard.try_recv().is_ok_and(|push| push.kind == PushKind::PMessage)
    })
    .await;
}

#[testbed::test]
async fn a_name_that_only_the_dead_wait_for_is_free() {
    let world = World::new().await;
    let hold = take(&with_long_grace(&world), "a").await;
    let seconds: u64 = world.raw::<(u64, u64)>(&["TIME"]).await.0;
    let (place, number) = (
        format!("{} {}inbox:x", "0".repeat(32), world.prefix),
        "-1000000000000000",
    );
    let ends = ((seconds + 10) * 1000).to_string();
    let _: i64 = world
        .raw(&[
            "ZADD",
            &world.queue_key("a"),
            number,
            &place,
            &ends,
            &format!(">{place}"),
        ])
        .await;
    assert!(release(&hold).await);
    assert!(!world.exists("a").await);
    assert!(release(&take(&world.backend(), "a").await).await);
}

#[testbed::test]
async fn a_place_ends_by_itself_and_one_that_ends_soon_takes_no_other_along() {
    let world = World::new().await;
    let hold = take(&world.backend(), "a").await;
    let backend = with_long_grace(&world);
    let patient = Waiter::queued(&world, &backend, "a", TTL).await;
    // Whoever is cut off right after it came.
    let gone = crate::support::waiter::Hung::queued(&world, "a", Duration::from_millis(10)).await;
    let left: Duration = {
        let left: u64 = world.raw(&["PTTL", &world.queue_key("a")]).await;
        Duration::from_millis(left)
    };
    assert!(
        left > 5 * SECOND,
        "{left:?}: the key lasts as long as its longest place"
    );
    assert_eq!(world.queue("a").await, [patient.id(), gone.waiter.id()]);

    until("one place has ended, though nobody has cleared it away", async || {
        backend.status(patient.request.name()).await.expect("an answer").waiting == Some(1)
    })
    .await;
    let third = Waiter::queued(&world, &backend, "a", TTL).await;
    assert_eq!(world.queue("a").await, [patient.id(), third.id()]);
    assert!(release(&hold).await);
    assert!(release(&patient.granted().await).await);
    assert!(release(&third.granted().await).await);
}

#[testbed::test]
async fn places_outlive_a_hold_that_is_renewed() {
    let world = World::new().await;
    // In three of which a place is refreshed every second.
    let ttl = 3 * SECOND;
    let hold = take(&world.backend(), "a").await;
    let waiter = Waiter::queued(&world, &world.backend(), "a", ttl).await;
    let before = world.scripts_run().await;
    let start = Instant::now();
    while start.elapsed() < 3 * ttl / 2 {
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        assert_eq!(world.queue("a").await, [waiter.id()]);
    }
    assert!(world.scripts_run().await > before + 5, "its refreshes");
    assert!(waiter.is_waiting());
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}

#[testbed::test]
async fn a_foreign_holder_is_asked_for_until_it_has_gone() {
    let world = World::new().await;
    let key = world.lock_key("a");
    // Without an end.
    let _: () = world.raw(&["SET", &key, "theirs"]).await;
    let (backend, before) = (with_long_grace(&world), Instant::now());
    let waiter = Waiter::queued(&world, &backend, "a", TTL).await;
    let _: i64 = world.raw(&["DEL", &key]).await;
    assert!(release(&waiter.granted().await).await);
    assert!(before.elapsed() < AT_MOST);

    let before = Instant::now();
    let _: () = world.raw(&["SET", &key, "theirs", "PX", "3000"]).await;
    let waiter = Waiter::queued(&world, &backend, "a", TTL).await;
    let hold = waiter.granted().await;
    assert!(before.elapsed() >= 3 * SECOND);
    let theirs: Option<String> = world.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
    assert_eq!(theirs, None);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_name_on_offer_is_nobody_elses() {
    let world = World::new().await;
    let hold = take(&with_long_grace(&world), "a").await;
    let hung = crate::support::waiter::Hung::queued(&world, "a", TTL).await;
    assert!(release(&hold).await);
    assert_eq!(world.value("a").await, format!("{} 0 5000", hung.waiter.id()));
    assert!(world.rest("a").await <= 5 * SECOND);
    let theirs: Option<String> = world
        .raw(&["SET", &world.lock_key("a"), "theirs", "NX", "PX", "60000"])
        .await;
    assert_eq!(theirs, None, "a client that knows nothing of offers is excluded");
    busy(&world.backend(), &request("a", TTL).0).await;
    let status = world
        .backend()
        .status(&crate::support::name("a"))
        .await
        .expect("an answer");
    assert_eq!((status.holders[0].token, status.waiting), (None, Some(1)));
    hung.proxy.let_go();
    assert!(release(&hung.waiter.granted().await).await);
}

#[testbed::test]
async fn grace_is_an_option() {
    let world = World::new().await;
    let url = format!("{}?grace=4s", world.server.url());
    let config = RedisConfig::from_url(&url)
        .expect("a good URL")
        .with_prefix(&world.prefix);
    let backend = RedisBackend::new(config).expect("a good configuration");
    let hold = granted(&backend, &request("a", TTL).0).await;
    let hung = crate::support::waiter::Hung::queued(&world, "a", TTL).await;
    assert!(release(&hold).await);
    assert_eq!(world.value("a").await, format!("{} 0 4000", hung.waiter.id()));
    drop(hung.backend);
}
