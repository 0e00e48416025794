//! Many holds of one name come back.

use lock_core::backend::{DistributedLock, Mode, Permits, Renewal};

use super::{TTL, trusted};
use crate::support::{Fixture, granted, in_the_end, release};

/// Otherwise the server serves nobody else meanwhile, and the last ones come too late.
#[testbed::test]
async fn to_put_many_sharers_back_takes_each_the_same() {
    const MANY: u32 = 150;
    /// For each.
    const FEW: u64 = 10;
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let permit = Mode::Permits(Permits::new(1, MANY).expect("fewer than there are"));
    let mut holds = Vec::new();
    for (name, mode) in [("shared", Mode::Shared), ("permits", permit)] {
        for _ in 0..MANY {
            let (asked, control) = super::options(name, mode).start();
            holds.push((granted(&backend, &asked).await, control));
        }
    }
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;
    let _: () = fixture.raw(&["CONFIG", "RESETSTAT"]).await;
    for (hold, _control) in &holds {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    let (looked, most) = (fixture.calls("hget").await, 2 * u64::from(MANY) * FEW);
    assert!(looked <= most, "{looked} terms were read, {most} at most");
    for (hold, _control) in &holds {
        assert!(release(hold).await);
    }
}

/// Those that were not put back, too: each release of a hold that the server forgot takes the same.
#[testbed::test]
async fn to_give_many_sharers_back_during_the_delay_takes_each_the_same() {
    const MANY: u32 = 150;
    /// Script calls and terms for each.
    const FEW: u64 = 10;
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let permit = Mode::Permits(Permits::new(1, MANY).expect("fewer than there are"));
    let mut holds = Vec::new();
    for (name, mode) in [("shared", Mode::Shared), ("permits", permit)] {
        for _ in 0..MANY {
            let (asked, control) = super::options(name, mode).start();
            holds.push((granted(&backend, &asked).await, control));
        }
    }
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;
    // Every other one is put back before, so that releases find many others.
    for (hold, _control) in holds.iter().step_by(2) {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    let _: () = fixture.raw(&["CONFIG", "RESETSTAT"]).await;
    for (hold, _control) in &holds {
        assert!(release(hold).await);
    }
    let most = 2 * u64::from(MANY) * FEW;
    let (scripts, terms) = (fixture.calls("evalsha").await, fixture.calls("hget").await);
    assert!(
        (u64::from(MANY)..=most).contains(&scripts),
        "{scripts} scripts, {most} at most"
    );
    assert!(terms <= most, "{terms} terms were read, {most} at most");
}
