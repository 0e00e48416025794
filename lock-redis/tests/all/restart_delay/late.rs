//! What puts a hold back and arrives late.

use super::*;
use crate::support::Proxied;

#[testbed::test]
async fn a_hold_that_was_released_is_not_put_back() {
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let _ = trusted(&fixture).await;
    let Proxied { proxy, backend } = Proxied::new(&fixture, |config| config.with_restart_delay(DELAY)).await;
    let hold = take_for(&backend, "a", TTL).await;
    let other = take_for(&backend, "b", TTL).await;
    fixture.server.restart_without_data().await.expect("it starts again");
    fixture.reconnect().await;
    // After the first, the server knows the script.
    let renewed = in_the_end(async || other.renew(TTL).await).await;
    assert!(matches!(renewed, Renewal::Renewed(_)), "{renewed:?}");

    let before = fixture.scripts_run().await;
    proxy.hold_answers();
    let renewing = tokio::spawn({
        let hold = hold.clone();
        async move { hold.renew(TTL).await }
    });
    eventually("the server has said that it does not know the hold", async || {
        fixture.scripts_run().await == before + 1
    })
    .await;
    proxy.hold_requests();
    proxy.let_answers_go();
    eventually("it is to be put back", async || proxy.has_held("EVALSHA")).await;
    proxy.hang_up();
    renewing.await.expect("no panic").expect_err("the answer never comes");
    in_the_end_released(&hold).await;

    let before = fixture.scripts_run().await;
    proxy.let_go();
    eventually("the late request arrives", async || {
        fixture.scripts_run().await > before
    })
    .await;
    assert_eq!(fixture.value("a").await, "", "a released hold came back");
    assert!(release(&other).await);
}
