//! The modes through a backend.

use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Mode, Permits, Renewal};
use tokio::time::Instant;

use crate::support::waiter::Waiter;
use crate::support::{
    Fixture, LONG_GRACE, OFFER_IS_OVER, SECOND, TTL, busy, eventually, granted, in_some_run, in_the_end_granted, name,
    options_in, refused, release, request, request_in, take,
};

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits(Permits::new(take, of).expect("no more than there are"))
}

async fn waits(fixture: &Fixture, mode: Mode) -> Waiter {
    let waiter = Waiter::of(&fixture.with_long_grace(), options_in(mode, "a").start());
    let id = waiter.id();
    eventually("it has its entry", async || fixture.queue("a").await.contains(&id)).await;
    waiter
}

#[testbed::test]
async fn readers_from_beginning_to_end() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.backend(), fixture.backend());
    let terms = Terms::new(2 * TTL).label("the first");
    let options = RequestOptions::new(name("a"), terms).mode(Mode::Shared).waits(false);
    let first = granted(&one, &options.start().0).await;
    let second = granted(&other, &request_in(Mode::Upgradable, "a").0).await;
    assert!(second.token() > first.token());

    let status = one.status(&name("a")).await.expect("an answer");
    let [of_first, of_second] = &status.holders[..] else {
        panic!("{status:?}");
    };
    assert_eq!(
        (of_first.mode, of_second.mode),
        (Some(Mode::Shared), Some(Mode::Upgradable))
    );
    assert_eq!(
        (of_first.token, of_second.token),
        (Some(first.token()), Some(second.token()))
    );
    assert_eq!(
        (of_first.label.as_deref(), of_second.label.as_deref()),
        (Some("the first"), None)
    );
    assert!(of_first.expires_in.is_some_and(|rest| rest > TTL));
    assert!(of_second.expires_in.is_some_and(|rest| rest <= TTL && rest > TTL / 2));

    // Neither writers, permits nor other clients.
    busy(&one, &request("a", TTL).0).await;
    busy(&one, &request_in(permits(1, 9), "a").0).await;
    busy(&one, &request_in(Mode::Upgradable, "a").0).await;
    let key = fixture.lock_key("a");
    let theirs: Option<String> = fixture.raw(&["SET", &key, "theirs", "NX", "PX", "60000"]).await;
    assert_eq!(theirs, None);

    assert!(matches!(first.renew(TTL).await, Ok(Renewal::Renewed(_))));
    assert!(release(&first).await);
    assert!(!release(&first).await, "there is nothing left to release");
    assert!(matches!(first.renew(TTL).await, Ok(Renewal::Lost)));
    busy(&one, &request("a", TTL).0).await;
    assert!(release(&second).await);
    assert_eq!(
        fixture.keys().await,
        [fixture.fence_key("a")],
        "nothing stays but the fence"
    );
    assert!(take(&one, "a").await.token() > second.token());
}

#[testbed::test]
async fn waiting_readers_enter_together_and_after_a_writer_that_came_first() {
    let fixture = Fixture::new().await;
    let reader = granted(&fixture.with_long_grace(), &request_in(Mode::Shared, "a").0).await;
    let writer = waits(&fixture, Mode::Exclusive).await;
    let readers = [waits(&fixture, Mode::Shared).await, waits(&fixture, Mode::Shared).await];
    let last = waits(&fixture, permits(1, 1)).await;
    let status = fixture.backend().status(&name("a")).await.expect("an answer");
    assert_eq!((status.holders.len(), status.waiting), (1, Some(4)));
    let waiters = status.waiters.expect("the server knows them");
    let modes: Vec<_> = waiters.iter().filter_map(|waiter| waiter.mode).collect();
    assert_eq!(modes, [Mode::Exclusive, Mode::Shared, Mode::Shared, permits(1, 1)]);
    assert!(release(&reader).await);
    let writing = writer.granted().await;
    assert!(readers.iter().all(Waiter::is_waiting));
    assert!(release(&writing).await);
    let mut reading = Vec::new();
    for reader in readers {
        reading.push(reader.granted().await);
    }
    for hold in &reading {
        assert!(last.is_waiting() && hold.token() > writing.token());
        assert!(release(hold).await);
    }
    assert!(release(&last.granted().await).await);
    assert_eq!(fixture.keys().await, [fixture.fence_key("a")]);
}

