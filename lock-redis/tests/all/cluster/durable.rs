//! What keeps a hold when a master is replaced: a replica that acknowledged it, or a master that waits.

use std::time::Duration;

use lock_core::backend::{Attempt, DistributedLock, Renewal};

use super::Fixture;
use crate::restart_delay::assert_delayed;
use crate::support::{
    TTL, granted, in_the_end, in_the_end_granted, in_the_end_released, release, request, with_config,
};

/// Of holds that live through a fail-over on a busy machine.
const LIVES: Duration = Duration::from_secs(250);

#[testbed::test]
async fn a_hold_that_the_only_replica_of_its_master_acknowledged_survives_any_failover() {
    let fixture = Fixture::own(true).await;
    let backend = with_config(fixture.config().with_replicas(1));
    let (of, elsewhere) = (fixture.name_on(0).await, fixture.name_on(1).await);
    let slot = fixture.slot(&of).await;
    in_the_end(async || backend.connect().await).await;
    // Without its replica it grants nothing.
    fixture.cluster[3].pause().expect("it runs");
    let (asked, _control) = request(&of, TTL);
    let error = backend.acquire(&asked).await;
    let error = error.expect_err("nobody has acknowledged it");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    backend.abandon(&asked).await.expect("an answer");
    // Those of other masters do not count, and it does not count for those.
    let hold = in_the_end_granted(&backend, &request(&elsewhere, TTL).0).await;
    assert!(release(&hold).await);
    fixture.cluster[3].resume().expect("it is paused");

    let hold = in_the_end_granted(&backend, &request(&of, LIVES).0).await;
    fixture.cluster[0].kill().expect("it is ours");
    assert_eq!(fixture.cluster.master_of(slot).await.expect("it has one"), 3);
    fixture.cluster[0].restart().await.expect("it comes back");
    // As soon as the former master follows: until then nobody acknowledges anything.
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    let attempt = in_the_end(async || fixture.backend().acquire(&request(&of, TTL).0).await).await;
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
    in_the_end_released(&hold).await;
}

#[testbed::test]
async fn a_promoted_replica_waits_and_has_live_holds_put_back() {
    let fixture = Fixture::own(true).await;
    let backend = fixture.trusting(&[0, 1, 2]).await;
    let (of, elsewhere) = (fixture.name_on(0).await, fixture.name_on(1).await);
    let slot = fixture.slot(&of).await;
    // The replica does not hear of this one.
    fixture.cluster[3].pause().expect("it runs");
    fixture.call(0, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    let forgotten = granted(&backend, &request(&of, LIVES).0).await;
    let value = fixture.call(0, &["GET", &fixture.key(&of)]).await;
    fixture.cluster[0].kill().expect("it is ours");
    fixture.cluster[3].resume().expect("it is paused");
    assert_eq!(fixture.cluster.master_of(slot).await.expect("it has one"), 3);
    assert_eq!(
        fixture.call(3, &["GET", &fixture.key(&of)]).await,
        "",
        "it never heard of it"
    );

    let other = with_config(fixture.delayed());
    let asked = async |name: &str| {
        in_the_end(async || match other.acquire(&request(name, LIVES).0).await {
            Err(error) if error.to_string().contains("(restart_delay)") => Ok(Err(error)),
            answer => answer.map(Ok),
        })
        .await
    };
    assert_delayed(&asked(&of).await.expect_err("it is too early"));
    // The other masters have forgotten nothing.
    match asked(&elsewhere).await {
        Ok(Attempt::Granted(hold, _)) => in_the_end_released(&hold).await,
        // On a busy machine, its master may have been taken for dead, too.
        other => {
            let slot = fixture.cluster.slot_of(&fixture.key(&elsewhere)).await;
            let master = fixture.cluster.master_of(slot.expect("an answer")).await;
            assert_ne!(master.expect("it has one"), 1, "{other:?}");
        }
    }

    let renewed = in_the_end(async || forgotten.renew(LIVES).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert_eq!(
        fixture.call(3, &["GET", &fixture.key(&of)]).await,
        value,
        "with the same token"
    );

    // As if the delay were over.
    let later = fixture.trusting(&[3]).await;
    let attempt = in_the_end(async || later.acquire(&request(&of, LIVES).0).await).await;
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
    let token = forgotten.token();
    assert!(release(&forgotten).await);
    let next = granted(&later, &request(&of, LIVES).0).await;
    assert!(next.token() > token, "tokens grow over the loss");
    assert!(release(&next).await);
}
