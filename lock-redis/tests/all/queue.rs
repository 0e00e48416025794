//! The queue: who is served, in which order, and at what cost.

use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::{Attempt, DistributedLock, Renewal};
use lock_redis::RedisConfig;
use redis::{PushInfo, PushKind};
use tokio::time::Instant;

use crate::support::waiter::{Hung, Waiter};
use crate::support::{
    AT_MOST, Fixture, LONG_GRACE, OFFER_IS_OVER, SECOND, TTL, busy, eventually, granted, in_some_run, name, patient,
    release, request, take, with_config,
};

#[testbed::test]
async fn a_release_passes_to_who_came_first_of_all_clients() {
    let fixture = Fixture::new().await;
    let clients = [(); 3].map(|()| fixture.with_long_grace());
    let first = take(&fixture.with_long_grace(), "a").await;
    let mut waiters = Vec::new();
    for step in 0..6 {
        waiters.push(Waiter::queued(&fixture, &clients[step % 3], "a", TTL).await);
    }
    let order: Vec<String> = waiters.iter().map(Waiter::id).collect();
    assert_eq!(fixture.queue("a").await, order);

    let mut token = first.token();
    assert!(release(&first).await);
    for (served, waiter) in waiters.into_iter().enumerate() {
        let id = waiter.id();
        let hold = waiter.granted().await;
        assert!(hold.token() > token, "{} after {token}", hold.token());
        token = hold.token();
        assert_eq!(fixture.value("a").await, format!("{id} {token} {}", TTL.as_millis()));
        assert_eq!(
            fixture.queue("a").await,
            order[served + 1..],
            "a grant removes its entry alone"
        );
        assert!(release(&hold).await);
    }
    assert_eq!(
        fixture.keys().await,
        [fixture.fence_key("a")],
        "nothing stays but the fence"
    );
}

#[testbed::test]
async fn a_refused_acquire_adds_its_queue_entry_in_the_same_script() {
    let fixture = Fixture::new().await;
    let (ours, other) = (fixture.backend(), fixture.backend());
    let hold = take(&other, "a").await;
    ours.connect().await.expect("it is there");
    let before = fixture.scripts_run().await;
    let waiter = Waiter::queued(&fixture, &ours, "a", TTL).await;
    assert_eq!(fixture.scripts_run().await, before + 1);
    eventually("core was told", async || waiter.request.last_busy().is_some()).await;
    busy(&ours, &request("a", TTL).0).await;
    assert_eq!(fixture.queue("a").await, [waiter.id()], "a try takes none");
    assert_eq!(
        other.status(waiter.request.name()).await.expect("an answer").waiting,
        Some(1)
    );
    waiter.leave().await;
    assert!(!fixture.raw::<bool>(&["EXISTS", &fixture.queue_key("a")]).await);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn three_requests_for_each_contended_acquisition_however_many_wait() {
    for clients in [2_u64, 8, 32] {
        let fixture = Fixture::new().await;
        // Long enough that no stand-by looks.
        let lockers: Vec<Locker> = (0..clients).map(|_| Locker::new(fixture.with_long_grace())).collect();
        for locker in &lockers {
            locker.connect().await.expect("it is there");
        }
        let holder = fixture.with_long_grace();
        let hold = take(&holder, "a").await;
        let before = fixture.scripts_run().await;
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
        eventually("all wait", async || fixture.queue("a").await.len() == lockers.len()).await;
        assert!(release(&hold).await);
        for task in tasks {
            task.await.expect("no panic");
        }
        let acquired = 5 * clients;
        let run = fixture.scripts_run().await - before - 1;
        // On a slow machine each of them may have refreshed its entry, every 4 s at most.
        let refreshes = clients * (start.elapsed().as_secs() / 4);
        assert!(
            run <= 3 * acquired + refreshes,
            "{run} for {acquired} by {clients}, and up to {refreshes} refreshes"
        );
    }
}

#[testbed::test]
async fn a_disconnected_waiter_is_skipped_at_once_even_when_another_client_subscribes_to_everything() {
    let fixture = Fixture::new().await;
    let (pushed, mut heard) = tokio::sync::mpsc::unbounded_channel::<PushInfo>();
    let settings = patient().set_push_sender(pushed);
    let url = format!("{}/?protocol=resp3", fixture.server.url().trim_end_matches('/'));
    let client = redis::Client::open(url).expect("a good URL");
    let mut subscriber = client
        .get_multiplexed_async_connection_with_config(&settings)
        .await
        .expect("it is there");
    subscriber.psubscribe("*").await.expect("it may");

    let hold = take(&fixture.with_long_grace(), "a").await;
    let mortal = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let connected = fixture.backend();
    let ended = {
        let _within = mortal.enter();
        Waiter::start(&fixture.backend(), "a", TTL)
    };
    let ended_id = ended.id();
    eventually("it has its entry", async || {
        fixture.queue("a").await.contains(&ended_id)
    })
    .await;
    let waiter = Waiter::queued(&fixture, &connected, "a", TTL).await;
    mortal.shutdown_background();
    fixture.until_connected(2).await;
    assert_eq!(
        fixture.queue("a").await,
        [ended_id, waiter.id()],
        "its entry is still there"
    );

    assert!(release(&hold).await);
    // In the same script, or confirmed since.
    assert!(fixture.value("a").await.starts_with(&waiter.id()));
    assert!(release(&waiter.granted().await).await);
    eventually("the other client has received it", async || {
        heard.try_recv().is_ok_and(|push| push.kind == PushKind::PMessage)
    })
    .await;
}

#[testbed::test]
async fn a_name_that_only_disconnected_waiters_wait_for_is_free() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.with_long_grace(), "a").await;
    let (entry, number) = (
        format!("{} {}inbox:x", "0".repeat(32), fixture.prefix),
        "-1000000000000000",
    );
    let ends = ((fixture.now().await.as_secs() + 10) * 1000).to_string();
    let _: i64 = fixture
        .raw(&[
            "ZADD",
            &fixture.queue_key("a"),
            number,
            &entry,
            &ends,
            &format!(">{entry}"),
        ])
        .await;
    assert!(release(&hold).await);
    assert!(!fixture.exists("a").await);
    assert!(release(&take(&fixture.backend(), "a").await).await);
}

