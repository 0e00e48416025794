//! What a lost hold says of its loss.

use lock_core::{ErrorKind, Locker, LostCause};
use lock_mysql::{LeaseTableBackend, MySqlConfig, Strategy};
use testbed::{Server, in_some_run};

use crate::support::*;

on_both_servers!(
    a_killed_connection_is_named,
    a_release_over_a_killed_connection_says_so,
    a_deleted_row_is_what_the_server_says,
    a_changed_password_is_named,
);

async fn a_killed_connection_is_named(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    let guard = Locker::new(fixture.backend()).lock("a").acquire().await.unwrap();
    observer.kill_holder("a").await;
    let lost = soon("lost", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::Disconnected);
    let error = lost.error().expect("the connection broke");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("connection"), "{error}");
    assert!(lost.to_string().ends_with(&error.to_string()), "{lost}");
    assert!(
        lost.last_confirmed().is_some() && lost.lease_ended().is_none(),
        "{lost}"
    );
}

/// Whether the end was noticed before or is by the release.
async fn a_release_over_a_killed_connection_says_so(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    let guard = Locker::new(fixture.backend()).lock("a").acquire().await.unwrap();
    let watch = guard.watch();
    observer.kill_holder("a").await;
    until("ended by the server", async || observer.holder("a").await.is_none()).await;
    let released = soon("released", guard.release()).await.unwrap_err();
    assert!(released.is_lost(), "{released:?}");
    let lock_core::Ended::Lost(lost) = soon("ended", watch.ended()).await else {
        panic!("it was lost before it was released");
    };
    assert_eq!(lost.cause(), LostCause::Disconnected);
    let error = lost.error().expect("the connection broke");
    assert!(released.to_string().ends_with(&error.to_string()), "{released}");
}

#[testbed::test]
async fn a_server_that_was_killed_is_an_end_of_the_connection() {
    let fixture = Fixture::own().await;
    let guard = Locker::new(fixture.backend()).lock("a").acquire().await.unwrap();
    fixture.server.kill().unwrap();
    let lost = soon("lost", guard.lost()).await;
    assert_eq!(lost.cause(), LostCause::Disconnected);
    let error = lost.error().expect("the connection broke");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

async fn a_deleted_row_is_what_the_server_says(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    let config = fixture.config().with_strategy(Strategy::Lease);
    let locks = Locker::new(LeaseTableBackend::new(config).unwrap()).with_ttl(secs(3));
    // If the machine stands still for the TTL, the lease ends first.
    in_some_run("the server's answer is not the cause", async || {
        let guard = locks.lock("a").acquire().await.unwrap();
        observer.run(&format!("DELETE FROM {}_leases", fixture.table)).await;
        let lost = soon("lost", guard.lost()).await;
        if lost.cause() == LostCause::Expired {
            return Err(lost);
        }
        assert_eq!(lost.cause(), LostCause::NotHeld, "{lost}");
        assert!(lost.error().is_none() && lost.last_confirmed().is_some(), "{lost}");
        Ok(())
    })
    .await;
}

async fn a_changed_password_is_named(server: Server) {
    let fixture = Fixture::on(server);
    let mut observer = fixture.observer().await;
    let user = format!("user_{}", fixture.table);
    observer
        .run(&format!(
            "CREATE USER '{user}'@'%' IDENTIFIED BY 'old';\
             GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON app.* TO '{user}'@'%'"
        ))
        .await;
    let url = format!("mysql://{user}:old@{}/app", fixture.server.address());
    let config = MySqlConfig::from_url(&url).unwrap().with_strategy(Strategy::Lease);
    let backend = LeaseTableBackend::new(config.with_table(&fixture.table)).unwrap();
    let locks = Locker::new(backend).with_ttl(secs(3));
    let newest = format!("SELECT COALESCE(MAX(ID), 0) FROM information_schema.PROCESSLIST WHERE USER='{user}'");
    // If the machine stands still for the TTL, no dial is refused before the lease ends.
    in_some_run("the refusal is not the error", async || {
        observer
            .run(&format!("ALTER USER '{user}'@'%' IDENTIFIED BY 'old'"))
            .await;
        let guard = locks.lock("a").acquire().await.unwrap();
        observer
            .run(&format!("ALTER USER '{user}'@'%' IDENTIFIED BY 'new'"))
            .await;
        loop {
            let connection = observer.number(&newest).await;
            if connection == 0 {
                break;
            }
            // It may have ended by itself.
            observer.try_run(&format!("KILL CONNECTION {connection}")).await;
        }
        let lost = soon("lost", guard.lost()).await;
        assert_eq!(lost.cause(), LostCause::Expired, "{lost}");
        if lost.error().is_none_or(|error| error.kind() != ErrorKind::Denied) {
            return Err(lost);
        }
        assert!(lost.to_string().contains("refuses the login"), "{lost}");
        Ok(())
    })
    .await;
}
