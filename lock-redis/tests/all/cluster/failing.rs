//! Masters that fail, on a cluster with replicas.

use std::error::Error as StdError;
use std::pin::pin;

use futures_util::FutureExt;
use lock_core::backend::{DistributedLock, Renewal};
use lock_core::{Error, ErrorKind, HoldState};
use tokio::time::timeout;

use super::Fixture;
use crate::support::{
    AT_MOST, LONG, SECOND, TTL, explained, granted, in_the_end, in_the_end_granted, in_the_end_released, name, refused,
    release, request, take, with_config,
};

#[testbed::test]
async fn a_replica_takes_over() {
    let fixture = Fixture::own(true).await;
    let (holder, backend) = (fixture.backend(), fixture.backend());
    let of = fixture.name_on(0).await;
    let fresh = format!("{{{}}}-fresh", fixture.key(&of));
    // Idle for the whole time.
    let delayed = fixture.trusting(&[0]).await;
    in_the_end_released(&take(&delayed, &fresh).await).await;

    // As before an upgrade: nothing is lost.
    let hold = granted(&holder, &request(&of, LONG).0).await;
    let waiter = fixture.queued(&backend, &of, TTL).await;
    fixture.cluster.fail_over_to(3).await.expect("it takes over");
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    let token = hold.token();
    in_the_end_released(&hold).await;
    let hold = waiter.granted().await;
    assert!(hold.token() > token);
    in_the_end_released(&hold).await;

    // Killed: the write was replicated long ago.
    let hold = in_the_end_granted(&holder, &request(&of, LONG).0).await;
    fixture.call(3, &["WAIT", "1", "0"]).await;
    fixture.cluster[3].kill().expect("it is ours");
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert_eq!(fixture.master_of(&of).await, 0);
    // No request has said to this one that the slots were away.
    let error = refused(&delayed, &fresh).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_not_executed(), "{error:?}");
    assert_eq!(fixture.call(0, &["EXISTS", &fixture.key(&fresh)]).await, "0");
    in_the_end_released(&hold).await;
    fixture.cluster[3].restart().await.expect("it comes back");
    fixture.cluster.until_it_serves().await.expect("it does");

    // It hangs: requests in flight end as soon as another one has its slots.
    let patient = with_config(fixture.config().with_response_timeout(AT_MOST));
    let (kept, _control) = request(&format!("{{{}}}-kept", fixture.key(&of)), LONG);
    let kept_hold = granted(&patient, &kept).await;
    assert_eq!(kept.lease().state(), HoldState::Held);
    fixture.cluster[0].pause().expect("it is ours");
    let hold = timeout(AT_MOST / 2, in_the_end_granted(&patient, &request(&of, TTL).0)).await;
    let hold = hold.expect("it does not wait for the one that hangs");
    // Though its connection may last.
    assert_eq!(kept.lease().state(), HoldState::Suspect);
    drop(kept_hold);
    assert_eq!(patient.status(&name(&of)).await.expect("an answer").holders.len(), 1);
    fixture.cluster[0].resume().expect("it is ours");
    in_the_end_released(&hold).await;
}

/// It keeps its connections, and does not say who has its former slots.
#[testbed::test]
async fn a_former_master_that_has_left_the_cluster_is_left() {
    let fixture = Fixture::own(true).await;
    let backend = fixture.backend();
    let of = fixture.name_on(1).await;
    assert!(release(&take(&backend, &of).await).await);
    fixture.cluster.fail_over_to(4).await.expect("it takes over");
    let id = fixture.call(1, &["CLUSTER", "MYID"]).await;
    fixture.call(1, &["CLUSTER", "RESET"]).await;
    for node in [0, 2, 3, 4, 5] {
        fixture.call(node, &["CLUSTER", "FORGET", &id]).await;
    }
    let hold = in_the_end_granted(&backend, &request(&of, TTL).0).await;
    assert_eq!(fixture.call(4, &["EXISTS", &fixture.key(&of)]).await, "1");
    in_the_end_released(&hold).await;
}

