//! Acquire, release, renew, abandon, tokens, status: on a server that works.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::backend::request::{RequestOptions, Terms};
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{Ended, ErrorKind, FencingToken, HoldState, LostCause};
use tokio::time::{Instant, sleep};

use crate::support::*;

#[testbed::test]
async fn acquires_and_releases() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (hold, request, _control) = hold(&backend, "a").await;
    assert_eq!(request.lease().state(), HoldState::Held);
    assert!(request.lease().valid_for() <= STEADY);
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    assert_eq!(children.len(), 1);
    assert!(
        children[0].starts_with("_c_") && children[0].contains("-lock-"),
        "{children:?}"
    );
    let (_, stat) = client.get_data(&format!("{root}/a/{}", children[0])).await.unwrap();
    assert_eq!(hold.token(), FencingToken::new(stat.czxid as u64 * 16).unwrap());
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Released
    );
    assert!(children_of(&client, &format!("{root}/a")).await.is_empty());
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
}

/// Zero, and not "unknown", though the server has no directory of that name.
#[testbed::test]
async fn nobody_waits_for_a_name_that_was_never_used() {
    let backend = backend(shared_server().await, &fresh_root());
    let status = happens("the status", backend.status(&name("a"))).await.unwrap();
    assert_eq!((status.is_held(), status.waiting), (false, Some(0)));
}

#[testbed::test]
async fn the_session_keeps_a_hold_for_much_longer_than_its_timeout() {
    let server = shared_server().await;
    in_some_run("the hold was lost", async || {
        let backend = short_lived(server, &fresh_root());
        let (_hold, request, _control) = hold(&backend, "a").await;
        let started = Instant::now();
        while started.elapsed() < 5 * SESSION / 2 {
            if !is_live(request.lease()) {
                println!("after {:?}", started.elapsed());
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        true
    })
    .await;
}

#[testbed::test]
async fn the_same_request_gets_the_same_grant() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (first, request, _control) = hold(&backend, "a").await;
    let token = first.token();
    let again = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    assert_eq!(again.token(), token);
    drop((first, again));
    let third = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    assert_eq!(third.token(), token);
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    assert_eq!(
        third.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Released
    );
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
}

#[testbed::test]
async fn a_renewal_asks_the_server() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (hold, request, _control) = hold(&backend, "a").await;
    assert!(matches!(hold.renew(TTL).await.unwrap(), Renewal::Renewed(_)));
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    client.delete(&format!("{root}/a/{}", children[0]), None).await.unwrap();
    assert!(matches!(
        happens("the renewal", hold.renew(TTL)).await.unwrap(),
        Renewal::Lost
    ));
    assert!(matches!(request.lease().state(), HoldState::Lost(_)));
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
}

#[testbed::test]
async fn a_hold_that_somebody_deleted_is_lost_without_asking() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (_hold, request, _control) = hold(&one, "a").await;
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    client.delete(&format!("{root}/a/{}", children[0]), None).await.unwrap();
    let Ended::Lost(lost) = happens("the end of the lease", request.lease().ended()).await else {
        panic!("it was not released")
    };
    assert_eq!(lost.cause(), LostCause::NotHeld);
    hold(&two, "a").await;
}

#[testbed::test]
async fn abandoning_undoes_whatever_there_is() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    // Nothing.
    let (never, _control) = waiting("a");
    backend.abandon(&never).await.unwrap();
    assert_eq!(backend.acquire(&never).await.unwrap_err().kind(), ErrorKind::Unexpected);
    // A hold.
    let (_hold, request, _control) = hold(&backend, "a").await;
    happens("an answer to the abandon", backend.abandon(&request))
        .await
        .unwrap();
    happens("an answer to the abandon", backend.abandon(&request))
        .await
        .unwrap();
    assert!(children_of(&client, &format!("{root}/a")).await.is_empty());
    // A place, and its acquire.
    let (_hold, _request, _control) = hold(&backend, "a").await;
    let (other, _control) = waiting("a");
    let waiting = tokio::spawn({
        let (backend, other) = (backend.clone(), other.clone());
        async move { backend.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    happens("an answer to the abandon", backend.abandon(&other))
        .await
        .unwrap();
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    happens("the wait ends", waiting).await.unwrap().unwrap_err();
}

#[testbed::test]
async fn dropping_every_handle_ends_the_hold_by_itself() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (short_lived(server, &root), observer(server).await);
    let (hold, request, _control) = hold(&backend, "a").await;
    drop(hold);
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    happens("the end of the lease", request.lease().ended()).await;
    children_until(&client, &format!("{root}/a"), |children| children.is_empty()).await;
}

#[testbed::test]
async fn a_fixed_lease_ends_at_its_time() {
    let (server, root) = (shared_server().await, fresh_root());
    // A session that ends early, since the machine stood still, frees the name early.
    let session = SESSION * 3 / 2;
    let ttl = 2 * session;
    let one = backend_with(config(server.address(), &root).with_session_timeout(session));
    let two = backend(server, &root);
    let (request, _control) = RequestOptions::new(name("a"), Terms::new(ttl)).fixed(true).start();
    let started = Instant::now();
    let _hold = granted(one.acquire(&request).await);
    let left = request.lease().valid_for();
    assert!(left <= session, "no longer than the session is known to live: {left:?}");
    hold(&two, "a").await;
    assert!(started.elapsed() >= ttl, "{:?}", started.elapsed());
    assert!(matches!(request.lease().state(), HoldState::Lost(lost) if lost.cause() == LostCause::Expired));
}

/// A release that was sent comes before whatever is sent after it.
#[testbed::test]
async fn an_acquire_after_an_unanswered_release_is_granted() {
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend(server, &root);
    for _ in 0..20 {
        let (hold, _request, _control) = hold(&backend, "a").await;
        let (request, _control) = trying("a");
        let (released, attempt) = tokio::join!(hold.release(ReleaseOptions::default()), backend.acquire(&request));
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        granted(attempt).release(ReleaseOptions::default()).await.unwrap();
    }
}

#[testbed::test]
async fn names_never_meet() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let long = "/".repeat(512);
    let names = [
        "a",
        "A",
        " ",
        "a ",
        ".",
        "..",
        "/",
        "a/b",
        "a//b",
        "/a",
        "%",
        "%2F",
        "a\0",
        "\0",
        "a\nb",
        "{a}",
        "ä",
        "a\u{308}",
        "\u{feff}",
        "\u{fff0}",
        "𝄞",
        "zookeeper",
        "_c_x-lock-0000000001",
        &long,
    ];
    let mut holds = Vec::new();
    for name in names {
        let (request, control) = trying(name);
        holds.push((granted(backend.acquire(&request).await), control));
        assert!(backend.status(request.name()).await.unwrap().is_held());
    }
    let mut directories: HashSet<_> = client.list_children(&root).await.unwrap().into_iter().collect();
    // It has no name.
    directories.remove("%token-offset");
    assert_eq!(directories.len(), names.len());
    for name in names {
        let (request, _control) = trying(name);
        busy(backend.acquire(&request).await);
    }
}

#[testbed::test]
async fn roots_separate_applications() {
    let server = shared_server().await;
    let (one, two) = (backend(server, &fresh_root()), backend(server, &fresh_root()));
    let _one = hold(&one, "a").await;
    let (request, _control) = trying("a");
    granted(two.acquire(&request).await);
}
