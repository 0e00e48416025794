//! Acquire, renew, release and their kin, seen through a second connection.

use std::time::{Duration, SystemTime};

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, Busy, DistributedLock, HolderStatus, LockStatus, Mode, ReleaseOptions, Renewal};
use lock_core::{ErrorKind, Locker};
use tokio::time::Instant;

use crate::support::{
    Fixture, SECOND, TTL, busy, connect, eventually, granted, in_the_end_granted, last_reserved, name, refused,
    release, request, take,
};

#[testbed::test]
async fn a_hold_from_beginning_to_end() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let terms = Terms::new(TTL).label("worker 3 at 10:00");
    let (request, _control) = RequestOptions::new(name("a"), terms).start();
    let hold = granted(&backend, &request).await;

    let value = fixture.value("a").await;
    assert_eq!(
        value,
        format!("{} {} 60000 worker 3 at 10:00", request.holder(), hold.token())
    );
    assert!(fixture.rest("a").await <= TTL);
    let fence = fixture.fence("a").await;
    assert_eq!(fence, last_reserved(hold.token()).to_string());
    assert_eq!(fixture.keys().await, {
        let mut keys = [fixture.lock_key("a"), fixture.fence_key("a")];
        keys.sort();
        keys
    });

    let mut status = backend.status(&name("a")).await.expect("an answer");
    assert!(status.holders[0].expires_in.take().is_some_and(|rest| rest <= TTL));
    let holder = HolderStatus::new()
        .with_label("worker 3 at 10:00")
        .with_mode(Mode::Exclusive)
        .with_token(hold.token())
        .with_id(request.holder().to_string())
        .with_since(SystemTime::UNIX_EPOCH + Duration::from_micros(hold.token().as_u64()));
    assert_eq!(status, LockStatus::held(holder).with_waiters([]));

    assert!(release(&hold).await);
    assert!(!fixture.exists("a").await);
    assert!(!release(&hold).await, "there is nothing left to release");
    let free = LockStatus::free().with_waiters([]);
    assert_eq!(backend.status(&name("a")).await.expect("an answer"), free);
    assert_eq!(
        fixture.keys().await,
        [fixture.fence_key("a")],
        "nothing stays but the fence"
    );
}

#[testbed::test]
async fn one_round_trip_each() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    backend.connect().await.expect("it is there");
    // Whatever is not called from within a script.
    let commands = async || fixture.calls("eval").await + fixture.calls("script").await;
    let before = commands().await;
    let hold = take(&backend, "a").await;
    assert_eq!(commands().await - before, 1);
    assert!(release(&hold).await);
    assert_eq!(commands().await - before, 2);
}

#[testbed::test]
async fn a_taken_name_is_busy_and_untouched() {
    let fixture = Fixture::new().await;
    let terms = Terms::new(TTL).label("first");
    let first = granted(&fixture.backend(), &RequestOptions::new(name("a"), terms).start().0).await;
    let before = fixture.keys().await;
    let value = fixture.value("a").await;

    let other = fixture.backend();
    let (second, _control) = request("a", SECOND);
    for _ in 0..5 {
        assert_eq!(busy(&other, &second).await, Busy::new().with_holder("first"));
    }

    assert!(
        fixture.rest("a").await > TTL - 30 * SECOND,
        "an asker's ttl cuts nothing"
    );
    assert_eq!(fixture.value("a").await, value);
    assert_eq!(fixture.keys().await, before, "a try leaves nothing");
    other.abandon(&second).await.expect("an answer");
    assert!(fixture.exists("a").await);
    assert!(release(&first).await);
    assert!(granted(&other, &request("a", TTL).0).await.token() > first.token());
}

#[testbed::test]
async fn a_repeated_acquire_is_the_same_grant_for_the_full_ttl() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (request, control) = request("a", TTL);
    let first = granted(&backend, &request).await;
    let _: i64 = fixture.raw(&["PEXPIRE", &fixture.lock_key("a"), "20000"]).await;
    let again = granted(&backend, &request).await;
    assert_eq!(again.token(), first.token());
    assert!(fixture.rest("a").await > 30 * SECOND);

    control.set_terms(Terms::new(SECOND));
    let again = granted(&backend, &request).await;
    assert_eq!(again.token(), first.token());
    assert!(fixture.rest("a").await > 30 * SECOND, "a repetition shortens nothing");

    let _: i64 = fixture.raw(&["DEL", &fixture.fence_key("a")]).await;
    let again = granted(&backend, &request).await;
    assert_eq!(again.token(), first.token(), "the token stands with the hold");
    assert!(release(&again).await);
    assert!(!release(&first).await);
}

#[testbed::test]
async fn a_renewal_only_moves_the_end_forward() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    for ttl in [10 * TTL, TTL, SECOND] {
        assert!(matches!(hold.renew(ttl).await.expect("an answer"), Renewal::Renewed(_)));
        assert!(fixture.rest("a").await > 9 * TTL, "{ttl:?}");
    }
}

#[testbed::test]
async fn a_hold_that_somebody_ended_is_lost() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Lost));
    assert!(!fixture.exists("a").await, "a renewal revives nothing");

    let successor = take(&backend, "a").await;
    assert!(successor.token() > hold.token());
    assert!(matches!(hold.renew(10 * TTL).await.expect("an answer"), Renewal::Lost));
    assert!(!release(&hold).await);
    assert!(fixture.rest("a").await <= TTL, "a successor is never touched");
    assert!(release(&successor).await);
}