/// Also for a process that has no connection to its former master. All other nodes answer.
#[testbed::test]
async fn the_error_of_a_slot_without_a_master_says_so() {
    let fixture = Fixture::own(false).await;
    let config = fixture.config().with_connect_timeout(SECOND);
    let backend = with_config(config.clone());
    let of = fixture.name_on(1).await;
    in_the_end_released(&in_the_end_granted(&backend, &request(&of, TTL).0).await).await;
    for node in 0..3 {
        let setting = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        fixture.call(node, &setting).await;
    }
    let id = fixture.call(1, &["CLUSTER", "MYID"]).await;
    fixture.call(1, &["FLUSHALL"]).await;
    fixture.call(1, &["CLUSTER", "RESET"]).await;
    for node in [0, 2] {
        fixture.call(node, &["CLUSTER", "FORGET", &id]).await;
    }
    let is_said = |error: &Error| error.to_string().contains("has no master") && error.is_not_executed();
    let is_reply = |reply: &(dyn StdError + 'static)| reply.to_string().to_lowercase().contains("slot not served");
    // With what the former master said.
    let is_explained = |error: &Error| is_said(error) && error.cause().is_some_and(is_reply);
    explained(is_explained, async || refused(&backend, &of).await).await;
    explained(is_said, async || refused(&with_config(config.clone()), &of).await).await;
}

/// The connection to the former master fails, and those to all others were made before.
#[testbed::test]
async fn a_check_leaves_out_a_master_that_has_been_replaced() {
    let fixture = Fixture::own(true).await;
    let backend = fixture.backend();
    backend.connect().await.expect("all serve");
    let of = fixture.name_on(1).await;
    fixture.cluster.fail_over_to(4).await.expect("it takes over");
    // The former master says that of this slot alone.
    let hold = in_the_end_granted(&backend, &request(&of, TTL).0).await;
    fixture.cluster[1].kill().expect("it is ours");
    backend.connect().await.expect("all masters serve");
    in_the_end_released(&hold).await;
}

/// Another request learns meanwhile that one slot has moved, and not who has all others.
#[testbed::test]
async fn a_check_leaves_out_a_replaced_master_although_a_slot_moves_meanwhile() {
    let fixture = Fixture::own(true).await;
    let (proxies, backend) = fixture.proxied().await;
    backend.connect().await.expect("all serve");
    let of = fixture.name_on(2).await;
    fixture.cluster.fail_over_to(4).await.expect("it takes over");
    let slot = fixture.slot(&of).await;
    fixture.cluster.move_slot(slot, 2, 0).await.expect("it moves");
    proxies[1].hold_requests();
    let mut checking = pin!(backend.connect());
    // By then it waits for each of the masters that it knows.
    assert!(checking.as_mut().now_or_never().is_none());
    let before = fixture.errors(2, "MOVED").await;
    in_the_end_released(&in_the_end_granted(&backend, &request(&of, TTL).0).await).await;
    assert!(fixture.errors(2, "MOVED").await > before);
    fixture.cluster[1].kill().expect("it is ours");
    proxies[1].cut();
    checking.await.expect("all masters serve");
}

#[testbed::test]
async fn a_cluster_that_is_down_is_unavailable_until_it_serves_again() {
    let fixture = Fixture::own(false).await;
    let backend = with_config(fixture.config().with_connect_timeout(SECOND));
    in_the_end(async || backend.connect().await).await;
    let (lost, kept) = (fixture.name_on(0).await, fixture.name_on(1).await);
    let holds = [take(&backend, &lost).await, take(&backend, &kept).await];
    fixture.cluster[0].kill().expect("it is ours");
    let error = loop {
        // Until the others have noticed.
        match holds[1].renew(TTL).await {
            Ok(_) => tokio::time::sleep(SECOND / 50).await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_not_executed(), "{error:?}");
    fixture.cluster[0].restart().await.expect("it comes back");
    for hold in holds {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
        in_the_end_released(&hold).await;
    }
}
