//! The queue at the server: in order, woken by notifications.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use lock_postgres::tokio_postgres::{AsyncMessage, NoTls, connect};
use testbed::in_some_run;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::support::*;

/// How many sessions of this database listen, as far as one can see.
const LISTENS: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"polylock_%'";

/// Waits until somebody listens, and returns whether that was seen: the connection says "LISTEN" for a second, until it asks, by an
/// empty text, whether the server is there.
async fn is_seen_to_listen(fixture: &Fixture) -> bool {
    const ASKS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name='polylock' AND query='' AND query_start IS NOT NULL";
    eventually("listening", async || {
        let listens = fixture.number(LISTENS).await > 0;
        (listens || fixture.number(ASKS).await > 0).then_some(listens)
    })
    .await
}

#[testbed::test]
async fn processes_are_served_in_the_order_in_which_they_came() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..4 {
        let locks = Locker::new(fixture.backend());
        let served = served.clone();
        waiting.push(tokio::spawn(async move {
            let guard = locks.lock("a").acquire().await.unwrap();
            served.lock().await.push((number, guard.token()));
            guard.release().await.unwrap();
        }));
        eventually("queueing", async || {
            fixture.number("SELECT count(*) FROM {}_waiters").await == number + 1
        })
        .await;
    }
    held.release().await;
    for waiter in waiting {
        happens("the grant", waiter).await.unwrap();
    }
    let served = served.lock().await.clone();
    assert!(served.iter().map(|(number, _)| *number).eq(0..4), "{served:?}");
    assert!(served.is_sorted_by_key(|(_, token)| *token), "{served:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM {}_waiters").await, 0);
}

/// The server plans a statement once for each connection, and vacuums the queue whenever it is empty.
#[testbed::test]
async fn a_queue_that_was_empty_is_read_by_its_index() {
    let fixture = Fixture::shared().await;
    fixture.value("VACUUM {}_waiters").await;
    let scans = async |kind: &str| {
        let count = format!("SELECT {kind}_scan FROM pg_stat_user_tables WHERE relname='{{}}_waiters'");
        fixture.number(&count).await
    };
    // A session reports its scans when it ends, or is idle for a while: those of the checks.
    eventually("checking", async || scans("idx").await >= 3).await;
    let (before, by_index) = (scans("seq").await, scans("idx").await);
    let (first, second) = (Locker::new(fixture.backend()), Locker::new(fixture.backend()));
    for _ in 0..3 {
        let held = first.lock("a").acquire().await.unwrap();
        let lock = second.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        // This reads another table.
        let wanted = "SELECT count(*) FROM {}_leases WHERE wanted>now()";
        eventually("queueing", async || fixture.number(wanted).await == 1).await;
        held.release().await.unwrap();
        let next = happens("the grant", waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    }
    eventually("scanning", async || scans("idx").await >= by_index + 3).await;
    assert_eq!(scans("seq").await, before, "the queue is read as a whole");
}

#[testbed::test]
async fn a_process_listens_only_while_it_waits_and_is_called_then() {
    in_some_run("nobody listens", listens_only_while_it_waits).await;
}

async fn listens_only_while_it_waits() -> bool {
    // Others of this binary wait on the shared server.
    let fixture = Fixture::own(testbed::Postgres::new()).await;
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    assert_eq!(fixture.number(LISTENS).await, 0);
    let backend = fixture.backend();
    let (request, control) = options("a", secs(600)).start();
    let waiting = begin(&backend, &request);
    let listens = is_seen_to_listen(&fixture).await;
    held.release().await;
    assert!(granted(happens("the grant", waiting).await.unwrap().unwrap()).is_some());
    drop((control, held));
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name='polylock'";
    // The first holder's two connections have gone with it, and the waiter's two stay.
    eventually("to listen no longer", async || fixture.number(sessions).await == 2).await;
    listens
}

/// All that is under way in a process ends with it.
#[testbed::test]
async fn a_process_that_ends_right_after_its_release_has_called_the_next_one() {
    // On a machine that stands still, the waiter's mark in the row ends, and then nobody is called.
    in_some_run("the waiter is not called", is_called_by_one_that_ends).await;
}

async fn is_called_by_one_that_ends() -> bool {
    let fixture = Fixture::shared().await;
    let (holding, held) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let backend = fixture.backend();
    // Its connections end with its runtime, which nobody drives after the release.
    let process = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let held = grant(&backend, "a", secs(600)).await;
            holding.send(()).unwrap();
            released.await.unwrap();
            held.release().await
        })
    });
    happens("the grant", held).await.unwrap();
    let waiter = fixture.backend();
    let (request, _control) = options("a", secs(600)).start();
    let waiting = begin(&waiter, &request);
    let channel = eventually("queueing", async || {
        fixture.value("SELECT max(channel) FROM {}_waiters").await
    })
    .await;
    // The waiter would find the free name by itself, if later. So another client counts the calls.
    let (listening, mut connection) = connect(&fixture.server.url(), NoTls).await.unwrap();
    let (heard, mut calls) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(call) = message {
                let _the_test_may_be_over = heard.send(call.payload().to_owned());
            }
        }
    });
    let listen = format!("LISTEN \"{channel}\"");
    listening.batch_execute(&listen).await.unwrap();
    release.send(()).unwrap();
    assert_eq!(happens("the release", process).await.unwrap(), ReleaseOutcome::Released);
    assert!(granted(happens("the grant", waiting).await.unwrap().unwrap()).is_some());
    // With the answer come all calls before it.
    listening.batch_execute("SELECT 1").await.unwrap();
    calls
        .try_recv()
        .is_ok_and(|call| call == format!("{}:1", request.holder()))
}

