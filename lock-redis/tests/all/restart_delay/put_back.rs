//! Holds that a server has forgotten and that are put back.

use super::*;

#[testbed::test]
async fn a_hold_that_lives_is_put_back_and_nobody_else_had_it() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let (asked, _control) = request("a", TTL);
    let hold = granted(&backend, &asked).await;
    let (value, token) = (fixture.value("a").await, hold.token());
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    let other = delayed(&fixture, DELAY);
    in_the_end(async || other.connect().await).await;
    assert_delayed(&refused_for(&other, "a").await);
    assert_eq!(fixture.value("a").await, "", "it is forgotten");

    in_the_end(async || backend.connect().await).await;
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert_eq!(fixture.value("a").await, value, "with the same token");
    assert!(fixture.rest("a").await > TTL - 20 * SECOND);
    assert_delayed(&refused_for(&other, "a").await);

    // As if the delay were over.
    age_mark(&fixture).await;
    let later = delayed(&fixture, DELAY);
    busy(&later, &request("a", TTL).0).await;
    assert!(release(&hold).await);
    let next = take_for(&later, "a", TTL).await;
    assert!(next.token() > token, "tokens grow over the loss");
    assert!(release(&next).await);
}

#[testbed::test]
async fn holds_in_all_modes_are_put_back() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let permits = |take| Mode::Permits(Permits::new(take, 3).expect("fewer than there are"));
    let modes = [
        ("shared", Mode::Shared),
        ("shared", Mode::Upgradable),
        ("shared", Mode::Shared),
        ("permits", permits(1)),
        ("permits", permits(2)),
        ("downgraded", Mode::Exclusive),
    ];
    let mut holds = Vec::new();
    for (name, mode) in modes {
        let options = RequestOptions::new(crate::support::name(name), Terms::new(TTL)).mode(mode);
        let (asked, control) = options.start();
        holds.push((granted(&backend, &asked).await, control));
    }
    let downgraded = &holds.last().expect("several").0;
    let answer = downgraded.downgrade(TTL).await.expect("an answer");
    assert!(matches!(answer, Renewal::Renewed(_)), "{answer:?}");
    let statuses = async || {
        let mut shown = Vec::new();
        for name in ["shared", "permits", "downgraded"] {
            let status = backend.status(&crate::support::name(name)).await.expect("an answer");
            let holders = status.holders.iter();
            shown.push(holders.map(|holder| (holder.token, holder.mode)).collect::<Vec<_>>());
        }
        shown
    };
    let before = statuses().await;
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2, 1]);

    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    in_the_end(async || backend.connect().await).await;
    // In another order than before.
    for (hold, _control) in holds.iter().rev() {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    assert_eq!(statuses().await, before);
    for (hold, _control) in &holds {
        assert!(release(hold).await);
    }
    assert!(!fixture.exists("shared").await && !fixture.exists("permits").await);
}

#[testbed::test]
async fn a_hold_is_put_back_through_its_renewals() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let locks = Locker::new(backend);
    let guard = locks.lock("a").ttl(15 * SECOND).acquire().await.expect("a grant");
    let value = fixture.value("a").await;
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    eventually("it is there again", async || fixture.value("a").await == value).await;
    eventually("it is held", async || guard.state() == HoldState::Held).await;
    guard.release().await.expect("it was not lost");
}

#[testbed::test]
async fn what_somebody_else_has_is_not_taken_back() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let (foreign, overtaken) = (
        take_for(&backend, "foreign", TTL).await,
        take_for(&backend, "overtaken", TTL).await,
    );
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    let _: () = fixture.raw(&["SET", &fixture.lock_key("foreign"), "theirs"]).await;
    // A process without the delay had it in between.
    let careless = fixture.backend();
    assert!(release(&take_for(&careless, "overtaken", TTL).await).await);
    in_the_end(async || backend.connect().await).await;
    for hold in [foreign, overtaken] {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Lost), "{renewed:?}");
    }
    assert_eq!(fixture.value("foreign").await, "theirs");
    assert_eq!(fixture.value("overtaken").await, "");
}
