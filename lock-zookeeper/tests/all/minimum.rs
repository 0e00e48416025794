//! Minimum holds: the kept node, which has a name taken when its holder's node is gone; what becomes of it, and what others see
//! meanwhile.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, DistributedLock, Hold, ReleaseOptions, ReleaseOutcome};
use tokio::task::yield_now;
use tokio::time::Instant;
use zookeeper_client::CreateMode;

use crate::support::line::Line;
use crate::support::*;

mod ended_processes;

const MINIMUM: Duration = Duration::from_millis(1500);

/// Longer than any test takes.
const VERY_LONG: Duration = Duration::from_secs(600);

fn with_minimum(minimum: Duration) -> (AcquireRequest, RequestControl) {
    let terms = Terms::new(TTL.max(minimum)).minimum(minimum).label("host");
    RequestOptions::new(name("a"), terms).start()
}

async fn hold_at_least(
    backend: &impl DistributedLock,
    minimum: Duration,
) -> (Arc<dyn Hold>, AcquireRequest, RequestControl) {
    let (request, control) = with_minimum(minimum);
    let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    (hold, request, control)
}

fn is_kept(child: &str) -> bool {
    child.contains("-keep-lock-")
}

/// Polls once. Whether it is done then.
async fn polled_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// A persistent node beside the hold's own, with its sequence.
#[testbed::test]
async fn a_minimum_hold_has_a_node_that_outlasts_its_session() {
    in_some_run("nobody looked before the minimum was over", outlasts_its_session).await;
}

async fn outlasts_its_session() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let asked = Instant::now();
    let (held, _request, _control) = hold_at_least(&one, 2 * SESSION).await;
    let mut children = client.list_children(&directory).await.unwrap();
    if asked.elapsed() >= 2 * SESSION {
        return false;
    }
    children.sort();
    assert_eq!(
        children[0].replace("-keep-lock-", "-lock-"),
        children[1],
        "{children:?}"
    );
    let kept = format!("{directory}/{}", children[0]);
    let (data, stat) = client.get_data(&kept).await.unwrap();
    assert_eq!((data, stat.ephemeral_owner), (b"host\xFFkeep=8000".to_vec(), 0));
    // Its session ends without a release.
    let own = format!("{directory}/{}", children[1]);
    client.delete(&own, None).await.unwrap();
    let status = two.status(&name("a")).await.unwrap();
    let (request, _control) = trying("a");
    let attempt = happens("an answer to the acquire", two.acquire(&request)).await;
    if asked.elapsed() >= 2 * SESSION {
        return false;
    }
    assert_eq!(status.holders.len(), 1);
    assert_eq!(status.holders[0].label.as_deref(), Some("host"));
    assert_eq!(status.holders[0].token, None);
    assert_eq!(busy(attempt).holder.as_deref(), Some("host"));
    let (next, _request, _control) = hold(&two, "a").await;
    assert!(asked.elapsed() >= 2 * SESSION, "granted after {:?}", asked.elapsed());
    assert!(next.token() > held.token());
    next.release(ReleaseOptions::default()).await.unwrap();
    assert!(children_of(&client, &directory).await.is_empty());
    true
}

/// Whether its request had a minimum or not: the node is made or written in the transaction that deletes the holder's.
#[testbed::test]
async fn a_release_keeps_the_name_as_long_as_asked() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    for lock in ["a", "b"] {
        let directory = format!("{root}/{lock}");
        let (request, _control) = match lock {
            "a" => with_minimum(VERY_LONG),
            _ => waiting(lock),
        };
        let held = granted(happens("an answer to the acquire", one.acquire(&request)).await);
        let next = start_waiting(&two, (&client, &directory), 2 + usize::from(lock == "a"), waiting(lock)).await;
        let released = Instant::now();
        held.release(ReleaseOptions::default().keep_for(MINIMUM)).await.unwrap();
        let children = client.list_children(&directory).await.unwrap();
        // A busy machine may look too late.
        if released.elapsed() < MINIMUM {
            assert!(
                children.len() == 2 && children.iter().any(|child| is_kept(child)),
                "{children:?}"
            );
        }
        let (next, _control) = happens("the grant", next).await.unwrap();
        assert!(released.elapsed() >= MINIMUM, "granted after {:?}", released.elapsed());
        assert!(next.token() > held.token());
        let children = client.list_children(&directory).await.unwrap();
        assert!(!children.iter().any(|child| is_kept(child)), "{children:?}");
    }
}