#[testbed::test]
async fn a_queue_entry_expires_by_itself_and_alone() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.with_long_grace(), "a").await;
    let backend = fixture.with_long_grace();
    let patient = Waiter::queued(&fixture, &backend, "a", TTL).await;
    // Whoever is cut off right after it came.
    let gone = Hung::queued(&fixture, "a", Duration::from_millis(10)).await;
    let left: Duration = {
        let left: u64 = fixture.raw(&["PTTL", &fixture.queue_key("a")]).await;
        Duration::from_millis(left)
    };
    assert!(left > 5 * SECOND, "{left:?}: the key lasts as long as its last entry");
    let queue = fixture.queue("a").await;
    assert_eq!(queue[0], patient.id());
    // It may have been removed.
    assert!(queue[1..].iter().all(|id| *id == gone.waiter.id()), "{queue:?}");

    eventually("one entry has expired, though nobody has removed it", async || {
        backend.status(patient.request.name()).await.expect("an answer").waiting == Some(1)
    })
    .await;
    let third = Waiter::queued(&fixture, &backend, "a", TTL).await;
    assert_eq!(fixture.queue("a").await, [patient.id(), third.id()]);
    assert!(release(&hold).await);
    assert!(release(&patient.granted().await).await);
    assert!(release(&third.granted().await).await);
}

#[testbed::test]
async fn queue_entries_outlive_a_hold_that_is_renewed() {
    let fixture = Fixture::new().await;
    // With which an entry is refreshed after 1.7 s at the latest.
    let ttl = 5 * SECOND;
    let hold = take(&fixture.backend(), "a").await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", ttl).await;
    // When its entry ends, which is beside it.
    let end = async || {
        let ends: Vec<(String, u64)> = fixture
            .raw(&["ZRANGEBYSCORE", &fixture.queue_key("a"), "0", "+inf", "WITHSCORES"])
            .await;
        ends.first().expect("it has an entry").1
    };
    let (before, start) = (end().await, Instant::now());
    while start.elapsed() < 6 * ttl / 5 {
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        assert_eq!(fixture.queue("a").await, [waiter.id()]);
    }
    let after = end().await;
    assert!(after > before, "it was refreshed: {before}, {after}");
    assert!(waiter.is_waiting());
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}

#[testbed::test]
async fn a_foreign_holder_is_asked_for_until_it_has_gone() {
    let fixture = Fixture::new().await;
    let key = fixture.lock_key("a");
    // Without an end.
    let _: () = fixture.raw(&["SET", &key, "theirs"]).await;
    let (backend, before) = (fixture.with_long_grace(), Instant::now());
    let waiter = Waiter::queued(&fixture, &backend, "a", TTL).await;
    let _: i64 = fixture.raw(&["DEL", &key]).await;
    assert!(release(&waiter.granted().await).await);
    assert!(before.elapsed() < AT_MOST);

    let before = Instant::now();
    let _: () = fixture.raw(&["SET", &key, "theirs", "PX", "3000"]).await;
    let waiter = Waiter::come(&fixture, &backend, "a", TTL).await;
    let hold = waiter.granted().await;
    assert!(before.elapsed() >= 3 * SECOND);
    let theirs: Option<String> = fixture.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
    assert_eq!(theirs, None);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_name_on_offer_is_nobody_elses() {
    in_some_run(OFFER_IS_OVER, async || {
        let fixture = Fixture::new().await;
        let (hold, others) = (take(&fixture.with_long_grace(), "a").await, fixture.backend());
        others.connect().await.expect("it is there");
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let (value, key) = (fixture.value("a").await, fixture.lock_key("a"));
        let rest: i64 = fixture.raw(&["PTTL", &key]).await;
        let theirs: Option<String> = fixture.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
        let attempt = others.acquire(&request("a", TTL).0).await.expect("an answer");
        let status = others.status(&name("a")).await.expect("an answer");
        if start.elapsed() >= LONG_GRACE {
            return false;
        }
        assert_eq!(value, format!("{} 0 5000", hung.waiter.id()));
        assert!((0..=5000).contains(&rest), "{rest}");
        assert_eq!(theirs, None, "a client that knows nothing of offers is excluded");
        assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
        assert_eq!((status.holders[0].token, status.waiting), (None, Some(1)));
        hung.proxy.let_go();
        assert!(release(&hung.waiter.granted().await).await);
        true
    })
    .await;
}

#[testbed::test]
async fn grace_is_an_option() {
    in_some_run(OFFER_IS_OVER, async || {
        let fixture = Fixture::new().await;
        let url = format!("{}?grace=4s", fixture.server.url());
        let config = RedisConfig::from_url(&url)
            .expect("a good URL")
            .with_prefix(&fixture.prefix)
            .with_connect_timeout(AT_MOST);
        let backend = with_config(config);
        let hold = granted(&backend, &request("a", TTL).0).await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let value = fixture.value("a").await;
        if start.elapsed() >= 4 * SECOND {
            return false;
        }
        assert_eq!(value, format!("{} 0 4000", hung.waiter.id()));
        drop(hung.backend);
        true
    })
    .await;
}
