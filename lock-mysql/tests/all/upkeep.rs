//! What keeps a hold, and what that costs the server.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_core::{HoldState, Locker, LostCause};
use lock_mysql::RowLockBackend;
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use testbed::in_some_run;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::support::*;

const TTL: Duration = secs(5);

/// A client of a user whom a read-only server refuses.
async fn plain_user(fixture: &Fixture, observer: &mut Observer) -> RowLockBackend {
    observer
        .run("CREATE USER 'plain'@'%' IDENTIFIED BY 's3cret';GRANT SELECT,INSERT,UPDATE,CREATE ON app.* TO 'plain'@'%'")
        .await;
    let url = format!(
        "mysql://plain:s3cret@{}/app?table={}",
        fixture.server.address(),
        fixture.table
    );
    RowLockBackend::new(patient(&url).with_max_read_only(secs(3600))).unwrap()
}

/// A backup takes it, and an administrator for some time.
#[testbed::test]
async fn a_server_that_may_not_write_loses_no_hold() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let locks = Locker::new(plain_user(&fixture, &mut observer).await);
    for (forbid, permit) in [
        ("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"),
        ("SET GLOBAL read_only=1", "SET GLOBAL read_only=0"),
    ] {
        // If the machine stands still between two renewals, the lease ends.
        in_some_run(&format!("a hold is lost with {forbid}"), async || {
            let guard = locks.lock("a").ttl(TTL).acquire().await.unwrap();
            observer.run(forbid).await;
            let lost = timeout(TTL + secs(1), guard.lost()).await;
            let state = guard.state();
            observer.run(permit).await;
            if let Ok(lost) = lost {
                assert_eq!(lost.cause(), LostCause::Expired, "{forbid}: {lost}");
                return Err(format!("{lost}"));
            }
            if state != HoldState::Held {
                return Err(format!("{state:?}"));
            }
            let is_locked = observer.is_locked("a").await;
            match guard.release().await {
                Err(error) if error.is_lost() => return Err(format!("{error}")),
                released => drop(released.unwrap()),
            }
            assert!(is_locked, "{forbid}");
            Ok(())
        })
        .await;
    }
}

#[testbed::test]
async fn renewals_write_nothing() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let granted = grant(&fixture.backend(), "a", secs(60)).await;
    let before = observer.counter("Com_update").await;
    for _ in 0..100 {
        granted.hold.renew(secs(60)).await.unwrap();
    }
    assert_eq!(observer.counter("Com_update").await, before);
    assert_eq!(granted.state(), HoldState::Held);
}

#[testbed::test]
async fn idle_holds_cost_two_statements_a_second_together() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let backend = RowLockBackend::new(fixture.config().with_max_connections(450)).unwrap();
    let mut held = Vec::new();
    for number in 0..400 {
        held.push(grant(&backend, &format!("{number}"), secs(600)).await);
    }
    let before = observer.counter("Questions").await;
    sleep(secs(5)).await;
    let asked = observer.counter("Questions").await - before;
    // The ten, what the observer asks, and connections that were quiet for half a minute on a slow machine.
    assert!(asked < 200, "{asked} statements");
    // Each look is a statement as well, and so was the one above.
    let mut looks = 1;
    until("five statements", async || {
        looks += 1;
        observer.counter("Questions").await - before >= 4 + looks
    })
    .await;
    assert!(held.iter().all(|granted| granted.state() == HoldState::Held));
}

/// Ends the connection that has a named lock, as all of ours do, and holds nothing.
async fn kill_control(observer: &mut Observer, holders: &[&str]) {
    let mut numbers = Vec::new();
    for holder in holders {
        numbers.push(observer.holder(holder).await.expect("somebody holds it").to_string());
    }
    let others = format!(
        "SELECT COALESCE(MAX(ID),0) FROM information_schema.PROCESSLIST WHERE USER='many' AND ID NOT IN ({})",
        numbers.join(",")
    );
    let mut control = 0;
    until("made", async || {
        control = observer.number(&others).await;
        control > 0
    })
    .await;
    observer.run(&format!("KILL CONNECTION {control}")).await;
}

#[testbed::test]
async fn a_broken_control_connection_loses_no_hold_and_hides_no_loss() {
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    observer.run("CREATE USER 'many'@'%' IDENTIFIED BY 's3cret'").await;
    observer.run("GRANT ALL ON app.* TO 'many'@'%'").await;
    let url = format!(
        "mysql://many:s3cret@{}/app?table={}",
        fixture.server.address(),
        fixture.table
    );
    let backend = RowLockBackend::new(patient(&url)).unwrap();
    let mut held = Vec::new();
    for name in ["a", "b", "c"] {
        held.push(grant(&backend, name, secs(600)).await);
    }
    // It is made anew.
    kill_control(&mut observer, &["a", "b", "c"]).await;
    sleep(secs(2)).await;
    assert!(held.iter().all(|granted| granted.state() == HoldState::Held));
    observer.kill_holder("a").await;
    soon("lost", held[0].request.lease().ended()).await;
    // The server has no connection left for it.
    kill_control(&mut observer, &["b", "c"]).await;
    observer.run("SET GLOBAL max_connections=10").await;
    let mut filling = Vec::new();
    while let Ok(connection) = MySqlConnection::connect(&url).await {
        filling.push(connection);
        assert!(filling.len() < 20);
    }
    sleep(secs(2)).await;
    observer.kill_holder("b").await;
    soon("lost", held[1].request.lease().ended()).await;
    assert_eq!(held[2].state(), HoldState::Held);
}

#[testbed::test]
fn a_runtime_that_nobody_drives_hides_no_loss_on_another() {
    let [main, idle] = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
    let (fixture, backend, mut observer) = main.block_on(async {
        let fixture = Fixture::shared().await;
        let (backend, observer) = (fixture.backend(), fixture.observer().await);
        (fixture, backend, observer)
    });
    let kept = idle.block_on(grant(&backend, "idle", secs(600)));
    main.block_on(async {
        let granted = grant(&backend, "a", secs(600)).await;
        let other = grant(&fixture.backend(), "b", secs(600)).await;
        observer.kill_holder("a").await;
        soon("lost", granted.request.lease().ended()).await;
        assert_eq!(other.state(), HoldState::Held);
        assert!(backend.status(&name("idle")).await.unwrap().is_held());
    });
    assert_eq!(kept.state(), HoldState::Held);
}
