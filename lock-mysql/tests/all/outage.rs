//! Servers that are away for a while, and what callers are told meanwhile.

use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, ReleaseOptions};
use lock_core::{Error, ErrorKind, Locker};
use lock_mysql::{MySqlConfig, RowLockBackend};
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use testbed::{eventually, in_some_run};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::proxy::Proxy;
use crate::support::*;

/// Waits in a task of its own, until it was told that the lock is taken.
async fn wait(locks: &Locker, observer: &mut Observer, time: Duration) -> tokio::task::JoinHandle<Result<(), Error>> {
    let waiters = observer.waiters().await;
    loop {
        let lock = locks.lock("a").ttl(secs(30));
        let waiting = tokio::spawn(async move { lock.acquire_within(time).await.map(drop) });
        until("waiting or done", async || {
            observer.waiters().await != waiters || waiting.is_finished()
        })
        .await;
        if !waiting.is_finished() {
            return waiting;
        }
        // On a busy machine its time may be up before it is seen.
        let error = waiting.await.unwrap().unwrap_err();
        let kinds = [ErrorKind::TimedOut, ErrorKind::Unavailable];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}

#[testbed::test]
async fn an_outage_is_unavailable_with_its_cause_and_no_lock_that_is_taken() {
    // A busy machine may stand still until their time is over.
    in_some_run("the cause is not known", async || {
        let fixture = Fixture::shared().await;
        let (proxy, mut observer) = (Proxy::of(&fixture).await, fixture.observer().await);
        let _held = grant(&fixture.backend(), "a", secs(60)).await;
        let locks = Locker::new(proxy.backend(&fixture));
        let waiting = wait(&locks, &mut observer, secs(4)).await;
        proxy.cut();
        let within = locks.lock("b").acquire_within(secs(3)).await.unwrap_err();
        let tried = locks.lock("b").try_acquire().await.unwrap_err();
        for error in [within, tried, waiting.await.unwrap().unwrap_err()] {
            if error.kind() != ErrorKind::Unavailable || !error.to_string().contains("expected to read") {
                return Err(error);
            }
            assert!(error.is_retryable());
        }
        Ok(())
    })
    .await;
}

/// What a waiter says whose server falls silent, and for good unless it `heals`.
async fn wait_in_silence(heals: bool) -> Error {
    let fixture = Fixture::shared().await;
    let (proxy, mut observer) = (Proxy::of(&fixture).await, fixture.observer().await);
    let _held = grant(&fixture.backend(), "a", secs(60)).await;
    let locks = Locker::new(proxy.backend(&fixture));
    // Long enough to notice on a busy machine that the server is back.
    let time = if heals { secs(11) } else { secs(8) };
    let waiting = wait(&locks, &mut observer, time).await;
    proxy.stall();
    if heals {
        sleep(secs(4)).await;
        proxy.heal();
    }
    let error = waiting.await.unwrap().unwrap_err();
    proxy.heal();
    error
}

#[testbed::test]
async fn a_waiter_tells_a_silent_server_from_a_lock_that_is_taken() {
    // A busy machine may stand still until their time is over.
    let silent = in_some_run("a silent server is not noticed", async || {
        let silent = wait_in_silence(false).await;
        let is_noticed =
            silent.kind() == ErrorKind::Unavailable && silent.to_string().contains("did not answer within");
        is_noticed.then_some(()).ok_or(silent)
    });
    let healed = in_some_run("who has the lock is not known after the silence", async || {
        let healed = wait_in_silence(true).await;
        let is_known = (healed.kind(), healed.holder()) == (ErrorKind::TimedOut, Some("tester"));
        is_known.then_some(()).ok_or(healed)
    });
    tokio::join!(silent, healed);
}

#[testbed::test]
async fn a_waiter_whose_connection_vanished_in_an_outage_goes_on_after_it() {
    let fixture = Fixture::shared().await;
    let (proxy, mut observer) = (Proxy::of(&fixture).await, fixture.observer().await);
    let held = grant(&fixture.backend(), "a", secs(60)).await;
    let lock = Locker::new(proxy.backend(&fixture)).lock("a").ttl(secs(60));
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("waiting", async || observer.waiters().await > 0).await;
    let id = observer.waiting_connection().await;
    proxy.lose_connections();
    proxy.stall();
    // The server ends what it waits for; the waiter does not hear of it, not even when the server is back.
    observer.run(&format!("KILL CONNECTION {id}")).await;
    held.release().await;
    sleep(secs(5)).await;
    proxy.heal();
    let guard = soon("granted", waiting).await.unwrap();
    guard.release().await.unwrap();
}

#[testbed::test]
async fn waiters_leave_connections_for_names_that_are_free() {
    let fixture = Fixture::shared().await;
    let (holder, mut observer) = (Locker::new(fixture.backend()), fixture.observer().await);
    let config = fixture.config().with_max_connections(8);
    let locks = Locker::new(RowLockBackend::new(config).unwrap());
    let (mut held, mut waiting) = (Vec::new(), JoinSet::new());
    for number in 0..8 {
        let name = format!("taken {number}");
        held.push(holder.lock(&name).ttl(secs(60)).acquire().await.unwrap());
        let lock = locks.lock(&name).ttl(secs(60));
        waiting.spawn(async move { lock.acquire().await.unwrap() });
    }
    until("six wait there", async || observer.waiters().await >= 6).await;
    sleep(secs(1)).await;
    assert_eq!(observer.waiters().await, 6);
    // Those that may not wait there use the last two connections for each question, on a busy machine at the same time.
    let (lock, mut free) = (locks.lock("free").ttl(secs(60)), None);
    until("free", async || match lock.try_acquire().await {
        Ok(guard) => {
            free = guard;
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("max_connections"), "{error}");
            false
        }
    })
    .await;
    free.expect("it is free").release().await.unwrap();
    // Those that may not wait there ask again and again, and get it as well.
    drop(held);
    while let Some(granted) = soon("granted", waiting.join_next()).await {
        granted.unwrap().release().await.unwrap();
    }
}

