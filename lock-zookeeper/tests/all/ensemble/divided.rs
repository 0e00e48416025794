//! Holds at a leader that is cut off from its quorum.

use super::*;

/// Until when a hold at a leader that was cut off from its quorum was believed in, and when the others granted its name to
/// somebody else. Both are counted from the cut.
struct Divided {
    believed: Duration,
    granted: Duration,
}

/// The two others are started again, so that they need not wait for the leader as long as it waits for them. The holder
/// writes nothing meanwhile: the heartbeats of its session would wait for the answer to that.
async fn divide(heartbeat: HeartbeatKind) -> Divided {
    let (ensemble, leader) = ensemble(LATE_TO_NOTICE).await;
    let [one, other] = followers(leader);
    let config = at(&ensemble[leader])
        .with_session_timeout(CUT_OFF)
        .with_heartbeat(heartbeat);
    // Shorter than what `within` allows: its end is waited for.
    let backend = backend_with(config.with_connect_timeout(ZooKeeperConfig::DEFAULT_CONNECT_TIMEOUT));
    let (first, request, _control) = hold_at(&backend, "a").await;
    token_is_written(&observer(&ensemble[leader]).await, "/test/a").await;
    let believed = believed_until(request.lease());
    let cut = Instant::now();
    ensemble.isolate(leader);
    tokio::try_join!(ensemble[one].restart(), ensemble[other].restart()).unwrap();
    let (second, granted) = {
        let (request, _control) = waiting("a");
        let backend = backend_with(at(&ensemble[one]));
        (acquire(&backend, &request).await, cut.elapsed())
    };
    assert!(second.token() > first.token());
    let believed = in_time(believed).await - cut;
    println!("{heartbeat:?}: believed for {believed:?}, granted after {granted:?}");
    // Nobody is granted anything on its side, whether it has noticed or not.
    let (refused, _control) = trying("b");
    let error = happens("an answer", backend.acquire(&refused)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    ensemble.heal();
    Divided { believed, granted }
}

#[testbed::test]
async fn with_heartbeats_that_write_a_leader_without_a_quorum_renews_no_hold() {
    let Divided { believed, granted } = divide(HeartbeatKind::Write).await;
    assert_safe!(believed < granted, "two believed for {:?}", believed - granted);
    assert!(believed < CUT_OFF, "renewed by a leader without a quorum");
}

/// As the documentation says.
#[testbed::test]
async fn with_other_heartbeats_a_leader_without_a_quorum_renews_holds_until_it_steps_down() {
    let Divided { believed, .. } = divide(HeartbeatKind::Sync).await;
    // Longer than a session that nothing renews, whenever the others have granted it: how soon they can is not ours to say.
    assert!(believed > CUT_OFF, "{believed:?}");
    assert!(believed < GENEROUS, "{believed:?}");
}