#[testbed::test]
async fn a_waiter_that_left_without_a_word_is_passed_over() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(600)).await;
    let gone = fixture.backend();
    let (request, _control) = options("a", secs(600)).start();
    let waiting = begin(&gone, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    // As a process that was killed: nobody abandons its request.
    waiting.abort();
    drop((waiting.await, gone));
    let start = Instant::now();
    let locks = Locker::new(fixture.backend());
    let next = tokio::spawn(async move { locks.lock("a").acquire().await.unwrap().token() });
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 2
    })
    .await;
    held.release().await;
    let token = happens("the grant", next).await.unwrap();
    assert!(token > held.token() && start.elapsed() < PATIENCE);
}

#[testbed::test]
async fn a_notification_that_is_lost_costs_no_more_than_a_question() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let held = grant(&backend, "a", secs(600)).await;
    let waits = fixture.backend();
    let (request, _control) = options("a", secs(600)).start();
    let waiting = begin(&waits, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    // As a holder that dies between its release and the call.
    let free = format!(
        "UPDATE {}_leases SET holder=NULL,expires=statement_timestamp() WHERE name='a'",
        fixture.table
    );
    fixture.observer().await.batch_execute(&free).await.unwrap();
    assert!(granted(happens("the grant", waiting).await.unwrap().unwrap()).is_some());
    drop(held);
}

#[testbed::test]
async fn behind_a_pooler_of_transactions_a_waiter_asks_and_needs_no_call() {
    let fixture = Fixture::shared().await;
    let pool = testbed::PgBouncer::of(fixture.server.port()).start().await.unwrap();
    let config = lock_postgres::PostgresConfig::from_url(&pool.url())
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
        .with_table(&fixture.table)
        .with_pooler(lock_postgres::Pooler::Transaction);
    let pooled = lock_postgres::LeaseTableBackend::new(config).unwrap();
    pooled.connect().await.unwrap();
    let held = grant(&pooled, "a", Duration::from_secs(600)).await;
    let (request, _control) = options("a", secs(600)).start();
    let waiting = begin(&pooled, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters WHERE channel=''").await == 1
    })
    .await;
    held.release().await;
    assert!(granted(happens("the grant", waiting).await.unwrap().unwrap()).is_some());
}

/// Its grant passed over an entry that had ended, and the answer was lost.
#[testbed::test]
async fn a_waiter_that_was_granted_learns_of_it_though_an_earlier_entry_came_back() {
    let fixture = Fixture::shared().await;
    let _held = grant(&fixture.backend(), "a", secs(600)).await;
    let backend = fixture.backend();
    let (request, _control) = options("a", secs(600)).start();
    let waiting = begin(&backend, &request);
    eventually("queueing", async || {
        fixture.number("SELECT count(*) FROM {}_waiters").await == 1
    })
    .await;
    let observer = fixture.observer().await;
    let grant_it = format!(
        "BEGIN;UPDATE {0}_leases SET holder='{1}',token=last_token+1,last_token=last_token+1,term='600 s',\
         expires=now()+interval '600 s';DELETE FROM {0}_waiters;\
         INSERT INTO {0}_waiters (name,place,holder,channel,kind,permits,\"of\",since,expires) \
         VALUES ('a',0,gen_random_uuid(),'',0,1,1,now(),now()+interval '9 s');COMMIT",
        fixture.table,
        request.holder()
    );
    observer.batch_execute(&grant_it).await.unwrap();
    let token = fixture.number("SELECT token FROM {}_leases").await;
    let refresh = format!(
        "UPDATE {}_waiters SET expires=now()+interval '9 s' WHERE place=0",
        fixture.table
    );
    eventually("the grant", async || {
        observer.batch_execute(&refresh).await.unwrap();
        waiting.is_finished()
    })
    .await;
    let hold = granted(waiting.await.unwrap().unwrap()).expect("it is granted");
    assert_eq!(hold.token().as_u64(), u64::try_from(token).unwrap());
}

