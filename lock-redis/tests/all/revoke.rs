//! Forced release: what it leaves at the server, and what the former holder is told.

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, Lease, Mode, Renewal, Revoke, Revoked};
use lock_core::{Error, FencingToken, Locker, LostCause};
use testbed::happens;

use crate::support::*;

fn later(token: FencingToken, by: u64) -> FencingToken {
    FencingToken::new(token.as_u64() + by).expect("a token")
}

/// The lease's end, token and label stay as they are, and the id is nobody's.
#[testbed::test]
async fn at_the_leases_end_the_key_changes_its_id_alone() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let (value, rest) = (fixture.value("a").await, fixture.rest("a").await);
    let revoked = backend.revoke(&name("a"), hold.token(), Revoke::AtLeaseEnd).await;
    let Ok(Revoked::Done {
        lease_left: Some(left), ..
    }) = revoked
    else {
        panic!("it was held: {revoked:?}");
    };
    assert!(left <= rest && fixture.rest("a").await <= left, "{left:?} of {rest:?}");
    let nobodys = fixture.value("a").await;
    assert_ne!(nobodys[..32], value[..32]);
    assert_eq!(nobodys[32..], value[32..]);
    let tombstone = format!(" {}:", &value[..32]);
    assert!(fixture.fence("a").await.contains(&tombstone), "{tombstone}");
    assert!(!release(&hold).await);
    assert_eq!(fixture.value("a").await, nobodys);
}

/// As many tokens as the script reserves for passes, and no other ones.
#[testbed::test]
async fn the_reserved_tokens_are_those_of_the_hold() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let hold = take(&backend, "a").await;
    let token = hold.token();
    let last = FencingToken::new(last_reserved(token)).expect("a token");
    let before = FencingToken::new(token.as_u64() - 1).expect("a token");
    for other in [before, later(last, 1)] {
        let revoked = backend.revoke(&name("a"), other, Revoke::Now).await.expect("an answer");
        assert_eq!(revoked, Revoked::NotHeld, "{other} of {token} to {last}");
    }
    for own in [token, later(token, 1), last] {
        let revoked = backend.revoke(&name("a"), own, Revoke::AtLeaseEnd).await;
        assert!(
            matches!(revoked, Ok(Revoked::Done { .. })),
            "{own} of {token} to {last}: {revoked:?}"
        );
    }
}

/// The server knows the grant's alone.
#[testbed::test]
async fn a_hold_that_was_passed_on_and_downgraded_has_its_tokens_still() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    for by in [1, 0, 16] {
        let (asked, _control) = RequestOptions::new(name("a"), Terms::new(TTL)).reserve(4).start();
        let hold = granted(&backend, &asked).await;
        let passed = hold.pass(&Lease::new(name("a"))).expect("tokens are left");
        assert!(matches!(passed.downgrade(TTL).await, Ok(Renewal::Renewed(_))));
        let reader = granted(&backend, &request_in(Mode::Shared, "a").0).await;
        // At once at last: it still has its tokens when it is nobody's.
        for how in [Revoke::AtLeaseEnd, Revoke::AtLeaseEnd, Revoke::Now] {
            let revoked = backend.revoke(&name("a"), later(hold.token(), by), how).await;
            assert!(matches!(revoked, Ok(Revoked::Done { .. })), "{by}: {revoked:?}");
        }
        assert!(matches!(passed.renew(TTL).await, Ok(Renewal::Lost)));
        assert!(!release(&passed).await);
        assert!(release(&reader).await, "{by}: it is another hold");
        assert!(!fixture.exists("a").await);
    }
}

/// A token past 2^53, which Lua cannot count, has none reserved.
#[testbed::test]
async fn a_token_that_lua_cannot_count_is_compared_whole() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let floor = FencingToken::new(9_007_199_254_740_993).expect("a token");
    let (request, _control) = options_in(Mode::Exclusive, "a").token_above(floor).start();
    let hold = granted(&backend, &request).await;
    let revoked = |token| {
        let backend = backend.clone();
        async move { backend.revoke(&name("a"), token, Revoke::Now).await.expect("an answer") }
    };
    assert_eq!(revoked(later(hold.token(), 1)).await, Revoked::NotHeld);
    assert_eq!(revoked(floor).await, Revoked::NotHeld);
    assert!(matches!(revoked(hold.token()).await, Revoked::Done { .. }));
    assert!(!fixture.exists("a").await);
}

/// Another program's key is never touched.
#[testbed::test]
async fn a_foreign_key_is_not_revoked() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let _: () = fixture.raw(&["SET", &fixture.lock_key("a"), "7", "PX", "60000"]).await;
    let _: u32 = fixture.raw(&["RPUSH", &fixture.lock_key("b"), "7"]).await;
    for lock in ["a", "b"] {
        for how in [Revoke::AtLeaseEnd, Revoke::Now] {
            let (name, token) = (name(lock), FencingToken::new(7).expect("a token"));
            let revoked = backend.revoke(&name, token, how).await.expect("an answer");
            assert_eq!(revoked, Revoked::NotHeld, "{lock}");
        }
        assert!(fixture.exists(lock).await);
    }
}

/// Of the one who may upgrade, the right to do that goes with its hold, and not before it.
#[testbed::test]
async fn an_upgradable_reader_keeps_its_place_until_its_lease_ends() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let upgradable = granted(&backend, &request_in(Mode::Upgradable, "a").0).await;
    let reader = granted(&backend, &request_in(Mode::Shared, "a").0).await;
    let revoke = async |how| {
        backend
            .revoke(&name("a"), upgradable.token(), how)
            .await
            .expect("an answer")
    };
    assert!(matches!(revoke(Revoke::AtLeaseEnd).await, Revoked::Done { .. }));
    assert!(!release(&upgradable).await);
    let (other, _control) = options_in(Mode::Upgradable, "a").waits(false).start();
    busy(&backend, &other).await;
    assert!(matches!(revoke(Revoke::Now).await, Revoked::Done { .. }));
    let other = granted(&backend, &other).await;
    assert!(release(&other).await && release(&reader).await);
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn the_former_holders_loss_says_that_it_was_revoked() {
    let fixture = Fixture::new().await;
    let operator = Locker::new(fixture.backend());
    operator.connect().await.expect("it is there");
    for how in [Revoke::AtLeaseEnd, Revoke::Now] {
        // If the machine stands still, the lease ends first.
        in_some_run("the revocation is not the cause", async || {
            // Renewed every second.
            let locks = Locker::new(fixture.backend()).with_ttl(3 * SECOND);
            let guard = locks.lock("a").acquire().await.expect("a free lock");
            let status = operator.status("a").await.expect("an answer");
            let holder = status.holders.first();
            let token = holder.map_or(guard.token(), |holder| holder.token.expect("it is known"));
            let revoked = operator.revoke("a", token, how).await.expect("an answer");
            let lost = happens("it is told", guard.lost()).await;
            assert!(guard.release().await.expect_err("it is lost").is_lost());
            let next = locks.lock("a").acquire_within(AT_MOST).await;
            let next = next.expect("it is free in the end").release().await;
            if lost.lease_ended().is_some() || next.as_ref().is_err_and(Error::is_lost) {
                return Err(lost);
            }
            next.expect("an answer");
            assert!(matches!(revoked, Revoked::Done { .. }), "{revoked:?}");
            assert_eq!(lost.cause(), LostCause::Revoked, "{lost}");
            assert!(holder.is_some(), "an operator sees it");
            Ok(())
        })
        .await;
    }
}
