//! Whether an error says that the server certainly did nothing: after any other one the outcome is unknown.

use std::time::Duration;

use lock_core::backend::{DistributedLock, Hold, ReleaseOptions};
use lock_core::{Error, ErrorKind, Locker, Release};
use lock_redis::RedisBackend;
use tokio::task::JoinHandle;

use crate::support::waiter::Waiter;
use crate::support::{
    Fixture, Proxied, TTL, connect, eventually, granted, in_the_end, in_the_end_granted, refused, release, request,
    take, with_config,
};

async fn refused_release(hold: &dyn Hold) -> Error {
    hold.release(ReleaseOptions::default())
        .await
        .expect_err("it is refused")
}

/// A hold of which a release, a renewal and an acquire of another lock were refused as a whole.
async fn all_refused(fixture: &Fixture, backend: &RedisBackend, hold: &dyn Hold) {
    let value = fixture.value("a").await;
    for error in [
        refused_release(hold).await,
        hold.renew(TTL).await.map(drop).expect_err("it is refused"),
        refused(backend, "b").await,
    ] {
        assert!(error.is_not_executed(), "{error:?}");
    }
    assert_eq!(fixture.value("a").await, value, "the hold is as it was");
}

#[testbed::test]
async fn a_server_that_writes_nothing_at_the_moment_did_nothing() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let _: () = fixture.raw(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    all_refused(&fixture, &backend, &*hold).await;
    let _: () = fixture.raw(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_busy_server_did_nothing() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let _: () = fixture.raw(&["CONFIG", "SET", "busy-reply-threshold", "1"]).await;
    let mut other = connect(&fixture.server.url()).await;
    let busy: JoinHandle<redis::RedisResult<()>> = tokio::spawn(async move {
        let mut endless = redis::cmd("EVAL");
        endless.arg("while true do end").arg(0).query_async(&mut other).await
    });
    eventually("it is busy", async || {
        let ping = fixture.try_raw::<String>(&["PING"]).await;
        ping.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let error = refused_release(&*hold).await;
    assert!(error.is_not_executed(), "{error:?}");
    let error = backend.server_id().await.expect_err("it does not say");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let _: () = fixture.raw(&["SCRIPT", "KILL"]).await;
    busy.await.expect("no panic").expect_err("it was killed");
    assert!(backend.server_id().await.expect("an answer").is_some());
    assert!(release(&hold).await);
}

#[testbed::test]
async fn what_was_never_sent_was_not_executed() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config).await;
    let (wanted, _control) = request("a", TTL);
    let hold = granted(&backend, &wanted).await;
    proxy.lead_to("127.0.0.1:1");
    proxy.cut();
    eventually("it has noticed", async || {
        wanted.lease().state() == lock_core::HoldState::Suspect
    })
    .await;
    all_refused(&fixture, &backend, &*hold).await;
}

#[testbed::test]
async fn what_was_not_answered_may_have_been_executed() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let hold = in_the_end_granted(&backend, &request("a", TTL).0).await;
    proxy.hold_answers();
    let error = refused_release(&*hold).await;
    assert!(!error.is_not_executed(), "{error:?}");
    eventually("it was released", async || !fixture.exists("a").await).await;
    in_the_end(async || backend.connect().await).await;
}

#[testbed::test]
async fn a_script_that_failed_half_way_has_done_its_first_half() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    // Somebody waits, whom this user may not tell.
    let rules = fixture.config().acl_rules();
    let rules = rules.iter().filter(|rule| *rule != "+publish").map(String::as_str);
    let command: Vec<&str> = ["ACL", "SETUSER", "mute", "reset", "on", ">pw"]
        .into_iter()
        .chain(rules)
        .collect();
    let _: () = fixture.raw(&command).await;
    let config = fixture.config().with_user("mute").with_password("pw");
    let mute = with_config(config);
    let (wanted, _control) = request("a", TTL);
    let hold = granted(&mute, &wanted).await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", Duration::from_secs(6)).await;
    let error = refused_release(&*hold).await;
    assert!(!error.is_not_executed(), "{error:?}");
    assert!(
        !fixture.value("a").await.starts_with(&wanted.holder().to_string()),
        "it is released"
    );
    // It looks by itself.
    let next = waiter.granted().await;
    assert!(release(&next).await);
}

/// The hold has gone and somebody else has the lock, and the server refuses the first release.
#[testbed::test]
async fn a_refused_release_does_not_excuse_that_somebody_else_has_the_lock() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let locks = Locker::new(fixture.backend());
    let guard = locks.lock("a").ttl(TTL).acquire().await.expect("a grant");
    let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
    let successor = take(&fixture.backend(), "a").await;
    let _: () = fixture.raw(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let releasing = tokio::spawn(guard.release());
    eventually("it was refused", async || {
        let errors: String = fixture.raw(&["INFO", "errorstats"]).await;
        errors.contains("errorstat_NOREPLICAS:")
    })
    .await;
    let _: () = fixture.raw(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    let released: Result<Release, Error> = releasing.await.expect("no panic");
    assert!(released.is_err_and(|error| error.is_lost()));
    assert!(release(&successor).await);
}