/// A name that was freed has called nobody who was not in the queue. Behind a pooler of transactions no connection sets its own
/// `lock_timeout`.
#[testbed::test]
async fn nobody_queues_for_a_name_that_was_freed_meanwhile() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(60)).await;
    let locking = fixture.lock_row("a").await;
    let config = fixture.config().with_pooler(lock_postgres::Pooler::Transaction);
    let backend = lock_postgres::LeaseTableBackend::new(config).unwrap();
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&backend, &request);
    eventually("queueing", async || fixture.waiting_for_rows().await == 1).await;
    let free = "UPDATE {}_leases SET holder=NULL,expires=clock_timestamp() WHERE name='a';COMMIT";
    locking
        .batch_execute(&free.replace("{}", &fixture.table))
        .await
        .unwrap();
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
    assert_eq!(fixture.number("SELECT last_place FROM {}_leases").await, 0, "it queued");
    drop(held);
}

/// An entry is committed without waiting for the disk.
#[testbed::test]
async fn a_place_that_a_crash_undid_is_not_given_again() {
    let fixture = Fixture::shared().await;
    let held = grant(&fixture.backend(), "a", secs(60)).await;
    let places = "SELECT max(place) FROM {}_waiters";
    let queued = async |count| {
        eventually("queueing", async || {
            fixture.number("SELECT count(*) FROM {}_waiters").await == count
        })
        .await;
        fixture.number(places).await
    };
    let backends = [fixture.backend(), fixture.backend()];
    let requests: Vec<_> = (0..2).map(|_| options("a", secs(60)).start()).collect();
    let mut waiting = vec![begin(&backends[0], &requests[0].0)];
    let before = queued(1).await;
    let crash = "BEGIN;UPDATE {}_leases SET last_place=0,wanted='-infinity';DELETE FROM {}_waiters;COMMIT";
    fixture
        .observer()
        .await
        .batch_execute(&crash.replace("{}", &fixture.table))
        .await
        .unwrap();
    waiting.push(begin(&backends[1], &requests[1].0));
    // The first one finds that it has no entry any more, and enters again.
    assert!(queued(2).await > before);
    let least = fixture.number("SELECT min(place) FROM {}_waiters").await;
    assert!(least > before, "the place {least} was given twice");
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    let (mut tokens, mut left) = (Vec::new(), waiting);
    while !left.is_empty() {
        let (attempt, _, others) = happens("an answer", futures_util::future::select_all(left)).await;
        let hold = granted(attempt.unwrap().unwrap()).expect("it is granted");
        tokens.push(hold.token());
        hold.release(ReleaseOptions::default()).await.unwrap();
        left = others;
    }
    assert!(tokens.len() == 2 && tokens.is_sorted(), "{tokens:?}");
}

/// As on a standby that was promoted without it, or after a backup was restored.
#[testbed::test]
async fn a_waiter_whose_row_vanished_is_granted_the_free_name() {
    for lose in ["DELETE FROM {}_leases", "DROP TABLE {}_leases,{}_holders,{}_waiters"] {
        let fixture = Fixture::shared().await;
        let lost = grant(&fixture.backend(), "a", secs(600)).await;
        let backend = fixture.backend();
        let (request, _control) = options("a", secs(600)).start();
        let waiting = begin(&backend, &request);
        eventually("queueing", async || {
            fixture.number("SELECT count(*) FROM {}_waiters").await == 1
        })
        .await;
        let lose = lose.replace("{}", &fixture.table);
        fixture.observer().await.batch_execute(&lose).await.unwrap();
        let attempt = happens("the grant", waiting).await.unwrap().unwrap();
        let hold = granted(attempt).expect("it is granted");
        assert!(hold.token() > lost.token());
    }
}

#[testbed::test]
async fn behind_a_pooler_of_transactions_a_waiter_may_listen_at_the_server_itself() {
    in_some_run("nobody listens", listens_at_the_server_itself).await;
}

async fn listens_at_the_server_itself() -> bool {
    // Others of this binary wait on the shared server.
    let fixture = Fixture::own(testbed::Postgres::new()).await;
    let pool = testbed::PgBouncer::of(fixture.server.port()).start().await.unwrap();
    let config = lock_postgres::PostgresConfig::from_url(&pool.url())
        .unwrap()
        .with_connect_timeout(PATIENCE)
        .with_response_timeout(PATIENCE)
        .with_table(&fixture.table)
        .with_pooler(lock_postgres::Pooler::Transaction)
        .with_listen(fixture.config());
    let pooled = lock_postgres::LeaseTableBackend::new(config).unwrap();
    let held = grant(&pooled, "a", secs(60)).await;
    let (request, _control) = options("a", secs(60)).start();
    let waiting = begin(&pooled, &request);
    eventually("queueing", async || {
        fixture
            .number("SELECT count(*) FROM {}_waiters WHERE channel LIKE 'polylock_%'")
            .await
            == 1
    })
    .await;
    let listens = is_seen_to_listen(&fixture).await;
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    assert!(granted(happens("an answer", waiting).await.unwrap().unwrap()).is_some());
    listens
}