#[testbed::test]
async fn permits_up_to_the_limit() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let two = granted(&backend, &request_in(permits(2, 3), "a").0).await;
    busy(&backend, &request_in(permits(2, 3), "a").0).await;
    busy(&backend, &request_in(permits(1, 2), "a").0).await;
    let one = granted(&backend, &request_in(permits(1, 3), "a").0).await;
    busy(&backend, &request_in(Mode::Shared, "a").0).await;
    let status = backend.status(&name("a")).await.expect("an answer");
    let modes: Vec<_> = status.holders.iter().map(|holder| holder.mode).collect();
    assert_eq!(modes, [Some(permits(2, 3)), Some(permits(1, 3))]);
    let waiter = waits(&fixture, permits(3, 3)).await;
    assert!(release(&two).await);
    busy(&backend, &request_in(permits(1, 3), "a").0).await;
    assert!(waiter.is_waiting());
    assert!(release(&one).await);
    assert!(release(&waiter.granted().await).await);
    // As many as the format bears.
    let most = backend.capabilities().permits;
    let nearly = granted(&backend, &request_in(permits(most - 1, most), "b").0).await;
    let last = granted(&backend, &request_in(permits(1, most), "b").0).await;
    busy(&backend, &request_in(permits(1, most), "b").0).await;
    assert!(release(&nearly).await && release(&last).await);
}

#[testbed::test]
async fn a_downgrade_keeps_the_token_and_nobody_writes_in_between() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let writer = waits(&fixture, Mode::Exclusive).await;
    for _ in 0..2 {
        assert!(matches!(hold.downgrade(TTL).await, Ok(Renewal::Renewed(_))));
    }
    let status = fixture.backend().status(&name("a")).await.expect("an answer");
    assert_eq!(status.holders[0].mode, Some(Mode::Shared));
    assert_eq!(status.holders[0].token, Some(hold.token()));
    assert!(writer.is_waiting());
    assert!(release(&hold).await);
    assert!(matches!(hold.downgrade(TTL).await, Ok(Renewal::Lost)));
    let next = writer.granted().await;
    assert!(next.token() > hold.token());
    assert!(matches!(hold.downgrade(TTL).await, Ok(Renewal::Lost)));
    assert!(release(&next).await);
}

#[testbed::test]
async fn an_upgrade_waits_for_the_readers_and_passes_the_writers() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (base, _control) = options_in(Mode::Upgradable, "a").start();
    let upgradable = granted(&backend, &base).await;
    let reader = granted(&fixture.backend(), &request_in(Mode::Shared, "a").0).await;
    let writer = waits(&fixture, Mode::Exclusive).await;
    let upgrade = Waiter::of(&backend, options_in(Mode::Exclusive, "a").replacing(&base).start());
    let id = upgrade.id();
    eventually("it is the first", async || {
        fixture.queue("a").await.first() == Some(&id)
    })
    .await;
    busy(&fixture.backend(), &request_in(Mode::Shared, "a").0).await;
    assert!(matches!(upgradable.renew(TTL).await, Ok(Renewal::Renewed(_))));
    assert!(release(&reader).await);
    let exclusive = upgrade.granted().await;
    assert!(exclusive.token() > upgradable.token() && writer.is_waiting());
    assert!(!release(&upgradable).await, "the upgrade ended it");
    assert!(release(&exclusive).await);
    assert!(release(&writer.granted().await).await);
}

/// The caller of an upgrade goes when it was granted, and reads on: in one step, for nobody else may write meanwhile.
#[testbed::test]
async fn an_upgrade_that_is_undone_gives_the_hold_back() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (base, _bases) = request_in(Mode::Upgradable, "a");
    let reading = granted(&backend, &base).await;
    for waiting in [false, true] {
        let (upgrade, _control) = options_in(Mode::Exclusive, "a").replacing(&base).start();
        let writing = granted(&backend, &upgrade).await;
        let reader = match waiting {
            true => Some(waits(&fixture, Mode::Shared).await),
            false => None,
        };
        busy(&fixture.backend(), &request_in(Mode::Shared, "a").0).await;
        backend.abandon(&upgrade).await.expect("an answer");
        backend.abandon(&upgrade).await.expect("an answer");
        assert!(matches!(writing.renew(TTL).await, Ok(Renewal::Lost)));
        assert!(matches!(reading.renew(TTL).await, Ok(Renewal::Renewed(_))));
        let status = backend.status(base.name()).await.expect("an answer");
        let tokens: Vec<_> = status.holders.iter().map(|holder| holder.token).collect();
        assert!(
            tokens.contains(&Some(reading.token())),
            "{} is shown with {tokens:?}",
            reading.token()
        );
        busy(&fixture.backend(), &request("a", TTL).0).await;
        busy(&fixture.backend(), &request_in(Mode::Upgradable, "a").0).await;
        match reader {
            Some(reader) => assert!(release(&reader.granted().await).await),
            None => assert!(release(&granted(&fixture.backend(), &request_in(Mode::Shared, "a").0).await).await),
        }
    }
    assert!(release(&reading).await);
    assert_eq!(fixture.keys().await, [fixture.fence_key("a")]);
}

