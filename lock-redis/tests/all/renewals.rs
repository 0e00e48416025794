//! Renewals that are asked for at the same time: one script call for many holds, and an answer for each.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::backend::{Hold, Mode, Permits, Renewal};
use lock_core::{ErrorKind, Result};
use lock_redis::{RedisBackend, RedisConfig};

use crate::support::{
    AT_MOST, Fixture, Proxied, SECOND, TTL, eventually, granted, in_the_end, name, release, request_in, shown, take,
};

/// The most holds in one call.
const MOST: u64 = 100;

const LONGER: Duration = Duration::from_secs(600);

/// Holds of names that begin with `held/`.
async fn take_many(backend: &RedisBackend, count: usize) -> Vec<Arc<dyn Hold>> {
    let names: Vec<String> = (0..count).map(|number| format!("held/{number}")).collect();
    join_all(names.iter().map(|name| take(backend, name))).await
}

async fn renew_all(holds: &[Arc<dyn Hold>], ttl: Duration) -> Vec<Result<Renewal>> {
    join_all(holds.iter().map(|hold| hold.renew(ttl))).await
}

fn is_renewed(answer: &Result<Renewal>) -> bool {
    matches!(answer, Ok(Renewal::Renewed(_)))
}

fn is_lost(answer: &Result<Renewal>) -> bool {
    matches!(answer, Ok(Renewal::Lost))
}

#[testbed::test]
async fn many_go_out_in_calls_of_a_hundred_behind_the_first() {
    let fixture = Fixture::new().await;
    let holds = take_many(&fixture.backend(), 250).await;
    let before = fixture.scripts_run().await;
    let answers = renew_all(&holds, LONGER).await;
    assert!(answers.iter().all(is_renewed), "{answers:?}");
    assert_eq!(fixture.scripts_run().await - before, 1 + 249_u64.div_ceil(MOST));
    for number in 0..250 {
        assert!(fixture.rest(&format!("held/{number}")).await > TTL, "{number}");
    }
}

#[testbed::test]
async fn each_has_its_own_answer() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let mut holds = take_many(&backend, 5).await;
    fixture.expire("held/1").await;
    let other = take(&backend, "held/1").await;
    fixture.expire("held/2").await;
    let _: () = fixture.raw(&["DEL", &fixture.lock_key("held/3")]).await;
    let _: () = fixture.raw(&["LPUSH", &fixture.lock_key("held/3"), "another's"]).await;
    let _: bool = fixture.raw(&["PERSIST", &fixture.lock_key("held/4")]).await;
    let permits = Mode::Permits(Permits::new(1, 2).expect("no more than there are"));
    for (mode, name) in [
        (Mode::Shared, "shared"),
        (Mode::Upgradable, "upgradable"),
        (permits, "permits"),
    ] {
        holds.push(granted(&backend, &request_in(mode, name).0).await);
    }
    let downgraded = take(&backend, "downgraded").await;
    assert!(is_renewed(&downgraded.downgrade(TTL).await));
    holds.push(downgraded);

    let before = fixture.scripts_run().await;
    let answers = renew_all(&holds, LONGER).await;
    let run = fixture.scripts_run().await - before;
    // The first goes out at once, alone.
    let (together, alone, lost) = (1, 1 + 4, 3);
    // Each that is lost asks whether it was revoked, by a script that the server may have to be given.
    let asked = together + alone + lost..=together + alone + 2 * lost;
    assert!(asked.contains(&run), "those that are shared go alone: {run}");
    let renewed: Vec<bool> = answers.iter().map(is_renewed).collect();
    assert_eq!(
        renewed,
        [true, false, false, false, true, true, true, true, true],
        "{answers:?}"
    );
    assert!(answers[1..4].iter().all(is_lost), "{answers:?}");
    for name in ["held/0", "shared", "upgradable", "permits", "downgraded"] {
        assert!(fixture.rest(name).await > TTL, "{name}");
    }
    assert!(fixture.rest("held/1").await <= TTL, "it is another's");
    assert!(release(&other).await);
    let left: i64 = fixture.raw(&["PTTL", &fixture.lock_key("held/4")]).await;
    assert_eq!(left, -1, "it has no end");
}

