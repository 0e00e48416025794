//! A master, its replicas and Sentinels, through every control. Needs the servers: `cargo xtask servers --install`.

use std::panic::Location;

use testbed::{Redis, in_some_run};

#[testbed::test]
async fn a_master_is_replaced_when_it_is_killed_or_cut_off_and_when_somebody_says_so() {
    in_some_run("another server leads", replaced).await;
}

/// The error is a server that leads in place of the one that should. If the machine stands still, the Sentinels replace a master too.
async fn replaced() -> Result<(), String> {
    let watched = Redis::new().start_watched(2).await.expect("it starts");
    is(watched.master().await.expect("there is one"), 0)?;
    assert!(
        watched.url().starts_with("redis+sentinel://127.0.0.1:"),
        "{}",
        watched.url()
    );

    let second = watched.fail_over().await.expect("it is replaced");
    assert_ne!(second, 0);
    is(watched.settled().await.expect("the first follows"), second)?;

    let redis = watched.redis();
    let isolated = watched.isolate(second).await.expect("it answers");
    let third = watched.master_after(second).await.expect("it is replaced");
    redis.call(second, &["PING"]).await.expect_err("nobody gets in");
    isolated.heal().expect("it answers");
    is(watched.settled().await.expect("it follows"), third)?;

    redis[third].kill().expect("it is ours");
    let fourth = watched.master_after(third).await.expect("it is replaced");
    redis[third].restart().await.expect("it starts again");
    is(watched.settled().await.expect("it follows"), fourth)
}

#[track_caller]
fn is(leads: usize, expected: usize) -> Result<(), String> {
    match leads == expected {
        true => Ok(()),
        false => Err(format!("{leads} in place of {expected}, at {}", Location::caller())),
    }
}
