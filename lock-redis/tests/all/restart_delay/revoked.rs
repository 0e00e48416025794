//! A hold that was revoked stays revoked.

use lock_core::backend::{Revoke, Revoked};

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
