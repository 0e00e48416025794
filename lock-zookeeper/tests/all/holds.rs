//! Acquire, release, renew, abandon, tokens, status: on a server that works.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal, RequestOptions, Terms};
use lock_core::{Ended, ErrorKind, FencingToken, HoldState, LostCause};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, CreateMode};

use crate::support::*;

#[testbed::test]
async fn acquires_and_releases() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (hold, request, _control) = hold(&backend, "a").await;
    assert_eq!(request.lease().state(), HoldState::Held);
    assert!(request.lease().valid_for() <= SESSION);
    let children = client.list_children(&format!("{root}/a")).await.unwrap();
    assert_eq!(children.len(), 1);
    assert!(
        children[0].starts_with("_c_") && children[0].contains("-lock-"),
        "{children:?}"
    );
    let (_, stat) = client.get_data(&format!("{root}/a/{}", children[0])).await.unwrap();
    assert_eq!(hold.token(), FencingToken::new(stat.czxid as u64).unwrap());
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Released
    );
    assert!(client.list_children(&format!("{root}/a")).await.unwrap().is_empty());
    assert_eq!(
        hold.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
}

#[testbed::test]
async fn a_try_is_busy_and_leaves_nothing() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (request, _control) = labelled("a", Some("worker 1 ✓")).start();
    let hold = granted(one.acquire(&request).await);
    let (other, _control) = trying("a");
    assert_eq!(busy(two.acquire(&other).await).holder.as_deref(), Some("worker 1 ✓"));
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    hold.release(ReleaseOptions::default()).await.unwrap();
    granted(two.acquire(&other).await);
}

