//! Waiters that hang, come late or leave: somebody else is always awake.

use std::time::Duration;

use lock_core::backend::DistributedLock;
use lock_redis::{RedisBackend, RedisConfig};
use tokio::time::Instant;

use crate::support::waiter::{Hung, Waiter};
use crate::support::{
    Fixture, LONG, LONG_GRACE, OFFER_IS_OVER, Proxied, SECOND, TTL, eventually, in_some_run, in_the_end_granted,
    in_the_end_released, release, request, stays_below, take, with_config,
};

/// Nobody refreshes an entry of such a ttl before: what happens earlier was published by the server.
const FIRST_REFRESH: Duration = Duration::from_secs(4);

fn with_grace(fixture: &Fixture, grace: Duration) -> RedisBackend {
    with_config(fixture.config().with_grace(grace))
}

#[testbed::test]
async fn a_hung_waiter_costs_the_grace_and_no_more() {
    stays_below(FIRST_REFRESH, "the second was not woken", async || {
        let fixture = Fixture::new().await;
        let grace = Duration::from_millis(300);
        let hold = take(&with_grace(&fixture, grace), "a").await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let asked = Instant::now();
        let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let second = waiter.granted().await;
        let (waited, since_asked) = (start.elapsed(), asked.elapsed());
        assert!(second.token() > hold.token());
        assert!(waited >= grace, "{waited:?}: the name was on offer to another");
        assert_eq!(fixture.queue("a").await, [hung.waiter.id()], "it may come back");
        assert!(release(&second).await);
        since_asked
    })
    .await;
}

/// Two that need not connect when they are timed.
async fn connected(fixture: &Fixture) -> [RedisBackend; 2] {
    let backends = [fixture.backend(), fixture.backend()];
    for backend in &backends {
        backend.connect().await.expect("it is there");
    }
    backends
}

/// How long after it came one is granted that waits behind so many that are stopped.
async fn behind_hung(stopped: usize) -> Duration {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let mut hung = Vec::new();
    for _ in 0..stopped {
        hung.push(Hung::queued(&fixture, "a", TTL).await);
    }
    let asked = Instant::now();
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
    asked.elapsed()
}

#[testbed::test]
async fn a_live_waiter_behind_stopped_ones_gets_the_name_within_a_refresh_and_a_grace() {
    // An entry lasts 15 s, so its refresh comes after 5 s at the latest, and a grace is 0.1 s. Two refreshes in its life
    // instead of three would take 6 s at least.
    let bound = 6 * SECOND;
    stays_below(bound, "more than a refresh and a grace", async || {
        let (one, two, five) = tokio::join!(behind_hung(1), behind_hung(2), behind_hung(5));
        one.max(two).max(five)
    })
    .await;
}

#[testbed::test]
async fn a_late_confirm_after_the_name_went_to_another_is_harmless() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let hung = Hung::queued(&fixture, "a", TTL).await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    assert!(release(&hold).await);
    let second = waiter.granted().await;
    let (value, before) = (fixture.value("a").await, fixture.scripts_run().await);

    hung.proxy.let_go();
    eventually("it has tried to confirm", async || fixture.scripts_run().await > before).await;
    assert_eq!(fixture.value("a").await, value);
    assert!(hung.waiter.is_waiting());
    assert_eq!(fixture.queue("a").await, [hung.waiter.id()], "it has kept its entry");
    assert!(release(&second).await);
    let third = hung.waiter.granted().await;
    assert!(third.token() > second.token());
    assert!(release(&third).await);
}

#[testbed::test]
async fn a_late_confirm_that_finds_the_name_free_is_a_grant() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let hung = Hung::queued(&fixture, "a", TTL).await;
    assert!(release(&hold).await);
    eventually("the offer ends", async || !fixture.exists("a").await).await;
    hung.proxy.let_go();
    let second = hung.waiter.granted().await;
    assert!(second.token() > hold.token());
    assert_eq!(fixture.queue("a").await, <[String; 0]>::default());
    assert!(release(&second).await);
}

#[testbed::test]
async fn a_second_waiter_that_leaves_is_replaced() {
    stays_below(FIRST_REFRESH, "nobody woke the third one", async || {
        let fixture = Fixture::new().await;
        let clients = connected(&fixture).await;
        let hold = take(&with_grace(&fixture, SECOND), "a").await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let second = Waiter::queued(&fixture, &clients[0], "a", TTL).await;
        let asked = Instant::now();
        let third = Waiter::queued(&fixture, &clients[1], "a", TTL).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let is_offered = fixture.value("a").await.starts_with(&hung.waiter.id());
        assert!(is_offered || start.elapsed() >= SECOND);
        second.leave().await;
        let hold = third.granted().await;
        let (waited, since_asked) = (start.elapsed(), asked.elapsed());
        assert!(waited >= SECOND, "{waited:?}");
        assert!(release(&hold).await);
        since_asked
    })
    .await;
}

#[testbed::test]
async fn a_waiter_that_leaves_a_free_name_wakes_the_next_two() {
    stays_below(FIRST_REFRESH, "nobody woke the third one", async || {
        let fixture = Fixture::new().await;
        let hold = take(&fixture.backend(), "a").await;
        let leaving = Hung::queued(&fixture, "a", TTL).await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let start = Instant::now();
        let third = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
        // As if an offer had lapsed, and whoever was told to look had gone without looking.
        let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
        let id = leaving.waiter.id();
        leaving.proxy.let_go();
        leaving.waiter.leave().await;
        assert!(!fixture.queue("a").await.contains(&id));
        let hold_again = third.granted().await;
        let waited = start.elapsed();
        assert!(!release(&hold).await, "it was deleted");
        assert!(release(&hold_again).await);
        drop(hung);
        waited
    })
    .await;
}

