//! Slow lines, and servers that stand still: a late answer is an answer.

use lock_core::backend::{DistributedLock, Mode, Renewal};
use lock_core::{HoldState, Locker};
use tokio::time::{Instant, sleep};

use crate::support::slow::{Pace, SlowLine};
use crate::support::{
    Fixture, SECOND, TTL, eventually, in_some_run, in_the_end_granted, in_the_end_released, request, request_in,
    with_config,
};

#[testbed::test]
async fn requests_wait_for_late_answers_as_long_as_others_come() {
    const RENEWALS: usize = 60;
    let fixture = Fixture::new().await;
    // If the machine stands still, there is a silence, which ends the connection.
    in_some_run("answers that keep coming do not suffice", async || {
        // A reply to a renewal has four bytes.
        let line = SlowLine::start(fixture.server.address(), Pace::Trickle(4, SECOND / 20)).await;
        let config = fixture.config_at(&line.address).with_response_timeout(2 * SECOND);
        let backend = with_config(config.with_checks(lock_redis::Checks::Off));
        // Such ones are renewed one by one.
        let hold = in_the_end_granted(&backend, &request_in(Mode::Shared, "a").0).await;
        let connections = line.connections();
        line.trickle();
        let start = Instant::now();
        let renewals: Vec<_> = (0..RENEWALS)
            .map(|_| {
                let hold = hold.clone();
                tokio::spawn(async move { hold.renew(TTL).await })
            })
            .collect();
        let mut unanswered = 0;
        for renewal in renewals {
            match renewal.await.expect("no panic") {
                Ok(answer) => assert!(matches!(answer, Renewal::Renewed(_))),
                Err(_) => unanswered += 1,
            }
        }
        let reconnected = line.connections() - connections;
        if (unanswered, reconnected) != (0, 0) {
            return Err(format!(
                "{unanswered} without an answer, connected {reconnected} times more"
            ));
        }
        assert!(
            start.elapsed() > 2 * SECOND,
            "the last ones took longer than a silence may"
        );
        Ok(())
    })
    .await;
}

#[testbed::test]
async fn a_slow_line_ends_no_connection_and_no_request() {
    let fixture = Fixture::new().await;
    // A round trip takes a quarter of the response timeout, and a dial more than all of it.
    let timeout = 5 * SECOND / 2;
    // If the machine stands still, a round trip takes longer.
    in_some_run("a slow line ends a request or its connection", async || {
        let line = SlowLine::start(fixture.server.address(), Pace::Late(timeout / 8)).await;
        let config = fixture.config_at(&line.address);
        let backend = with_config(config.with_response_timeout(timeout));
        backend.connect().await.expect("it is there");
        let (wanted, _control) = request("a", TTL);
        let hold = in_the_end_granted(&backend, &wanted).await;
        let start = Instant::now();
        let mut unanswered = 0;
        while start.elapsed() < 6 * timeout / 5 {
            match hold.renew(TTL).await {
                Ok(answer) => assert!(matches!(answer, Renewal::Renewed(_))),
                Err(_) => unanswered += 1,
            }
            unanswered += u32::from(wanted.lease().state() != HoldState::Held);
        }
        in_the_end_released(&hold).await;
        let connections = line.connections();
        let is_steady = (unanswered, connections) == (0, 1);
        is_steady
            .then_some(())
            .ok_or(format!("{unanswered} without an answer, {connections} connections"))
    })
    .await;
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_outlast_a_server_that_stands_still() {
    let Some(fixture) = Fixture::own().await else {
        return;
    };
    let ttl = 14 * SECOND;
    let locks = Locker::new(with_config(fixture.config().with_response_timeout(10 * SECOND)));
    let acquiring: Vec<_> = (0..1000)
        .map(|number| {
            let lock = locks.lock(format!("many-{number}")).ttl(ttl);
            tokio::spawn(async move { lock.acquire().await.expect("a grant") })
        })
        .collect();
    let mut guards = Vec::new();
    for guard in acquiring {
        guards.push(guard.await.expect("no panic"));
    }
    fixture.server.pause().expect("it runs");
    // Renewals are due by then.
    sleep(5 * SECOND).await;
    fixture.server.resume().expect("it is stopped");
    eventually("all are renewed", async || {
        guards.iter().all(|guard| guard.state() == HoldState::Held)
    })
    .await;
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    drop(guards);
    locks.shutdown().await.expect("nothing is left");
}