#[testbed::test]
async fn with_all_connections_in_use_a_free_name_is_unavailable() {
    let fixture = Fixture::shared().await;
    let look = MySqlConfig::DEFAULT_CONNECT_TIMEOUT;
    let config = fixture.config().with_max_connections(4).with_connect_timeout(look);
    let locks = Locker::new(RowLockBackend::new(config).unwrap());
    let mut held = Vec::new();
    for number in 0..4 {
        held.push(locks.lock(format!("{number}")).ttl(secs(60)).acquire().await.unwrap());
    }
    let lock = locks.lock("free").ttl(secs(60));
    let mut took = Vec::new();
    // A busy machine may stand still for as long as one of them takes.
    for _ in 0..3 {
        let started = Instant::now();
        let tried = lock.try_acquire().await.unwrap_err();
        took.push(started.elapsed());
        assert_eq!(tried.kind(), ErrorKind::Unavailable, "{tried}");
        assert!(tried.to_string().contains("max_connections"), "{tried}");
    }
    assert!(took.iter().any(|took| *took < look), "{took:?}");
    // Shorter and longer than one look for a connection.
    for time in [2, 7] {
        let within = lock.acquire_within(secs(time)).await.unwrap_err();
        assert_eq!(within.kind(), ErrorKind::Unavailable, "{time} s: {within}");
        assert!(within.to_string().contains("max_connections"), "{within}");
    }
}

#[testbed::test]
async fn a_used_up_pool_says_so() {
    let fixture = Fixture::shared().await;
    let config = fixture.config().with_max_connections(1);
    let locks = Locker::new(RowLockBackend::new(config).unwrap());
    let _guard = locks.lock("a").acquire().await.unwrap();
    let within = locks.lock("b").acquire_within(secs(1)).await.unwrap_err();
    let tried = locks.lock("b").try_acquire().await.unwrap_err();
    for error in [within, tried] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(
            said.contains("all 1 connections") && said.contains("max_connections"),
            "{said}"
        );
    }
}

