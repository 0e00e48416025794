//! A hold passes on within a process without a request.

use lock_core::backend::{HandOver, Lease, ReleaseOptions, ReleaseOutcome, RequestOptions, SentAt, Terms};
use lock_core::{FencingToken, HoldState};
use lock_redis::RedisConfig;
use tokio::time::timeout;

use crate::support::waiter::Waiter;
use crate::support::*;

const TOKENS: u32 = 4;

fn reserving(name_: &str) -> RequestOptions {
    RequestOptions::new(name(name_), Terms::new(TTL)).reserve(TOKENS)
}

/// As core does it: the next lease goes on where the other one leaves off.
fn next_lease() -> Lease {
    let lease = Lease::new(name("a"));
    lease.arm(SentAt::now(), TTL).expect("a moment ago");
    lease
}

/// As many tokens as the server reserves, whatever is asked for.
#[testbed::test]
async fn the_last_pass_has_the_last_token_that_is_reserved() {
    let fixture = Fixture::new().await;
    let options = RequestOptions::new(name("a"), Terms::new(TTL)).reserve(99);
    let (request, _control) = options.start();
    let mut last = granted(&fixture.backend(), &request).await;
    while let Some(next) = last.pass(&next_lease()) {
        last = next;
    }
    assert_eq!(fixture.fence("a").await, last.token().to_string());
    assert!(release(&last).await);
}

#[testbed::test]
async fn the_fence_keeps_reserved_tokens_from_everybody_else() {
    let fixture = Fixture::new().await;
    let (request, _control) = reserving("a").start();
    let hold = granted(&fixture.backend(), &request).await;
    assert_eq!(fixture.fence("a").await, last_reserved(hold.token()).to_string());
    let before = fixture.scripts_run().await;
    let mut last = hold.clone();
    for number in 1..TOKENS {
        last = last.pass(&next_lease()).expect("a token is left");
        assert_eq!(last.token().as_u64(), hold.token().as_u64() + u64::from(number));
    }
    assert!(last.pass(&next_lease()).is_none());
    assert_eq!(fixture.scripts_run().await, before, "nothing was sent");
    assert!(release(&last).await);
    let other = take(&fixture.backend(), "a").await;
    assert!(other.token() > last.token());
}

/// Lua counts exactly up to 2^53, and tokens may be larger where a floor was given.
#[testbed::test]
async fn beyond_what_lua_counts_exactly_nothing_is_reserved() {
    let fixture = Fixture::new().await;
    let floor = FencingToken::new((1 << 53) + 5).expect("a token");
    let (request, _control) = reserving("a").token_above(floor).start();
    let hold = granted(&fixture.backend(), &request).await;
    assert_eq!(hold.token().as_u64(), floor.as_u64() + 1);
    assert_eq!(fixture.fence("a").await, hold.token().to_string());
    assert!(hold.pass(&next_lease()).is_none());
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_connection_that_ends_makes_the_lease_of_the_moment_suspect() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend } = Proxied::quick(&fixture).await;
    let (request, _control) = reserving("a").start();
    let hold = in_the_end_granted(&backend, &request).await;
    let (first, second) = (next_lease(), next_lease());
    let once = hold.pass(&first).expect("a token is left");
    let twice = once.pass(&second).expect("a token is left");
    drop((hold, once));
    proxy.cut();
    until("suspect", async || second.state() == HoldState::Suspect).await;
    assert_eq!(first.state(), HoldState::Held, "it has the hold no more");
    in_the_end_released(&twice).await;
}

#[testbed::test]
async fn a_hand_over_yields_while_somebody_waits_who_is_there() {
    let fixture = Fixture::new().await;
    let (ours, theirs) = (fixture.backend(), fixture.backend());
    let (request, _control) = reserving("a").start();
    let hold = granted(&ours, &request).await;
    let (heir, _heirs) = reserving("a").yields().start();
    let HandOver::Granted(hold, _) = hold.hand_over(&heir).await.expect("an answer") else {
        panic!("nobody waits");
    };
    let waiter = Waiter::queued(&fixture, &theirs, "a", TTL).await;
    let (next, _nexts) = reserving("a").yields().start();
    assert!(matches!(hold.hand_over(&next).await, Ok(HandOver::Yielded)));
    let theirs = waiter.granted().await;
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.expect("an answer"),
        ReleaseOutcome::AlreadyLost
    );
    assert!(release(&theirs).await);
}

/// The release goes out with the hand-over, so that whoever waits elsewhere does not wait for an answer to the giver.
#[testbed::test]
async fn a_hand_over_that_yields_frees_the_name_before_its_giver_hears_of_it() {
    let fixture = Fixture::new().await;
    let patient = |config: RedisConfig| config.with_response_timeout(AT_MOST);
    let Proxied { proxy, backend } = Proxied::new(&fixture, patient).await;
    let (request, _control) = reserving("a").start();
    let hold = granted(&backend, &request).await;
    let theirs = fixture.backend();
    let waiter = Waiter::queued(&fixture, &theirs, "a", TTL).await;
    proxy.hold_answers();
    let (next, _nexts) = reserving("a").yields().start();
    let handing_over = tokio::spawn(async move { hold.hand_over(&next).await });
    let theirs = waiter.granted().await;
    assert!(!handing_over.is_finished(), "it has no answer yet");
    proxy.let_go();
    let handed_over = timeout(AT_MOST, handing_over).await.expect("an answer in time");
    assert!(matches!(handed_over.expect("no panic"), Ok(HandOver::Yielded)));
    assert!(release(&theirs).await);
}

/// The hand-over is sent once more with its text, behind the release.
#[testbed::test]
async fn a_hand_over_whose_script_the_server_has_forgotten_yields_all_the_same() {
    let fixture = Fixture::new().await;
    let (ours, theirs) = (fixture.backend(), fixture.backend());
    let (request, _control) = reserving("a").start();
    let hold = granted(&ours, &request).await;
    // The server knows how to release.
    assert!(release(&take(&theirs, "b").await).await);
    let (next, _nexts) = reserving("a").yields().start();
    let () = fixture.raw(&["SCRIPT", "FLUSH"]).await;
    assert!(release(&take(&theirs, "b").await).await);
    assert!(matches!(hold.hand_over(&next).await, Ok(HandOver::Yielded)));
    assert!(release(&take(&theirs, "a").await).await);
}
