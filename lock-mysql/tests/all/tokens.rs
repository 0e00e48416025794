//! Tokens grow, whatever happens to the row.

use lock_core::FencingToken;

use crate::support::*;

/// Far enough ahead of the clock that no test catches up with it.
const AHEAD: u64 = 3_600_000_000;
/// From one grant's token to the next one's, where the clock is behind: those in between are reserved for passes.
const STEP: u64 = 17;

#[testbed::test]
async fn tokens_grow_over_releases_rollbacks_and_deletion() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let mut last = 0;
    for end in ["release", "kill", "delete", "drop", "release"] {
        let granted = soon("granted", ask(&backend, options("a", secs(10)))).await.unwrap();
        assert!(granted.token() > last, "after {end}");
        last = granted.token();
        match end {
            "release" => drop(granted.release().await),
            "kill" => {
                observer.kill_holder("a").await;
                soon("lost", granted.request.lease().ended()).await;
            }
            _ => {
                granted.release().await;
                let what = if end == "delete" { "DELETE FROM" } else { "DROP TABLE" };
                observer.run(&format!("{what} {}", fixture.table)).await;
            }
        }
    }
}

#[testbed::test]
async fn a_token_is_above_its_floor() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let now = fixture.observer().await.number("UNIX_TIMESTAMP()*1000000").await;
    let floor = FencingToken::new(now + AHEAD).unwrap();
    let granted = ask(&backend, options("a", secs(10)).token_above(floor)).await.unwrap();
    assert_eq!(granted.token(), floor.as_u64() + 1);
    granted.release().await;
    assert_eq!(grant(&backend, "a", secs(10)).await.token(), floor.as_u64() + 1 + STEP);
}

#[testbed::test]
async fn a_token_ahead_of_the_clock_survives_a_rollback() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let first = grant(&backend, "a", secs(10)).await;
    first.release().await;
    // As a clock that was set back leaves it.
    observer
        .run(&format!("UPDATE {} SET token=token+{AHEAD}", fixture.table))
        .await;
    let mut last = first.token() + AHEAD;
    for _ in 0..3 {
        let granted = soon("granted", ask(&backend, options("a", secs(60)))).await.unwrap();
        assert_eq!(granted.token(), last + STEP);
        last = granted.token();
        assert!(granted.request.lease().valid_for() > secs(30));
        observer.kill_holder("a").await;
        soon("lost", granted.request.lease().ended()).await;
    }
    let status = observer.number(&format!("SELECT token FROM {}", fixture.table)).await;
    assert_eq!(status, first.token() + AHEAD, "the rolled back ones are not in the row");
}
