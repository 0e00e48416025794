//! What became of a hold after its grant stays so over the loss of data: its token was raised, or it was downgraded.

use lock_core::FencingToken;

use super::*;

/// Far above the server's clock.
fn far() -> FencingToken {
    FencingToken::new(5_000_000_000_000_000).expect("a token")
}

#[testbed::test]
async fn a_hold_is_put_back_with_its_raised_token() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = trusted(&fixture).await;
    let hold = take_for(&backend, "a", TTL).await;
    hold.raise_token(far()).await.expect("it is held");
    let (value, fence) = (fixture.value("a").await, fixture.fence("a").await);
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert_eq!((fixture.value("a").await, fixture.fence("a").await), (value, fence));
    assert!(release(&hold).await);
    age_mark(&fixture).await;
    let later = take_for(&delayed(&fixture, DELAY), "a", TTL).await;
    assert!(later.token() > far());
    assert!(release(&later).await);
}

#[testbed::test]
async fn a_token_is_raised_again_where_the_server_knows_the_hold_alone() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let hold = take_for(&fixture.backend(), "a", TTL).await;
    let before = (fixture.value("a").await, fixture.fence("a").await);
    hold.raise_token(far()).await.expect("it is held");
    let raised = (fixture.value("a").await, fixture.fence("a").await);
    assert_ne!(before, raised);
    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    let _: () = fixture
        .raw(&["SET", &fixture.lock_key("a"), &before.0, "PX", "60000"])
        .await;
    let _: () = fixture
        .raw(&["SET", &fixture.fence_key("a"), &before.1, "PX", "60000"])
        .await;
    let renewed = in_the_end(async || hold.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    assert_eq!((fixture.value("a").await, fixture.fence("a").await), raised);
    // Once.
    let scripts = fixture.scripts_run().await;
    hold.renew(TTL).await.expect("an answer");
    assert_eq!(fixture.scripts_run().await - scripts, 1);
    assert!(release(&hold).await);
}

#[testbed::test]
async fn a_hold_is_downgraded_again_where_the_server_knows_it_as_it_was() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let (backend, other) = (fixture.backend(), fixture.backend());
    let hold = take(&backend, "a").await;
    let before = fixture.value("a").await;
    let answer = hold.downgrade(TTL).await.expect("an answer");
    assert!(matches!(answer, Renewal::Renewed(_)), "{answer:?}");
    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    let _: () = fixture
        .raw(&["SET", &fixture.lock_key("a"), &before, "PX", "60000"])
        .await;
    for _ in 0..2 {
        let renewed = in_the_end(async || hold.renew(TTL).await).await;
        assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");
    }
    let (asked, _control) = crate::support::request_in(Mode::Shared, "a");
    let reader = in_the_end_granted(&other, &asked).await;
    assert!(release(&reader).await && release(&hold).await);
}