/// The URL of a user whom a full server refuses.
async fn many(fixture: &Fixture, observer: &mut Observer) -> String {
    observer.run("CREATE USER 'many'@'%' IDENTIFIED BY 's3cret'").await;
    observer.run("GRANT ALL ON app.* TO 'many'@'%'").await;
    format!(
        "mysql://many:s3cret@{}/app?table={}",
        fixture.server.address(),
        fixture.table
    )
}

/// Takes all connections that the server has left.
async fn fill(url: &str, observer: &mut Observer) -> Vec<MySqlConnection> {
    observer.run("SET GLOBAL max_connections=10").await;
    let mut filling = Vec::new();
    while let Ok(connection) = MySqlConnection::connect(url).await {
        filling.push(connection);
        assert!(filling.len() < 20);
    }
    filling
}

#[testbed::test]
async fn a_full_server_refuses_no_clean_up() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let url = many(&fixture, &mut observer).await;
    let _held = grant(&fixture.backend(), "a", secs(60)).await;
    let backend = RowLockBackend::new(patient(&url)).unwrap();
    let (request, _control) = options("a", secs(60)).start();
    let waiting = tokio::spawn({
        let (backend, request) = (backend.clone(), request.clone());
        async move { backend.acquire(&request).await }
    });
    until("waiting", async || observer.waiters().await > 0).await;
    let _filling = fill(&url, &mut observer).await;
    backend.abandon(&request).await.unwrap();
    assert_eq!(observer.waiters().await, 0);
    soon("ended", waiting).await.unwrap().unwrap_err();
}

#[testbed::test]
async fn a_full_server_says_so() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let url = many(&fixture, &mut observer).await;
    let locks = Locker::new(RowLockBackend::new(patient(&url)).unwrap());
    let guard = locks.lock("a").acquire().await.unwrap();
    let _filling = fill(&url, &mut observer).await;
    let within = locks.lock("b").acquire_within(secs(3)).await.unwrap_err();
    let tried = locks.lock("b").try_acquire().await.unwrap_err();
    for error in [within, tried] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(said.contains("no free connection"), "{said}");
    }
    guard.release().await.unwrap();
}