/// Nobody waits for the name, and nobody asks for it again.
#[testbed::test]
async fn a_kept_node_goes_when_its_time_is_over() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (held, _request, _control) = hold_at_least(&one, VERY_LONG).await;
    let released = Instant::now();
    held.release(ReleaseOptions::default().keep_for(MINIMUM)).await.unwrap();
    children_until(&client, &directory, <[String]>::is_empty).await;
    assert!(released.elapsed() >= MINIMUM, "gone after {:?}", released.elapsed());
    // It was taken away, and never released.
    let (_held, request, _control) = hold_at_least(&one, MINIMUM).await;
    let children = client.list_children(&directory).await.unwrap();
    let own = children.iter().find(|child| !is_kept(child)).expect("its node");
    let granted = Instant::now();
    client.delete(&format!("{directory}/{own}"), None).await.unwrap();
    children_until(&client, &directory, <[String]>::is_empty).await;
    assert!(granted.elapsed() <= GENEROUS && !is_live(request.lease()));
}

#[testbed::test]
async fn a_release_after_the_minimum_keeps_nothing() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (held, _request, _control) = hold_at_least(&one, VERY_LONG).await;
    held.release(ReleaseOptions::default()).await.unwrap();
    assert!(children_of(&client, &format!("{root}/a")).await.is_empty());
    // A request without a minimum has one node.
    let (_held, _request, _control) = hold(&one, "a").await;
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 1);
}

#[testbed::test]
async fn an_abandoned_minimum_hold_leaves_nothing() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (_held, request, _control) = hold_at_least(&one, VERY_LONG).await;
    assert_eq!(client.list_children(&format!("{root}/a")).await.unwrap().len(), 2);
    happens("an answer to the abandon", one.abandon(&request))
        .await
        .unwrap();
    assert!(children_of(&client, &format!("{root}/a")).await.is_empty());
}

/// Nobody was told of the grant: the session ends before its caller asks for the answer.
#[testbed::test]
async fn a_minimum_hold_of_a_lost_session_is_abandoned_without_a_trace() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, client) = (backend_with(config(&line.address, &root)), observer(server).await);
    let directory = format!("{root}/a");
    one.connect().await.unwrap();
    let (request, _control) = with_minimum(VERY_LONG);
    {
        // Its task makes both nodes, whether its caller waits for that or not.
        let mut acquiring = pin!(one.acquire(&request));
        assert!(!polled_once(acquiring.as_mut()).await);
        children_until(&client, &directory, |children| children.len() == 2).await;
    }
    line.cut();
    let left = children_until(&client, &directory, |children| children.len() == 1).await;
    assert!(is_kept(&left[0]), "{left:?}");
    line.heal();
    // On another session.
    let (other, _control) = waiting("b");
    acquire(&one, &other).await;
    happens("an answer to the abandon", async {
        while let Err(error) = one.abandon(&request).await {
            assert!(error.is_retryable(), "{error}");
        }
    })
    .await;
    assert_eq!(children_of(&client, &directory).await, [""; 0]);
}

/// The holder was told of its grant, and lost it: the minimum stays.
#[testbed::test]
async fn a_minimum_hold_outlasts_a_lost_session() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, client) = (backend_with(config(&line.address, &root)), observer(server).await);
    let directory = format!("{root}/a");
    let (held, ..) = hold_at_least(&one, VERY_LONG).await;
    line.cut();
    children_until(&client, &directory, |children| children.len() == 1).await;
    line.heal();
    let release = held.release(ReleaseOptions::default().keep_for(VERY_LONG));
    let _ = happens("the release", release).await;
    drop(held);
    let left = client.list_children(&directory).await.unwrap();
    assert!(left.len() == 1 && is_kept(&left[0]), "{left:?}");
    let (request, _control) = trying("a");
    assert_eq!(
        busy(happens("an answer to the acquire", one.acquire(&request)).await)
            .holder
            .as_deref(),
        Some("host")
    );
}

/// The connection breaks while the kept node is being deleted.
#[testbed::test]
async fn the_kept_node_goes_when_its_time_is_over_even_if_its_delete_is_lost() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let config = config(&line.address, &root).with_session_timeout(STEADY);
    let (one, client) = (backend_with(config), observer(server).await);
    let directory = format!("{root}/a");
    in_some_run("the delete is not under way", async || {
        let (held, ..) = hold_at_least(&one, MINIMUM / 3).await;
        let asked = Instant::now();
        let released = happens("the release", held.release(ReleaseOptions::default().keep_for(MINIMUM))).await;
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        let is_over = Instant::now() + MINIMUM + MINIMUM / 19;
        // The delete is on its way then for half of this, but for the end of the connection.
        line.set_round_trip(GENEROUS);
        // On a busy machine it may have arrived before.
        let is_under_way = asked.elapsed() < MINIMUM;
        if is_under_way {
            tokio::time::sleep_until(is_over + SESSION / 16).await;
            assert_eq!(client.list_children(&directory).await.unwrap().len(), 1);
        }
        line.reset();
        line.set_round_trip(Duration::ZERO);
        children_until(&client, &directory, <[String]>::is_empty).await;
        is_under_way
    })
    .await;
}

