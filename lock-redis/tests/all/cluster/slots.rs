//! Slots that move to another master.

use super::*;

#[testbed::test]
async fn a_slot_that_moves_keeps_its_holds() {
    let fixture = Fixture::shared().await;
    let backend = fixture.backend();
    let of = fixture.name_on(0).await;
    let hold = take(&backend, &of).await;
    let slot = fixture.slot(&of).await;
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        fixture.cluster.move_slot(slot, from, to).await.expect("it moves");
        assert!(matches!(hold.renew(TTL).await.expect("an answer"), Renewal::Renewed(_)));
        let other = fixture
            .backend()
            .acquire(&request(&of, TTL).0)
            .await
            .expect("an answer");
        assert!(matches!(other, Attempt::Busy(_)), "{other:?}");
    }
    fixture.cluster.move_slot(slot, 0, 1).await.expect("it moves");
    let token = hold.token();
    assert!(release(&hold).await);
    let next = take(&backend, &of).await;
    assert!(next.token() > token);
    assert!(release(&next).await);
    fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
}

#[testbed::test]
async fn a_slot_that_moves_keeps_its_waiters() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (fixture.backend(), fixture.backend());
    let of = fixture.name_on(1).await;
    let slot = fixture.slot(&of).await;
    stays_below(REFRESH, "the waiter did not hear of the move", async || {
        let first = take(&holder, &of).await;
        let waiter = fixture.queued(&backend, &of, TTL).await;
        fixture.cluster.move_slot(slot, 1, 2).await.expect("it moves");
        // It has asked there.
        let subscribed = async || {
            fixture
                .call(2, &["PUBSUB", "SHARDCHANNELS"])
                .await
                .contains(&fixture.key(&of))
        };
        eventually("it listens to the new master", subscribed).await;
        let released = Instant::now();
        assert!(release(&first).await);
        let hold = waiter.granted().await;
        let waited = released.elapsed();
        assert!(release(&hold).await);
        fixture.cluster.move_slot(slot, 2, 1).await.expect("it moves back");
        waited
    })
    .await;
}

#[testbed::test]
async fn a_slot_about_to_move_is_waited_for() {
    let fixture = Fixture::shared().await;
    let of = fixture.name_on(2).await;
    let slot = fixture.slot(&of).await;
    let hold = take(&fixture.backend(), &of).await;
    fixture.cluster.begin_move(slot, 2, 0).await.expect("it begins");

    // Not for ever: then nothing was done.
    let hasty = with_config(fixture.config().with_connect_timeout(SECOND));
    in_the_end(async || hasty.connect().await).await;
    let error = refused(&hasty, &of).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_not_executed() && error.is_retryable(), "{error:?}");
    assert!(shown(&error).contains("is being moved"), "{error:?}");

    let before = fixture.errors(2, "TRYAGAIN").await;
    let releasing = tokio::spawn(async move { release(&hold).await });
    eventually("the release was sent away", async || {
        fixture.errors(2, "TRYAGAIN").await > before + 2
    })
    .await;
    assert!(!releasing.is_finished());
    fixture.cluster.finish_move(slot, 2, 0).await.expect("it moves");
    assert!(releasing.await.expect("no panic"));
    fixture.cluster.move_slot(slot, 0, 2).await.expect("it moves back");
}

/// The driver takes the end of a subscription that nobody asked for as the reply to whatever is in flight.
#[testbed::test]
async fn replies_stay_with_their_requests_while_slots_with_waiters_move() {
    let fixture = Fixture::shared().await;
    let (holder, backend) = (fixture.backend(), fixture.backend());
    let moving = fixture.name_on(0).await;
    let slot = fixture.slot(&moving).await;
    // It lives through all this.
    let first = granted(&holder, &request(&moving, LONG).0).await;
    let waiter = fixture.queued(&backend, &moving, TTL).await;
    let work = async |number: usize| {
        for count in 0..150 {
            let of = format!("other-{number}-{}", count % 5);
            let hold = in_the_end_granted(&backend, &request(&of, TTL).0).await;
            let status = backend.status(&name(&of)).await.expect("an answer");
            assert_eq!(status.holders[0].token, Some(hold.token()));
            assert!(release(&hold).await, "somebody else's reply");
        }
    };
    let moving = async {
        for _ in 0..3 {
            fixture.cluster.move_slot(slot, 0, 1).await.expect("it moves");
            fixture.cluster.move_slot(slot, 1, 0).await.expect("it moves back");
        }
    };
    join(join_all((0..8).map(work)), moving).await;
    assert!(waiter.is_waiting());
    assert!(release(&first).await);
    assert!(release(&waiter.granted().await).await);
}