#[testbed::test]
async fn an_offer_that_is_abandoned_passes_on_at_once() {
    in_some_run(OFFER_IS_OVER, async || {
        let fixture = Fixture::new().await;
        let hold = take(&fixture.with_long_grace(), "a").await;
        let hung = Hung::queued(&fixture, "a", TTL).await;
        let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
        let start = Instant::now();
        assert!(release(&hold).await);
        let value = fixture.value("a").await;
        if start.elapsed() >= LONG_GRACE {
            return false;
        }
        assert_eq!(value, format!("{} 0 5000", hung.waiter.id()));
        hung.waiter.control.give_up();
        hung.proxy.let_go();
        hung.waiter.leave().await;
        assert!(release(&waiter.granted().await).await);
        // Else the offer may have ended by itself.
        let passed_on = start.elapsed() < LONG_GRACE;
        assert!(!fixture.exists("a").await);
        passed_on
    })
    .await;
}

#[testbed::test]
async fn a_crashed_holder_s_name_goes_to_the_first_when_its_time_is_up() {
    stays_below(FIRST_REFRESH, "it did not know when", async || {
        let fixture = Fixture::new().await;
        let ttl = 2 * SECOND;
        let clients = [fixture.with_long_grace(), fixture.with_long_grace()];
        for client in &clients {
            client.connect().await.expect("it is there");
        }
        let (crashed, _control) = request("a", ttl);
        let start = Instant::now();
        let crashed = in_the_end_granted(&fixture.backend(), &crashed).await;
        let first = Waiter::come(&fixture, &clients[0], "a", TTL).await;
        let second = Waiter::queued(&fixture, &clients[1], "a", TTL).await;
        let hold = first.granted().await;
        let waited = start.elapsed();
        assert!(waited >= ttl, "{waited:?}: never before");
        assert!(hold.token() > crashed.token() && second.is_waiting());
        assert!(!release(&crashed).await);
        assert!(release(&hold).await);
        assert!(release(&second.granted().await).await);
        waited
    })
    .await;
}

#[testbed::test]
async fn a_wake_up_that_was_lost_with_a_connection_is_made_up_for() {
    stays_below(FIRST_REFRESH, "it waited for its refresh", async || {
        let fixture = Fixture::new().await;
        let grace = Duration::from_millis(50);
        let hold = take(&with_grace(&fixture, grace), "a").await;
        let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
        let start = Instant::now();
        let waiter = Waiter::queued(&fixture, &backend, "a", TTL).await;
        proxy.hold_answers();
        assert!(release(&hold).await);
        eventually("the offer has lapsed unheard", async || !fixture.exists("a").await).await;
        let hold = waiter.granted().await;
        assert!(proxy.connections() >= 2, "over another connection");
        let waited = start.elapsed();
        in_the_end_released(&hold).await;
        // The first connection's late answers change nothing.
        proxy.drain_the_held().await;
        assert!(!fixture.exists("a").await);
        waited
    })
    .await;
}

#[testbed::test]
async fn when_the_first_leave_a_held_name_those_behind_them_ask_in_time() {
    stays_below(FIRST_REFRESH, "it looked a grace too late", async || {
        let fixture = Fixture::new().await;
        let ttl = 2 * SECOND;
        // Those behind the first look a grace later each.
        let backend = with_grace(&fixture, SECOND);
        backend.connect().await.expect("it is there");
        let (crashed, _control) = request("a", ttl);
        let start = Instant::now();
        in_the_end_granted(&fixture.backend(), &crashed).await;
        let mut leaving = Vec::new();
        for _ in 0..2 {
            leaving.push(Waiter::come(&fixture, &backend, "a", TTL).await);
        }
        let last = Waiter::come(&fixture, &backend, "a", TTL).await;
        for waiter in leaving {
            waiter.leave().await;
        }
        let hold = last.granted().await;
        let waited = start.elapsed();
        assert!(waited >= ttl, "{waited:?}");
        assert!(release(&hold).await);
        waited
    })
    .await;
}

#[testbed::test]
async fn a_hold_that_an_operator_deletes_is_found_out_by_the_next_refresh() {
    let ttl = 6 * SECOND;
    stays_below(ttl / 2, "it did not look after a third of its ttl", async || {
        let fixture = Fixture::new().await;
        let hold = take(&fixture.backend(), "a").await;
        let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", ttl).await;
        let _: i64 = fixture.raw(&["DEL", &fixture.lock_key("a")]).await;
        let start = Instant::now();
        let next = waiter.granted().await;
        let waited = start.elapsed();
        assert!(next.token() > hold.token());
        assert!(!release(&hold).await && release(&next).await);
        waited
    })
    .await;
}

/// A queue entry of such a ttl is refreshed at once. Whoever waits must learn of the silence before the answer's time is up: a
/// quorum goes on without this server then.
#[testbed::test]
async fn a_waiter_that_asks_again_reports_that_the_server_is_silent() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let patient = |config: RedisConfig| config.with_response_timeout(LONG);
    let Proxied { proxy, backend } = Proxied::new(&fixture, patient).await;
    let waiter = Waiter::queued(&fixture, &backend, "a", SECOND).await;
    eventually("it knows that the name is taken", async || {
        waiter.request.last_busy().is_some()
    })
    .await;

    proxy.hold_answers();
    let before = fixture.scripts_run().await;
    eventually("it has asked again", async || fixture.scripts_run().await > before).await;
    eventually("it reports the silence", async || {
        waiter.request.unreachable().is_some()
    })
    .await;

    proxy.let_go();
    eventually("it reports the answer", async || waiter.request.unreachable().is_none()).await;
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}