/// Each is given up after another number of polls and turns, or when both nodes are there, while its connection stands or breaks.
#[testbed::test]
async fn a_minimum_hold_that_is_given_up_anywhere_leaves_nothing() {
    const POLLS: usize = 5;
    const TURNS: usize = 40;
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let one = patient(&line.address, &root);
    let client = observer(server).await;
    one.connect().await.unwrap();
    let mut made = 0;
    for (polls, turns) in (0..TURNS).flat_map(|turns| (0..POLLS).map(move |polls| (polls, turns))) {
        let lock = format!("{polls}-{turns}");
        let terms = Terms::new(2 * LONG).minimum(VERY_LONG);
        let (request, _control) = RequestOptions::new(name(&lock), terms).start();
        {
            let mut acquiring = pin!(one.acquire(&request));
            let mut is_done = false;
            for poll in 0..polls {
                if poll == 2 && turns % 2 == 0 {
                    line.reset();
                }
                is_done = is_done || polled_once(acquiring.as_mut()).await;
            }
            for _ in 0..turns {
                yield_now().await;
            }
            if polls > 0 && turns % 4 == 3 {
                let directory = format!("{root}/{lock}");
                tokio::select! {
                    _granted = acquiring.as_mut(), if !is_done => {}
                    _ = children_until(&client, &directory, |children| children.len() == 2) => {}
                }
                made += 1;
            }
        }
        happens("an answer to the abandon", async {
            while let Err(error) = one.abandon(&request).await {
                assert!(error.is_retryable(), "{error}");
            }
        })
        .await;
    }
    assert_eq!(made, (POLLS - 1) * TURNS / 4);
    for lock in children_of(&client, &root).await {
        let left = children_of(&client, &format!("{root}/{lock}")).await;
        assert!(left.is_empty(), "{lock}: {left:?}");
    }
}

/// A connection that breaks during the release: the name is kept from the release that took effect, and once.
#[testbed::test]
async fn a_release_whose_connection_breaks_keeps_the_name() {
    let (server, root) = (shared_server().await, fresh_root());
    let line = Line::to(server.address());
    let (one, client) = (patient(&line.address, &root), observer(server).await);
    let directory = format!("{root}/a");
    for lock in 0..20 {
        let directory = format!("{directory}{lock}");
        let terms = Terms::new(2 * LONG);
        let (request, _control) = RequestOptions::new(name(&format!("a{lock}")), terms).start();
        let held = granted(happens("an answer to the acquire", one.acquire(&request)).await);
        let mut releasing = pin!(held.release(ReleaseOptions::default().keep_for(VERY_LONG)));
        let mut is_done = polled_once(releasing.as_mut()).await;
        for _ in 0..lock {
            yield_now().await;
        }
        line.reset();
        if !is_done {
            is_done = happens("the release", releasing).await.unwrap() == ReleaseOutcome::Released;
        }
        assert!(is_done, "{lock}");
        let children = client.list_children(&directory).await.unwrap();
        assert!(children.len() == 1 && is_kept(&children[0]), "{children:?}");
    }
}

/// Whoever made it.
#[testbed::test]
async fn a_waiter_deletes_a_kept_node_that_is_over() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (held, _request, _control) = hold(&one, "a").await;
    held.release(ReleaseOptions::default()).await.unwrap();
    let kept = format!("{root}/a/_c_5a1f0000-0000-0000-0000-000000000000-keep-lock-0000000000");
    let made = Instant::now();
    create_in_directory(&client, &kept, b"\xFFkeep=1500", CreateMode::Persistent).await;
    let (_held, _request, _control) = hold(&one, "a").await;
    assert!(made.elapsed() >= MINIMUM, "granted after {:?}", made.elapsed());
    assert!(client.check_stat(&kept).await.unwrap().is_none());
}

/// Nobody knows when it ends, so nobody but its maker deletes it.
#[testbed::test]
async fn a_kept_node_without_a_time_is_left_alone() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (held, _request, _control) = hold(&one, "a").await;
    held.release(ReleaseOptions::default()).await.unwrap();
    let kept = format!("{root}/a/_c_5a1f0000-0000-0000-0000-000000000000-keep-lock-0000000000");
    create_in_directory(&client, &kept, b"other", CreateMode::Persistent).await;
    let (request, _control) = trying("a");
    busy(happens("an answer to the acquire", one.acquire(&request)).await);
    let waiting = start_waiting(&one, (&client, &format!("{root}/a")), 2, waiting("a")).await;
    client.delete(&kept, None).await.unwrap();
    happens("the grant", waiting).await.unwrap();
}
