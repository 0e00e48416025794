//! Readers, and the way from a writer to one.

use lock_core::LockName;
use lock_core::backend::{DistributedLock, Mode, Renewal};

use super::locks;
use crate::lease::support::*;

#[testbed::test]
async fn readers_of_one_process_and_of_others_hold_together() {
    let fixture = Fixture::shared().await;
    let (one, other) = (fixture.sessions(), fixture.sessions());
    let mut readers = Vec::new();
    for backend in [&one, &one, &other] {
        readers.push(try_in(backend, "a", Mode::Shared).await.expect("readers share"));
    }
    assert!(try_in(&other, "a", Mode::Exclusive).await.is_none());
    let status = one.status(&LockName::new("a").unwrap()).await.unwrap();
    let mut shown: Vec<_> = status.holders.iter().filter_map(|holder| holder.token).collect();
    shown.sort_unstable();
    assert_eq!(shown, readers.iter().map(Granted::token).collect::<Vec<_>>());
    let last = readers.last().unwrap().token();
    for reader in readers {
        reader.release().await;
    }
    let writer = try_in(&other, "a", Mode::Exclusive)
        .await
        .expect("all readers have gone");
    assert!(writer.token() > last);
    eventually("forgetting the readers", async || {
        fixture.number("SELECT count(*) FROM {}_readers").await == 0
    })
    .await;
}

#[testbed::test]
async fn a_reader_that_comes_late_waits_behind_a_writer() {
    let fixture = Fixture::shared().await;
    let (one, other) = (fixture.sessions(), fixture.sessions());
    let reader = try_in(&one, "a", Mode::Shared).await.unwrap();
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&other, &request);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    for backend in [&one, &other] {
        assert!(
            try_in(backend, "a", Mode::Shared).await.is_none(),
            "it went before a writer that waits"
        );
    }
    reader.release().await;
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
}

#[testbed::test]
async fn nobody_writes_while_a_hold_is_downgraded() {
    let fixture = Fixture::shared().await;
    let (one, other) = (fixture.sessions(), fixture.sessions());
    let held = grant(&one, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&other, &request);
    eventually("waiting", async || locks(&fixture, "a", false).await == 1).await;
    // Twice, as after an answer that was lost.
    for _ in 0..2 {
        let renewal = happens("an answer", held.hold.downgrade(secs(60))).await.unwrap();
        assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
        assert_eq!(
            (locks(&fixture, "a", true).await, locks(&fixture, "a", false).await),
            (1, 1)
        );
    }
    let status = one.status(&LockName::new("a").unwrap()).await.unwrap();
    let [reader] = status.holders.as_slice() else {
        panic!("{status:?}");
    };
    assert_eq!((reader.mode, reader.token), (Some(Mode::Shared), Some(held.token())));
    assert!(!waiting.is_finished());
    held.release().await;
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
}

/// The server takes the shared lock, and then fails.
#[testbed::test]
async fn a_downgrade_that_failed_half_way_can_be_repeated() {
    let fixture = Fixture::own(testbed::Postgres::new()).await;
    let observer = fixture.observer().await;
    let fail = "CREATE FUNCTION public.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE plpgsql AS \
                'BEGIN RAISE EXCEPTION ''no''; END'; ALTER ROLE CURRENT_USER SET search_path=public,pg_catalog";
    observer.batch_execute(fail).await.unwrap();
    let backend = fixture.sessions();
    let held = grant(&backend, "a", secs(60)).await;
    for _ in 0..2 {
        happens("an answer", held.hold.downgrade(secs(60))).await.unwrap_err();
        // Both locks are there.
        assert_eq!(locks(&fixture, "a", true).await, 2);
    }
    let allow = "DROP FUNCTION public.pg_advisory_unlock(bigint)";
    observer.batch_execute(allow).await.unwrap();
    let renewal = happens("an answer", held.hold.downgrade(secs(60))).await.unwrap();
    assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
    assert_eq!(locks(&fixture, "a", true).await, 1);
    let other = fixture.sessions();
    let reader = try_in(&other, "a", Mode::Shared).await.expect("readers share");
    reader.release().await;
    held.release().await;
    assert_eq!(locks(&fixture, "a", true).await, 0);
}
