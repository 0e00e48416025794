//! Many who want a lock at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::HoldState;
use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions, ReleaseOutcome};
use testbed::assert_safe;

use crate::support::*;

#[testbed::test]
async fn one_at_a_time() {
    let fixture = Fixture::shared().await;
    let (first, second) = (fixture.backend(), fixture.backend());
    let mut observer = fixture.observer().await;
    observer
        .run(&format!("CREATE TABLE {}_counter (n INT) ENGINE=InnoDB", fixture.table))
        .await;
    observer
        .run(&format!("INSERT INTO {}_counter VALUES (0)", fixture.table))
        .await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        let backend = if number % 2 == 0 { first.clone() } else { second.clone() };
        let (mut own, table) = (fixture.observer().await, fixture.table.clone());
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let granted = ask(&backend, options("counter", secs(60))).await.unwrap();
                tokens.push(granted.token());
                // Unprotected: read, then write.
                let read = own.number(&format!("SELECT n FROM {table}_counter")).await;
                own.run(&format!("UPDATE {table}_counter SET n={}", read + 1)).await;
                assert_eq!(granted.state(), HoldState::Held);
                granted.release().await;
            }
            tokens
        }));
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.extend(all_soon("done", task).await.unwrap());
    }
    assert_eq!(
        observer
            .number(&format!("SELECT n FROM {}_counter", fixture.table))
            .await,
        100
    );
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 100);
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_to_use_a_name_ever_are_still_one_at_a_time() {
    let fixture = Fixture::shared().await;
    let clients = [
        fixture.backend(),
        fixture.backend(),
        fixture.backend(),
        fixture.backend(),
    ];
    for client in &clients {
        client.connect().await.unwrap();
    }
    for round in 0..300 {
        let name = format!("name {round}");
        let tries = clients.each_ref().map(|client| {
            let (client, name) = (client.clone(), name.clone());
            tokio::spawn(async move { try_once(&client, &name).await })
        });
        let mut granted = Vec::new();
        for attempt in tries {
            granted.extend(soon("answered", attempt).await.unwrap().ok());
        }
        assert_eq!(granted.len(), 1, "{granted:?}");
        granted[0].release().await;
    }
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_may_all_find_the_tables_missing_at_once() {
    for _ in 0..10 {
        let fixture = Fixture::shared().await;
        let tries: Vec<_> = (0..6)
            .map(|number| {
                let backend = fixture.backend();
                tokio::spawn(async move {
                    grant(&backend, &format!("name {number}"), secs(10))
                        .await
                        .release()
                        .await
                })
            })
            .collect();
        for attempt in tries {
            assert_eq!(soon("released", attempt).await.unwrap(), ReleaseOutcome::Released);
        }
    }
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_at_any_moment_leave_one_holder_at_a_time_and_nothing_behind() {
    let fixture = Fixture::shared().await;
    let inside = Arc::new(AtomicU64::new(0));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..12_u64 {
        let backend = fixture.backend();
        let (inside, last) = (inside.clone(), last.clone());
        tasks.push(tokio::spawn(async move {
            backend.connect().await.unwrap();
            let mut grants = 0;
            for round in 0..25 {
                let patience = Duration::from_micros((number * 7919 + round * 104_729) % 150_000);
                let terms = Terms::new(secs(30)).time_left(patience);
                let (request, _control) = RequestOptions::new(name("a"), terms).start();
                match backend.acquire(&request).await {
                    Ok(Attempt::Granted(hold, _)) => {
                        assert_safe!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two have it");
                        let token = hold.token().as_u64();
                        let before = last.swap(token, Ordering::SeqCst);
                        assert_safe!(before < token, "{before} was followed by {token}");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        grants += 1;
                        if round % 3 == 0 {
                            backend.abandon(&request).await.unwrap();
                        } else {
                            let outcome = hold.release(ReleaseOptions::default()).await.unwrap();
                            assert_eq!(outcome, ReleaseOutcome::Released);
                        }
                    }
                    Ok(_) | Err(_) => backend.abandon(&request).await.unwrap(),
                }
            }
            grants
        }));
    }
    let mut grants = 0;
    for task in tasks {
        grants += tokio::time::timeout(4 * PATIENCE, task).await.expect("done").unwrap();
    }
    assert!(grants > 0);
    let mut observer = fixture.observer().await;
    assert_eq!(observer.waiters().await, 0);
    assert!(!observer.is_locked("a").await);
}

/// When a row that is waited for changes its size, InnoDB leaves locks behind for each transaction that waits, and whoever
/// releases the row looks at them all.
#[testbed::test]
async fn waiting_for_many_holders_piles_up_no_locks() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let holder = fixture.backend();
    let mut held = grant(&holder, "a", secs(600)).await.hold;
    let (done, mut next) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..10 {
        let (backend, done) = (fixture.backend(), done.clone());
        let terms = Terms::new(secs(600)).label("x".repeat(6 * number));
        tokio::spawn(async move {
            let (request, _control) = RequestOptions::new(name("a"), terms).start();
            let attempt = backend.acquire(&request).await;
            drop(done.send((attempt, backend)));
        });
        until("it waits", async || observer.waiters().await == number + 1).await;
    }
    let locks = "SELECT COALESCE(MAX(trx_lock_structs),0) FROM information_schema.INNODB_TRX";
    for _ in 0..10 {
        held.release(ReleaseOptions::default()).await.unwrap();
        let (attempt, _backend) = soon("granted", next.recv()).await.unwrap();
        match attempt.unwrap() {
            Attempt::Granted(hold, _) => held = hold,
            other => panic!("{other:?}"),
        }
        let locks = observer.number(locks).await;
        assert!((1..=4).contains(&locks), "{locks}");
    }
    held.release(ReleaseOptions::default()).await.unwrap();
}
