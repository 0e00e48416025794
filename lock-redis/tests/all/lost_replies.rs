//! Requests whose reply is lost: a repetition makes up for it.

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, Locker};

use crate::support::waiter::Waiter;
use crate::support::{
    AT_MOST, Fixture, Proxied, TTL, eventually, in_the_end, in_the_end_granted, in_the_end_released, name, release,
    request, take,
};

fn is_unknown<T: std::fmt::Debug>(answer: lock_core::Result<T>) {
    let error = answer.expect_err("the answer is swallowed");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable());
}

#[testbed::test]
async fn a_reply_swallowed_on_an_acquire_or_a_renewal_is_made_up_for() {
    let fixture = Fixture::new().await;
    let client = Proxied::quick(&fixture).await;
    let (wanted, _control) = request("a", TTL);
    let id = wanted.holder().to_string();

    client.proxy.swallow_after(&id);
    is_unknown(client.backend.acquire(&wanted).await);
    eventually("it was granted", async || fixture.value("a").await.starts_with(&id)).await;
    let hold = in_the_end_granted(&client.backend, &wanted).await;
    client.proxy.swallow_after(&id);
    is_unknown(hold.renew(2 * TTL).await);
    eventually("it was renewed", async || fixture.rest("a").await > TTL).await;
    assert!(matches!(
        in_the_end(async || hold.renew(2 * TTL).await).await,
        Renewal::Renewed(_)
    ));
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn a_reply_swallowed_on_a_release_is_made_up_for() {
    let fixture = Fixture::new().await;
    let client = Proxied::quick(&fixture).await;
    let (wanted, _control) = request("a", TTL);
    let hold = in_the_end_granted(&client.backend, &wanted).await;
    let id = wanted.holder().to_string();
    client.proxy.swallow_after(&id);
    is_unknown(hold.release(ReleaseOptions::default()).await);
    eventually("it was released", async || !fixture.exists("a").await).await;
    assert!(!in_the_end(async || hold.release(ReleaseOptions::default()).await.map(is_released)).await);
}

#[testbed::test]
async fn a_reply_swallowed_on_a_release_that_keeps_the_name_is_made_up_for() {
    let fixture = Fixture::new().await;
    let client = Proxied::quick(&fixture).await;
    let (wanted, _control) = request("a", TTL);
    let hold = in_the_end_granted(&client.backend, &wanted).await;
    client.proxy.swallow_after(&wanted.holder().to_string());
    let keep = ReleaseOptions::default().keep_for(TTL);
    is_unknown(hold.release(keep).await);
    eventually("it was kept", async || fixture.value("a").await.starts_with("kept")).await;
    let value = fixture.value("a").await;
    assert!(!in_the_end(async || hold.release(keep).await.map(is_released)).await);
    assert_eq!(fixture.value("a").await, value);
}

fn is_released(outcome: ReleaseOutcome) -> bool {
    outcome == ReleaseOutcome::Released
}

#[testbed::test]
async fn a_reply_swallowed_on_the_first_request_of_a_locker_is_outlasted() {
    let fixture = Fixture::new().await;
    let client = Proxied::quick(&fixture).await;
    client.proxy.swallow_after(&fixture.lock_key("a"));
    let locks = Locker::new(client.backend.clone());
    let guard = locks.lock("a").ttl(TTL).acquire_within(AT_MOST).await;
    guard.expect("it was there").release().await.expect("still ours");
    locks.shutdown().await.expect("nothing is left");
    assert_eq!(fixture.keys().await, [fixture.fence_key("a")]);
}

#[testbed::test]
async fn a_reply_swallowed_while_waiting_is_made_up_for() {
    let fixture = Fixture::new().await;
    let client = Proxied::quick(&fixture).await;
    let hold = take(&fixture.backend(), "a").await;

    // The reply that it has an entry: asked again, it has the same one.
    let before = RequestOptions::new(name("a"), Terms::new(TTL)).start();
    let id = before.0.holder().to_string();
    client.proxy.swallow_after(&id);
    let waiter = Waiter::of(&client.backend, before);
    eventually("it waits over another connection", async || {
        client.proxy.connections() > 1 && waiter.request.last_busy().is_some()
    })
    .await;
    assert_eq!(fixture.queue("a").await, std::slice::from_ref(&id));

    // The answer to its confirm.
    client.proxy.swallow_after(&id);
    assert!(release(&hold).await);
    let hold = waiter.granted().await;
    assert!(fixture.value("a").await.starts_with(&id));
    assert_eq!(fixture.queue("a").await, <[String; 0]>::default());

    // The reply to the abandon of an entry.
    let leaving = Waiter::queued(&fixture, &client.backend, "a", TTL).await;
    client.proxy.swallow_after(&leaving.id());
    leaving.control.give_up();
    is_unknown(client.backend.abandon(&leaving.request).await);
    eventually("it has left", async || fixture.queue("a").await.is_empty()).await;
    in_the_end(async || client.backend.abandon(&leaving.request).await).await;
    in_the_end_released(&hold).await;
    assert!(!fixture.exists("a").await);
}
