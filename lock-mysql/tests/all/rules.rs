//! Triggers and constraints that somebody has added to the lock tables.

use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, ReleaseOutcome, Renewal};
use lock_mysql::{LeaseTableBackend, Strategy};
use testbed::Server;

use crate::support::*;

on_both_servers!(an_error_names_the_table_whose_trigger_refuses);

/// What a trigger does, and what the error says of it. The last two meet errors that statements of ours may meet as well.
const TRIGGERS: [(&str, &str); 3] = [
    (
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='not on Sundays'",
        "not on Sundays",
    ),
    ("INSERT INTO missing_audit VALUES (1)", "missing_audit"),
    (
        "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO=1213,MESSAGE_TEXT='no deadlock'",
        "no deadlock",
    ),
];

async fn an_error_names_the_table_whose_trigger_refuses(server: Server) {
    let fixture = Fixture::on(server);
    let leases = LeaseTableBackend::new(fixture.config().with_strategy(Strategy::Lease)).unwrap();
    check(&fixture, &fixture.backend(), &fixture.table).await;
    check(&fixture, &leases, &format!("{}_leases", fixture.table)).await;
}

async fn check(fixture: &Fixture, backend: &impl DistributedLock, table: &str) {
    let mut observer = fixture.observer().await;
    let pair = async || {
        let granted = grant(backend, "a", secs(60)).await;
        assert_eq!(granted.release().await, ReleaseOutcome::Released);
    };
    let said = |error: &lock_core::Error| format!("{error} {}", error.cause().unwrap());
    pair().await;
    for (does, says) in TRIGGERS {
        let granted = grant(backend, "held", secs(60)).await;
        let trigger = format!("CREATE TRIGGER {table}_rule BEFORE UPDATE ON {table} FOR EACH ROW {does}");
        // On a row lock's table it would wait for the hold.
        let is_lease = table != fixture.table;
        if !is_lease {
            assert_eq!(granted.release().await, ReleaseOutcome::Released);
        }
        observer.run(&trigger).await;
        let (request, control) = options("a", secs(60)).waits(false).start();
        let error = backend.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.is_not_executed(), "{error}");
        let text = said(&error);
        assert!(text.contains(&format!("constraint of table `{table}`")), "{text}");
        assert!(text.contains(says), "{text}");
        control.give_up();
        if is_lease {
            // The hold is there, whatever the trigger met.
            let renewed = granted.hold.renew(secs(60)).await.unwrap_err();
            let released = granted.hold.release(Default::default()).await.unwrap_err();
            for error in [renewed, released] {
                assert!(error.to_string().contains(table), "{error}");
            }
            assert!(backend.status(&name("held")).await.unwrap().is_held());
        }
        observer.run(&format!("DROP TRIGGER {table}_rule")).await;
        if is_lease {
            let renewed = granted.hold.renew(secs(60)).await.unwrap();
            assert!(matches!(renewed, Renewal::Renewed(_)));
            assert_eq!(granted.release().await, ReleaseOutcome::Released);
        }
        pair().await;
    }
}