#[testbed::test]
async fn a_ttl_is_each_hold_s_and_never_moves_an_end_back() {
    let fixture = Fixture::new().await;
    let holds = take_many(&fixture.backend(), 2).await;
    let (longer, shorter) = tokio::join!(holds[0].renew(LONGER), holds[1].renew(SECOND));
    assert!(is_renewed(&longer) && is_renewed(&shorter));
    assert!(fixture.rest("held/0").await > TTL);
    let rest = fixture.rest("held/1").await;
    assert!(rest > SECOND && rest <= TTL, "{rest:?}");
}

#[testbed::test]
async fn one_alone_is_sent_as_it_always_was() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let before = fixture.scripts_run().await;
    assert!(is_renewed(&hold.renew(LONGER).await));
    assert_eq!(fixture.scripts_run().await - before, 1);
    assert!(fixture.rest("a").await > TTL);
}

#[testbed::test]
async fn one_that_is_dropped_before_it_was_sent_is_not_sent() {
    let fixture = Fixture::new().await;
    let holds = take_many(&fixture.backend(), 3).await;
    let mut first = Box::pin(holds[0].renew(LONGER));
    assert!(first.as_mut().now_or_never().is_none());
    let mut dropped = Box::pin(holds[1].renew(LONGER));
    assert!(
        dropped.as_mut().now_or_never().is_none(),
        "the connection's task sends it"
    );
    let mut third = Box::pin(holds[2].renew(LONGER));
    assert!(third.as_mut().now_or_never().is_none());
    drop(dropped);
    assert!(is_renewed(&first.await) && is_renewed(&third.await));
    assert!(fixture.rest("held/1").await <= TTL);
    assert!(fixture.rest("held/2").await > TTL);
}

#[testbed::test]
async fn one_that_is_dropped_after_it_was_sent_takes_no_other_along() {
    let fixture = Fixture::new().await;
    let patient = |config: RedisConfig| config.with_response_timeout(AT_MOST);
    let Proxied { proxy, backend } = Proxied::new(&fixture, patient).await;
    let holds = take_many(&backend, 3).await;
    proxy.hold_answers();
    let first = tokio::spawn({
        let hold = holds[0].clone();
        async move { hold.renew(LONGER).await }
    });
    let second = tokio::spawn({
        let hold = holds[1].clone();
        async move { hold.renew(LONGER).await }
    });
    eventually("it was executed", async || fixture.rest("held/1").await > TTL).await;
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    proxy.let_go();
    let second = second.await.expect("no panic");
    assert!(is_renewed(&second), "{second:?}");
}

#[testbed::test]
async fn a_connection_that_ends_makes_all_of_them_unavailable_and_the_next_ones_work() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config).await;
    let holds = take_many(&backend, 3).await;
    proxy.hold_answers();
    let renewing = tokio::spawn({
        let holds = holds.clone();
        async move { renew_all(&holds, LONGER).await }
    });
    eventually("they were executed", async || fixture.rest("held/2").await > TTL).await;
    proxy.cut();
    for answer in renewing.await.expect("no panic") {
        let error = answer.expect_err("no answer came");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", shown(&error));
    }
    proxy.let_go();
    for hold in &holds {
        assert!(matches!(
            in_the_end(async || hold.renew(LONGER).await).await,
            Renewal::Renewed(_)
        ));
    }
}

#[testbed::test]
async fn a_server_that_has_forgotten_the_script_is_given_it() {
    let fixture = Fixture::new().await;
    let holds = take_many(&fixture.backend(), 3).await;
    let _: () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
    assert!(renew_all(&holds, LONGER).await.iter().all(is_renewed));
}

#[testbed::test]
async fn what_is_refused_together_is_asked_one_by_one() {
    let Some(fixture) = Fixture::own().await else { return };
    let holds = take_many(&fixture.backend(), 3).await;
    // The user may not read one of the keys any more.
    let keys: Vec<String> = ["held/0", "held/2"]
        .map(|name| format!("~*{}*", fixture.lock_key(name)))
        .into();
    let rules = ["ACL", "SETUSER", "default", "resetkeys", &keys[0], &keys[1]];
    let _: () = fixture.raw(&rules).await;
    let answers = renew_all(&holds, LONGER).await;
    assert!(is_renewed(&answers[0]) && is_renewed(&answers[2]), "{answers:?}");
    let error = answers[1].as_ref().expect_err("not permitted");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", shown(error));
    assert_eq!(error.name(), Some(&name("held/1")));
}
