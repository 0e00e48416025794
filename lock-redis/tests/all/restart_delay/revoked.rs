//! A hold that was revoked stays revoked.

use lock_core::backend::{Lease, Revoke, Revoked};

use super::*;

/// The server has its data, and so the tombstone. Without that, the former holder's renewal would take the name that is free.
#[testbed::test]
async fn a_restart_brings_no_revoked_hold_back() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let hold = granted(&backend, &options("a", Mode::Exclusive).start().0).await;
    let name = crate::support::name("a");
    let revoked = backend
        .revoke(&name, hold.token(), Revoke::Now)
        .await
        .expect("an answer");
    assert!(matches!(revoked, Revoked::Done { .. }), "{revoked:?}");
    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    let renewal = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewal, Renewal::Lost), "{renewal:?}");
    assert!(!fixture.exists("a").await);
}

/// It is put back by a guard whose token is one that was reserved.
#[testbed::test]
async fn a_hold_that_was_put_back_has_all_its_tokens() {
    for is_downgraded in [false, true] {
        let Some(mut fixture) = Fixture::own().await else {
            return;
        };
        let backend = trusted(&fixture).await;
        let name = crate::support::name("a");
        let hold = granted(&backend, &options("a", Mode::Exclusive).reserve(4).start().0).await;
        let lease = Lease::new(name.clone());
        let passed = hold.pass(&lease).expect("tokens are left");
        let renewed = match is_downgraded {
            true => passed.downgrade(TTL).await,
            false => passed.renew(TTL).await,
        };
        assert!(matches!(renewed, Ok(Renewal::Renewed(_))), "{renewed:?}");
        fixture.server.restart_without_data().await.expect("it starts again");
        fixture.reconnect().await;
        let renewed = in_the_end(async || passed.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
        for token in [hold.token(), passed.token()] {
            let revoked = in_the_end(async || backend.revoke(&name, token, Revoke::AtLeaseEnd).await).await;
            assert!(matches!(revoked, Revoked::Done { .. }), "{token}: {revoked:?}");
        }
    }
}