#[testbed::test]
async fn a_hold_expires_after_its_ttl_and_not_before() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let ttl = 2 * SECOND;
    let (request, _control) = request("a", ttl);
    backend.connect().await.expect("it is there");
    let start = Instant::now();
    // As often as an answer comes too late for its lease.
    let hold = in_the_end_granted(&backend, &request).await;
    eventually("it expires", async || !fixture.exists("a").await).await;
    assert!(start.elapsed() >= ttl, "{:?}", start.elapsed());
    assert_eq!(
        request.lease().valid_for(),
        Duration::ZERO,
        "belief ends before the hold"
    );

    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Lost));
    assert!(!fixture.exists("a").await, "a renewal revives nothing");
    assert!(take(&backend, "a").await.token() > hold.token());
}

#[testbed::test]
async fn abandon_ends_what_is_there_and_nothing_else() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (first, _control) = request("a", TTL);
    backend.abandon(&first).await.expect("nothing is there yet");
    assert!(
        fixture.keys().await.is_empty(),
        "nothing was under way, so nothing is left"
    );
    let (first, _control) = request("a", TTL);
    granted(&backend, &first).await;
    backend.abandon(&first).await.expect("an answer");
    assert!(!fixture.exists("a").await);
    backend.abandon(&first).await.expect("again");

    let hold = take(&backend, "a").await;
    backend.abandon(&first).await.expect("and again");
    assert!(fixture.exists("a").await);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn other_clients_and_we_exclude_each_other() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let key = fixture.lock_key("a");
    let hold = take(&backend, "a").await;
    let set: Option<String> = fixture.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
    assert_eq!(set, None);
    assert!(release(&hold).await);

    let set: Option<String> = fixture.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
    assert!(set.is_some());
    let (ours, _control) = request("a", TTL);
    let answer = busy(&backend, &ours).await;
    assert_eq!(answer.holder, None, "what they write may be a secret");
    let status = backend.status(&name("a")).await.expect("an answer");
    assert_eq!((status.is_held(), status.holders[0].token), (true, None));

    let _: i64 = fixture.raw(&["PERSIST", &key]).await;
    assert_eq!(busy(&backend, &ours).await, Busy::new());
    assert_eq!(
        backend.status(&name("a")).await.expect("an answer").holders[0].expires_in,
        None
    );
    backend.abandon(&ours).await.expect("an answer");
    assert_eq!(fixture.raw::<String>(&["GET", &key]).await, "theirs");
}

#[testbed::test]
async fn a_key_of_another_type_is_somebody_else_s() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let key = fixture.lock_key("a");
    let _: i64 = fixture.raw(&["DEL", &key]).await;
    let _: i64 = fixture.raw(&["HSET", &key, "field", "value"]).await;

    let error = refused(&backend, "a").await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("another program"), "{error}");
    let error = backend.status(&name("a")).await.expect_err("it is no lock");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Lost));
    assert!(!release(&hold).await);
    assert_eq!(fixture.raw::<String>(&["TYPE", &key]).await, "hash");

    let _: () = fixture.raw(&["SET", &fixture.fence_key("b"), "no token"]).await;
    assert_eq!(refused(&backend, "b").await.kind(), ErrorKind::Misconfigured);
    assert!(!fixture.exists("b").await);
}

#[testbed::test]
async fn labels_are_any_text() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let long = "é".repeat(127);
    for label in [None, Some(""), Some(" "), Some("a b\0\r\nc {} \" é"), Some(&*long)] {
        let mut terms = Terms::new(TTL);
        if let Some(label) = label {
            terms = terms.label(label);
        }
        let hold = granted(&backend, &RequestOptions::new(name("a"), terms).start().0).await;
        let status = backend.status(&name("a")).await.expect("an answer");
        assert_eq!(status.holders[0].label.as_deref(), label);
        assert_eq!(busy(&backend, &request("a", TTL).0).await.holder.as_deref(), label);
        assert!(release(&hold).await);
    }
}

#[testbed::test]
async fn lockers_take_turns() {
    let fixture = Fixture::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let lock = Locker::new(fixture.backend()).lock("counter").ttl(TTL);
        let (mut raw, key) = (connect(&fixture.server.url()).await, format!("{}count", fixture.prefix));
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await.expect("in the end");
                // Unprotected, but for the lock.
                let count: Option<u64> = redis::cmd("GET")
                    .arg(&key)
                    .query_async(&mut raw)
                    .await
                    .expect("an answer");
                let next = count.unwrap_or(0) + 1;
                let _: () = redis::cmd("SET")
                    .arg(&key)
                    .arg(next)
                    .query_async(&mut raw)
                    .await
                    .expect("an answer");
                guard.release().await.expect("it was ours");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panics");
    }
    let count: u64 = fixture.raw(&["GET", &format!("{}count", fixture.prefix)]).await;
    assert_eq!(count, 40);
}

/// Each call allocates its future, and what it seldom needs has a box of its own. Here they have 2,496 and 1,504 bytes.
#[testbed::test]
async fn the_futures_of_a_pair_stay_small() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (request, _control) = request("a", TTL);
    let acquire = backend.acquire(&request);
    let acquire_size = size_of_val(&*acquire);
    let hold = match acquire.await.unwrap() {
        Attempt::Granted(hold, _armed) => hold,
        other => panic!("not granted: {other:?}"),
    };
    let release = hold.release(ReleaseOptions::default());
    let release_size = size_of_val(&*release);
    release.await.unwrap();
    assert!(
        acquire_size <= 3000 && release_size <= 1800,
        "{acquire_size}, {release_size}"
    );
}
