//! What keeps a hold when the master is replaced: replicas that acknowledged it, or a master that waits.

use std::sync::Arc;
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::{Attempt, DistributedLock, Hold, Renewal};
use lock_redis::{RedisBackend, RedisConfig};

use super::Fixture;
use crate::restart_delay::assert_delayed;
use crate::support::{
    TTL, granted, in_the_end, in_the_end_granted, in_the_end_released, release, request, with_config,
};

/// Of fail-overs on a busy machine, and of holds that live through them.
const DELAY: Duration = Duration::from_secs(300);
const LIVES: Duration = Duration::from_secs(250);

#[testbed::test]
async fn a_hold_that_the_only_replica_acknowledged_survives_any_failover() {
    let fixture = Fixture::new(1).await;
    let redis = fixture.watched.redis();
    let acknowledged = || with_config(fixture.config().with_replicas(1));
    let (backend, other) = (acknowledged(), acknowledged());
    in_the_end(async || other.connect().await).await;
    let key = format!("{}a", fixture.prefix);
    for fault in ["kill", "failover"] {
        let master = fixture.watched.settled().await.expect("all is well");
        let hold = taken(&backend, "a").await;
        let replica = 1 - master;
        assert_ne!(fixture.raw(replica, &["GET", &key]).await, "", "it has it at once");
        match fault {
            "kill" => {
                redis[master].kill().expect("it is ours");
                fixture.watched.master_after(master).await.expect("it is replaced");
                redis[master].restart().await.expect("it starts again");
            }
            _ => drop(fixture.watched.fail_over().await.expect("it is replaced")),
        }
        // As soon as the former master follows: until then nobody acknowledges anything.
        let renewed = in_the_end(async || hold.renew(LIVES).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{fault}: {renewed:?}");
        let attempt = in_the_end(async || other.acquire(&request("a", TTL).0).await).await;
        assert!(matches!(attempt, Attempt::Busy(_)), "{fault}: {attempt:?}");
        let token = hold.token();
        in_the_end_released(&hold).await;
        let next = taken(&other, "a").await;
        assert!(next.token() > token, "{fault}");
        in_the_end_released(&next).await;
    }
}

async fn taken(backend: &RedisBackend, name: &str) -> Arc<dyn Hold> {
    in_the_end_granted(backend, &request(name, LIVES).0).await
}

/// Its clients still reach it, but nobody follows it any more.
#[testbed::test]
async fn a_master_that_is_cut_off_grants_nothing_that_no_replica_acknowledges() {
    let fixture = Fixture::new(1).await;
    let master = fixture.watched.redis()[0].address().to_owned();
    let direct = RedisConfig::from_url(&format!("redis://{master}")).expect("a good URL");
    // It hears of nothing, since it is connected to no Sentinel.
    let cut_off = with_config(direct.with_prefix(&fixture.prefix).with_replicas(1));
    let (kept, _control) = request("a", LIVES);
    let hold = in_the_end_granted(&cut_off, &kept).await;
    let isolated = fixture.watched.isolate(0).await.expect("it answers");
    for name in ["a", "b"] {
        let (asked, _control) = request(name, TTL);
        match cut_off.acquire(&asked).await {
            Ok(Attempt::Busy(_)) if name == "a" => {}
            answer => {
                let error = answer.expect_err("nobody has acknowledged it");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
            }
        }
    }
    let error = hold.renew(2 * LIVES).await.expect_err("nobody has acknowledged it");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    assert!(kept.lease().valid_for() <= LIVES, "the renewal does not count");

    // The next master has it, for as long as it counts.
    fixture.watched.master_after(0).await.expect("it is replaced");
    let other = fixture.backend();
    let attempt = in_the_end(async || other.acquire(&request("a", TTL).0).await).await;
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
    isolated.heal().expect("it answers");
}

#[testbed::test]
async fn a_promoted_replica_waits_and_has_live_holds_put_back() {
    let fixture = Fixture::new(1).await;
    let redis = fixture.watched.redis();
    let delayed = || with_config(fixture.config().with_restart_delay(DELAY));
    in_the_end(async || delayed().connect().await).await;
    fixture.age_mark(0).await;
    let backend = delayed();
    let take = async |name: &str| granted(&backend, &request(name, LIVES).0).await;
    let kept = take("kept").await;
    fixture.replicated(1, "kept").await;

    // The replica does not hear of this one.
    redis[1].pause().expect("it runs");
    fixture.raw(0, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    let forgotten = take("forgotten").await;
    let key = format!("{}forgotten", fixture.prefix);
    let value = fixture.raw(0, &["GET", &key]).await;
    redis[0].kill().expect("it is ours");
    redis[1].resume().expect("it is paused");
    fixture.watched.master_after(0).await.expect("it is replaced");
    assert_eq!(fixture.raw(1, &["GET", &key]).await, "", "it never heard of it");

    let other = delayed();
    in_the_end(async || other.connect().await).await;
    for name in ["forgotten", "free"] {
        let answer = other.acquire(&request(name, LIVES).0).await;
        assert_delayed(&answer.expect_err("it is too early"));
    }
    for hold in [&kept, &forgotten] {
        let renewed = in_the_end(async || hold.renew(LIVES).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    assert_eq!(fixture.raw(1, &["GET", &key]).await, value, "with the same token");

    // As if the delay were over.
    fixture.age_mark(1).await;
    let later = delayed();
    let attempt = later.acquire(&request("forgotten", LIVES).0).await.expect("an answer");
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
    let token = forgotten.token();
    assert!(release(&forgotten).await && release(&kept).await);
    let next = granted(&later, &request("forgotten", LIVES).0).await;
    assert!(next.token() > token, "tokens grow over the loss");
    assert!(release(&next).await);
}