#[testbed::test]
async fn an_upgrade_whose_base_has_ended_is_lost() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let (base, _control) = options_in(Mode::Upgradable, "a").start();
    let upgradable = granted(&backend, &base).await;
    let reader = granted(&fixture.backend(), &request_in(Mode::Shared, "a").0).await;
    let (upgrade, _other) = options_in(Mode::Exclusive, "a").replacing(&base).start();
    let waiting = tokio::spawn({
        let (backend, upgrade) = (backend.clone(), upgrade.clone());
        async move { backend.acquire(&upgrade).await }
    });
    let id = upgrade.holder().to_string();
    eventually("it waits", async || fixture.queue("a").await.contains(&id)).await;
    assert!(release(&upgradable).await);
    // It asks once its base could be alone.
    assert!(release(&reader).await);
    let error = waiting
        .await
        .expect("no panic")
        .expect_err("there is nothing to replace");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(
        !error.is_retryable() && error.to_string().contains("upgradable"),
        "{error}"
    );
    assert_eq!(fixture.keys().await, [fixture.fence_key("a")], "it left something");
    let (again, _control) = options_in(Mode::Exclusive, "a").replacing(&base).waits(false).start();
    assert_eq!(
        backend.acquire(&again).await.expect_err("nothing").kind(),
        ErrorKind::Lost
    );
}

#[testbed::test]
async fn a_reader_that_gives_up_leaves_nothing() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    for mode in [Mode::Shared, Mode::Upgradable, permits(2, 3), Mode::Exclusive] {
        waits(&fixture, mode).await.leave().await;
        assert_eq!(fixture.queue("a").await, <[String; 0]>::default(), "{mode:?}");
    }
    assert!(release(&hold).await);
    let backend = fixture.backend();
    let (reader, _control) = request_in(Mode::Shared, "a");
    granted(&backend, &reader).await;
    let other = granted(&backend, &request_in(Mode::Shared, "a").0).await;
    backend.abandon(&reader).await.expect("an answer");
    backend.abandon(&reader).await.expect("again");
    busy(&backend, &request("a", TTL).0).await;
    assert!(release(&other).await);
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn readers_go_on_however_full_the_memory_is() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let reader = waits(&fixture, Mode::Shared).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(matches!(hold.downgrade(TTL).await, Ok(Renewal::Renewed(_))));
    let reading = reader.granted().await;
    assert!(matches!(hold.renew(2 * TTL).await, Ok(Renewal::Renewed(_))));
    assert!(release(&hold).await && release(&reading).await);
    refused(&backend, "b").await;
}

#[testbed::test]
async fn a_dead_reader_keeps_a_writer_out_for_its_ttl_alone() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let ttl = 2 * SECOND;
    let options = RequestOptions::new(name("a"), Terms::new(ttl))
        .mode(Mode::Shared)
        .waits(false);
    let start = Instant::now();
    in_the_end_granted(&backend, &options.start().0).await;
    let long = granted(&backend, &request_in(Mode::Shared, "a").0).await;
    let writer = waits(&fixture, Mode::Exclusive).await;
    assert!(release(&long).await);
    let hold = writer.granted().await;
    assert!(start.elapsed() >= ttl, "a reader was overtaken");
    assert!(release(&hold).await);
    let rest: Duration = start.elapsed();
    assert!(rest < TTL, "{rest:?}: the reader that left first counted");
}

#[testbed::test]
async fn an_older_version_is_excluded_and_waits_in_the_same_queue() {
    in_some_run(OFFER_IS_OVER, an_older_version_is_offered_the_name).await;
}

async fn an_older_version_is_offered_the_name() -> bool {
    let fixture = Fixture::new().await;
    let backend = fixture.with_long_grace();
    let reader = granted(&backend, &request_in(Mode::Shared, "a").0).await;
    // What the oldest version parses: a word, the token, a number, a label.
    let value = fixture.value("a").await;
    let parts: Vec<&str> = value.splitn(4, ' ').collect();
    assert_eq!((parts[0], parts[1]), ("shared", &*reader.token().to_string()));
    assert!(parts[2].parse::<u64>().is_ok(), "{value}");
    // Its entry, as it writes it, before a reader's.
    let entry = format!("{} {}inbox:old", "0".repeat(32), fixture.prefix);
    let start = Instant::now();
    let ends = ((fixture.now().await.as_secs() + 10) * 1000).to_string();
    let queue = fixture.queue_key("a");
    let marked = format!(">{entry}");
    let _: i64 = fixture
        .raw(&["ZADD", &queue, "-1000000000000000", &entry, &ends, &marked])
        .await;
    let mut old = crate::support::connect(&format!(
        "{}/?protocol=resp3",
        fixture.server.url().trim_end_matches('/')
    ))
    .await;
    old.subscribe(format!("{}inbox:old", fixture.prefix))
        .await
        .expect("it may");
    busy(&backend, &request_in(Mode::Shared, "a").0).await;
    assert!(release(&reader).await);
    let value = fixture.value("a").await;
    // Neither the entry nor the offer can be over.
    if start.elapsed() >= LONG_GRACE {
        return false;
    }
    assert_eq!(value, format!("{} 0 5000", "0".repeat(32)), "it was offered");
    true
}