#[testbed::test]
async fn waiters_are_served_in_order_with_growing_tokens() {
    let (server, root) = (shared_server().await, fresh_root());
    let client = observer(server).await;
    let (first, _request, _control) = hold(&backend(server, &root), "a").await;
    let mut tokens = vec![first.token()];
    let mut waiters = Vec::new();
    for count in 2..6 {
        let backend = backend(server, &root);
        let (request, control) = waiting("a");
        let task = tokio::spawn({
            let request = request.clone();
            async move { (granted(backend.acquire(&request).await), backend, control) }
        });
        children_until(&client, &format!("{root}/a"), |children| children.len() == count).await;
        waiters.push((task, request));
    }
    let mut holding = first;
    for (task, request) in waiters {
        within(async {
            while request.last_busy().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert!(!task.is_finished());
        holding.release(ReleaseOptions::default()).await.unwrap();
        let (hold, _backend, _control) = within(task).await.unwrap();
        tokens.push(hold.token());
        assert!(is_believed(request.lease()), "{:?}", request.lease().state());
        holding = hold;
        // The backend goes with its hold kept: the hold keeps what it needs.
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[testbed::test]
async fn a_waiter_that_is_given_up_leaves_the_queue() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (request, _control) = labelled("a", Some("holder")).start();
    let _hold = granted(one.acquire(&request).await);
    let (other, control) = waiting("a");
    let waiting = tokio::spawn({
        let (two, other) = (two.clone(), other.clone());
        async move { two.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    control.give_up();
    let answer = within(waiting).await.unwrap();
    if let Ok(answer) = &answer {
        assert!(matches!(answer, lock_core::backend::Attempt::Busy(_)), "{answer:?}");
    }
    children_until(&client, &format!("{root}/a"), |children| children.len() == 1).await;
    two.abandon(&other).await.unwrap();
}

#[testbed::test]
async fn the_session_keeps_a_hold_for_much_longer_than_its_timeout() {
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend(server, &root);
    let (_hold, request, _control) = hold(&backend, "a").await;
    let started = Instant::now();
    while started.elapsed() < 5 * SESSION / 2 {
        assert!(is_believed(request.lease()), "after {:?}", started.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
}

#[testbed::test]
async fn the_same_request_gets_the_same_grant() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (first, request, _control) = hold(&backend, "a").await;
    let token = first.token();
    let again = granted(within(backend.acquire(&request)).await);
    assert_eq!(again.token(), token);
    drop((first, again));
    let third = granted(within(backend.acquire(&request)).await);
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
    assert!(matches!(within(hold.renew(TTL)).await.unwrap(), Renewal::Lost));
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
    let Ended::Lost(lost) = within(request.lease().ended()).await else {
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
    within(backend.abandon(&request)).await.unwrap();
    within(backend.abandon(&request)).await.unwrap();
    assert!(client.list_children(&format!("{root}/a")).await.unwrap().is_empty());
    // A place, and its acquire.
    let (_hold, _request, _control) = hold(&backend, "a").await;
    let (other, _control) = waiting("a");
    let waiting = tokio::spawn({
        let (backend, other) = (backend.clone(), other.clone());
        async move { backend.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    within(backend.abandon(&other)).await.unwrap();
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    within(waiting).await.unwrap().unwrap_err();
}

#[testbed::test]
async fn dropping_every_handle_ends_the_hold_by_itself() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (hold, request, _control) = hold(&backend, "a").await;
    drop(hold);
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
    within(request.lease().ended()).await;
    children_until(&client, &format!("{root}/a"), |children| children.is_empty()).await;
}

#[testbed::test]
async fn a_fixed_lease_ends_at_its_time() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two) = (backend(server, &root), backend(server, &root));
    let ttl = 2 * SESSION;
    let (request, _control) = RequestOptions::new(name("a"), Terms::new(ttl)).fixed(true).start();
    let started = Instant::now();
    let _hold = granted(one.acquire(&request).await);
    let left = request.lease().valid_for();
    assert!(left <= SESSION, "no longer than the session is known to live: {left:?}");
    hold(&two, "a").await;
    assert!(started.elapsed() >= ttl, "{:?}", started.elapsed());
    assert!(matches!(request.lease().state(), HoldState::Lost(lost) if lost.cause() == LostCause::Expired));
}

#[testbed::test]
async fn tokens_grow_after_the_directory_was_removed() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let mut last = None;
    for _ in 0..3 {
        let (hold, _request, _control) = hold(&backend, "a").await;
        assert!(last < Some(hold.token()), "{last:?}");
        last = Some(hold.token());
        hold.release(ReleaseOptions::default()).await.unwrap();
        client.delete(&format!("{root}/a"), None).await.unwrap();
    }
    // The root as well.
    client.delete(&root, None).await.unwrap();
    let (hold, _request, _control) = hold(&backend, "a").await;
    assert!(last < Some(hold.token()));
}

/// What a hand-over leaves behind: a directory written after waiters queued.
#[testbed::test]
async fn a_waiter_that_queued_before_a_hand_over_gets_a_newer_token() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&one, "a").await;
    let (other, _control) = waiting("a");
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { (granted(two.acquire(&other).await), two) }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    let handed = client.set_data(&format!("{root}/a"), b"", None).await.unwrap().mzxid;
    first.release(ReleaseOptions::default()).await.unwrap();
    let (second, two) = within(waiting).await.unwrap();
    assert!(second.token().as_u64() > handed as u64);
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].token, Some(second.token()));
}

#[testbed::test]
async fn tokens_go_above_a_floor_within_reach() {
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend(server, &root);
    let (first, _request, _control) = hold(&backend, "a").await;
    let floor = FencingToken::new(first.token().as_u64() + 20).unwrap();
    let (request, _control) = options("b").token_above(floor).start();
    assert!(granted(backend.acquire(&request).await).token() > floor);
    let (request, _control) = options("c").token_above(FencingToken::new(1 << 62).unwrap()).start();
    let error = backend.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!backend.status(&name("c")).await.unwrap().is_held());
}

#[testbed::test]
async fn status_tells_who_has_it_and_how_many_wait() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    assert_eq!(
        one.status(&name("a")).await.unwrap(),
        lock_core::backend::LockStatus::free()
    );
    let label = "ü".repeat(127);
    let (request, _control) = labelled("a", Some(&label)).start();
    let hold = granted(one.acquire(&request).await);
    let (other, _control) = waiting("a");
    let waiting = tokio::spawn({
        let two = two.clone();
        async move { two.acquire(&other).await }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    let status = two.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some(&*label));
    assert_eq!(status.holders[0].token, Some(hold.token()));
    assert_eq!(status.waiting, Some(1));
    waiting.abort();
}

#[testbed::test]
async fn the_winner_brings_its_label_as_it_is_then() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&one, "a").await;
    let (other, control) = labelled("a", Some("before")).start();
    let waiting = tokio::spawn({
        let (two, other) = (two.clone(), other.clone());
        async move { granted(two.acquire(&other).await) }
    });
    children_until(&client, &format!("{root}/a"), |children| children.len() == 2).await;
    control.set_terms(Terms::new(TTL).label("after"));
    first.release(ReleaseOptions::default()).await.unwrap();
    let _hold = within(waiting).await.unwrap();
    let status = one.status(&name("a")).await.unwrap();
    assert_eq!(status.holders[0].label.as_deref(), Some("after"));
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
    let directories: HashSet<_> = client.list_children(&root).await.unwrap().into_iter().collect();
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

#[testbed::test]
async fn a_stranger_in_the_queue_is_waited_for() {
    let (server, root) = (shared_server().await, fresh_root());
    let (backend, client) = (backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&backend, "a").await;
    first.release(ReleaseOptions::default()).await.unwrap();
    // As Curator's InterProcessMutex makes them.
    let path = format!("{root}/a/_c_5a1f0000-0000-0000-0000-000000000000-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(&path, b"10.0.0.1", &options).await.unwrap();
    let (request, _control) = trying("a");
    assert_eq!(
        busy(backend.acquire(&request).await).holder.as_deref(),
        Some("10.0.0.1")
    );
    client.delete(&format!("{path}{sequence}"), None).await.unwrap();
    let (request, _control) = trying("a");
    granted(backend.acquire(&request).await);
}

#[testbed::test]
async fn a_contended_name_excludes() {
    let (server, root) = (shared_server().await, fresh_root());
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let backend = backend(server, &root);
        for _ in 0..10 {
            let (backend, inside) = (backend.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let (hold, _request, _control) = hold(&backend, "a").await;
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(
                        hold.release(ReleaseOptions::default()).await.unwrap(),
                        ReleaseOutcome::Released
                    );
                }
            }));
        }
    }
    for task in tasks {
        within(task).await.unwrap();
    }
}
