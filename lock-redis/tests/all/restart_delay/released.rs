//! What ends a hold that the server has forgotten, before a renewal has put it back.

use std::sync::Arc;

use lock_core::Locker;
use lock_core::backend::{DistributedLock, Hold, Mode, ReleaseOptions, ReleaseOutcome};

use super::{TTL, age_mark, delayed, take_for, trusted};
use crate::support::{Fixture, granted, in_the_end};

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
    let later = delayed(&fixture, super::DELAY);
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
