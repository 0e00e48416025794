//! What ends a hold that the server has forgotten, before a renewal has put it back.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Locker;
use lock_core::backend::{DistributedLock, Hold, Mode, ReleaseOptions, ReleaseOutcome};

use super::{DELAY, TTL, age_mark, delayed, mark, take_for, trusted};
use crate::support::{Fixture, Proxied, SECOND, eventually, granted, in_the_end, request};

async fn released(hold: &Arc<dyn Hold>) -> ReleaseOutcome {
    in_the_end(async || hold.release(ReleaseOptions::default()).await).await
}

/// Nobody else can have been granted it.
#[testbed::test]
async fn a_release_of_a_hold_that_was_forgotten_is_one() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let alone = take_for(&backend, "alone", TTL).await;
    let mut shared = Vec::new();
    for mode in [Mode::Shared, Mode::Upgradable] {
        let (asked, control) = super::options("shared", mode).start();
        shared.push((granted(&backend, &asked).await, control));
    }
    let guard = Locker::new(backend.clone()).lock("guarded").ttl(TTL).acquire().await;
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;

    for hold in [&alone, &shared[0].0, &shared[1].0] {
        assert_eq!(released(hold).await, ReleaseOutcome::Released);
    }
    guard.expect("a grant").release().await.expect("it was not lost");

    // What is released is not put back later.
    age_mark(&fixture).await;
    let later = delayed(&fixture, DELAY);
    for name in ["alone", "shared", "guarded"] {
        let hold = take_for(&later, name, TTL).await;
        assert!(hold.token() > alone.token(), "tokens grow over the loss");
        assert_eq!(released(&hold).await, ReleaseOutcome::Released);
    }
}

#[testbed::test]
async fn a_release_of_a_hold_that_somebody_else_had_is_none() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let (foreign, overtaken, deleted) = (
        take_for(&backend, "foreign", TTL).await,
        take_for(&backend, "overtaken", TTL).await,
        take_for(&backend, "deleted", TTL).await,
    );
    // While nothing says that the server has forgotten any.
    let _: u64 = fixture.raw(&["DEL", &fixture.lock_key("deleted")]).await;
    assert_eq!(released(&deleted).await, ReleaseOutcome::AlreadyLost);
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    let _: () = fixture.raw(&["SET", &fixture.lock_key("foreign"), "theirs"]).await;
    // A process without the delay had it in between.
    let careless = take_for(&fixture.backend(), "overtaken", TTL).await;
    assert_eq!(released(&careless).await, ReleaseOutcome::Released);
    in_the_end(async || backend.connect().await).await;
    for hold in [foreign, overtaken] {
        assert_eq!(released(&hold).await, ReleaseOutcome::AlreadyLost);
    }
    assert_eq!(fixture.value("foreign").await, "theirs");
}

#[testbed::test]
async fn a_release_that_is_cut_off_keeps_the_name_for_no_longer_than_the_ttl() {
    const TTL: Duration = SECOND.saturating_mul(9);
    let fixture = Fixture::new().await;
    let _ = trusted(&fixture).await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config.with_restart_delay(DELAY)).await;
    let (asked, _control) = request("a", TTL);
    let hold = granted(&backend, &asked).await;
    let other = take_for(&backend, "b", TTL).await;
    // As a server that has forgotten all of them.
    let [a, b] = ["a", "b"].map(|name| fixture.lock_key(name));
    let _: u64 = fixture.raw(&["DEL", &a, &b, &mark(&fixture)]).await;
    proxy.cut();
    // After that, the server knows the script.
    assert_eq!(released(&other).await, ReleaseOutcome::Released);
    let id = asked.holder().to_string();
    // With nothing after the first request, which puts the hold back.
    proxy.swallow_after(&id);
    let releasing = tokio::spawn(async move { hold.release(ReleaseOptions::default()).await });
    eventually("it is put back", async || fixture.value("a").await.starts_with(&id)).await;
    let rest = fixture.rest("a").await;
    assert!(rest <= TTL, "{rest:?}");
    proxy.let_go();
    let outcome = releasing.await.expect("no panic").expect("an answer");
    assert_eq!(outcome, ReleaseOutcome::Released);
    assert_eq!(fixture.value("a").await, "");
}