#[testbed::test]
async fn the_first_try_after_an_outage_asks() {
    let fixture = Fixture::own().await;
    let locks = Locker::new(fixture.backend());
    for _ in 0..3 {
        // Idle connections, which break as well, and somebody who waits all the time.
        let spares = [1, 2, 3].map(|number| locks.lock(format!("spare {number}")));
        let mut guards = Vec::new();
        for spare in &spares {
            guards.push(spare.acquire().await.unwrap());
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        let held = locks.lock("held").acquire().await.unwrap();
        fixture.server.kill().unwrap();
        soon("lost", held.lost()).await;
        let waiting = tokio::spawn({
            let lock = locks.lock("waiting");
            async move { lock.acquire().await.unwrap().release().await }
        });
        for _ in 0..20 {
            let error = locks.lock("a").try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        fixture.server.restart().await.unwrap();
        let tried = locks.lock("a").try_acquire().await.unwrap();
        tried.expect("it is free").release().await.unwrap();
        soon("granted", waiting).await.unwrap().unwrap();
        drop(held);
    }
}

#[testbed::test]
async fn a_server_that_is_away_is_not_flooded_with_dials() {
    let fixture = Fixture::shared().await;
    let proxy = Proxy::of(&fixture).await;
    let backend = proxy.backend(&fixture);
    let granted = grant_in_the_end(&backend, "a", secs(10)).await;
    insist("released", async || {
        granted.hold.release(ReleaseOptions::default()).await
    })
    .await;
    proxy.cut();
    let (request, _control) = options("a", secs(10)).waits(false).start();
    backend.acquire(&request).await.unwrap_err();
    let (before, started) = (proxy.dials(), Instant::now());
    let mut asking = JoinSet::new();
    for number in 0..50 {
        let backend = backend.clone();
        let waits = number % 2 == 1;
        asking.spawn(async move {
            loop {
                let (request, _control) = options(&format!("{number}"), secs(10)).waits(waits).start();
                let asked = timeout(secs(1), backend.acquire(&request)).await;
                assert!(asked.is_err() || asked.unwrap().is_err());
                backend.abandon(&request).await.expect("it was never sent");
            }
        });
    }
    sleep(secs(2)).await;
    until("dialled", async || proxy.dials() - before >= 2).await;
    let dials = proxy.dials() - before;
    let spaced = started.elapsed().as_millis() / 50 + 2;
    assert!(
        (2..=spaced).contains(&(dials as u128)),
        "{dials} in {:?}",
        started.elapsed()
    );
    assert!(asking.try_join_next().is_none(), "somebody got another answer");
}

#[testbed::test]
async fn a_waiter_that_cannot_reach_its_server_goes_on_as_soon_as_it_is_back() {
    let fixture = Fixture::own().await;
    let (backend, other) = (fixture.backend(), fixture.backend());
    for _ in 0..3 {
        let _held = soon("free", ask(&backend, options("a", secs(60)))).await.unwrap();
        let (request, _control) = options("a", secs(60)).start();
        let waiting = tokio::spawn({
            let (other, request) = (other.clone(), request.clone());
            async move {
                for _ in 0..3 {
                    if let Ok(Attempt::Granted(hold, _)) = other.acquire(&request).await {
                        return hold;
                    }
                }
                panic!("it does not wait for the server");
            }
        });
        until("told", || async { request.last_busy().is_some() }).await;
        fixture.server.kill().unwrap();
        sleep(secs(1)).await;
        fixture.server.restart().await.unwrap();
        let hold = soon("granted", waiting).await.unwrap();
        hold.release(ReleaseOptions::default()).await.unwrap();
    }
}

/// A client with a control connection alone, which a firewall has forgotten.
async fn with_a_silent_control_connection(fixture: &Fixture) -> (Proxy, Locker) {
    let proxy = Proxy::of(fixture).await;
    // The client waits so long for an answer.
    let locks = Locker::new(proxy.impatient(fixture, secs(600)));
    locks.status("a").await.unwrap();
    assert_eq!(proxy.dials(), 1);
    proxy.lose_connections();
    (proxy, locks)
}

#[testbed::test]
async fn a_silent_control_connection_delays_acquires_by_a_second() {
    let fixture = Fixture::shared().await;
    fixture.backend().connect().await.unwrap();
    // A busy machine may need longer for the second one.
    in_some_run("the second one gets nothing", async || {
        let (_proxy, locks) = with_a_silent_control_connection(&fixture).await;
        let lock = locks.lock("a").ttl(secs(60));
        if let Ok(granted) = lock.acquire_within(secs(1)).await {
            granted.release().await.unwrap();
        }
        lock.acquire_within(secs(1)).await?.release().await
    })
    .await;
}

/// Each caller has too little time for a look of its own.
#[testbed::test]
async fn a_silent_control_connection_is_left_by_those_with_less_time() {
    let fixture = Fixture::shared().await;
    fixture.backend().connect().await.unwrap();
    let (_proxy, locks) = with_a_silent_control_connection(&fixture).await;
    let lock = locks.lock("a").ttl(secs(60));
    let first = lock.acquire_within(Duration::from_millis(500)).await;
    assert!(first.is_err(), "there is no answer yet");
    let granted = eventually("one of the next ones gets it", async || {
        lock.acquire_within(Duration::from_millis(900)).await
    });
    granted.await.release().await.unwrap();
}
