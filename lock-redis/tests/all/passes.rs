//! A hold passes on within a process without a request.

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{Lease, SentAt};
use lock_core::{FencingToken, HoldState};

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
    eventually("suspect", async || second.state() == HoldState::Suspect).await;
    assert_eq!(first.state(), HoldState::Held, "it has the hold no more");
    in_the_end_released(&twice).await;
}
