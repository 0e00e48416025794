//! Tokens, and the offset that puts them above a floor.

use std::sync::{Arc, Mutex};

use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, DistributedLock, Hold, Mode, ReleaseOptions};
use lock_core::{ErrorKind, FencingToken};
use lock_zookeeper::ZooKeeperBackend;
use tokio::task::JoinSet;

use crate::support::*;

const FAR: u64 = 1 << 50;

async fn hold_above(backend: &ZooKeeperBackend, lock: &str, floor: u64) -> (Arc<dyn Hold>, RequestControl) {
    let (request, control) = options(lock).token_above(FencingToken::new(floor).unwrap()).start();
    let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
    assert!(hold.token().as_u64() > floor, "{} is not above {floor}", hold.token());
    (hold, control)
}

/// Acquires, compares the token with that of the status, if that shows one, and releases.
async fn token(backend: &ZooKeeperBackend, lock: &str) -> u64 {
    let (hold, _request, _control) = hold(backend, lock).await;
    let shown = shown(backend, lock).await;
    assert!(shown.is_none_or(|shown| shown == hold.token()), "{shown:?}");
    release(&*hold).await;
    hold.token().as_u64()
}

async fn shown(backend: &ZooKeeperBackend, lock: &str) -> Option<FencingToken> {
    backend.status(&name(lock)).await.unwrap().holders[0].token
}

async fn release(hold: &dyn Hold) {
    hold.release(ReleaseOptions::default()).await.unwrap();
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
        delete_directory(&client, &format!("{root}/a")).await;
    }
    // The root as well.
    delete_directory(&client, &root).await;
    let (hold, _request, _control) = hold(&backend, "a").await;
    assert!(last < Some(hold.token()));
}

/// A floor that one client has asked for counts for all of them, for all locks of the root path.
#[testbed::test]
async fn a_token_is_above_any_floor_and_all_later_ones_are() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    assert!(token(&one, "a").await < FAR);
    assert!(token(&two, "b").await < FAR);
    let (hold, _control) = hold_above(&one, "a", FAR).await;
    assert_eq!(shown(&two, "a").await, Some(hold.token()));
    release(&*hold).await;
    let mut last = hold.token().as_u64();
    let third = backend(server, &root);
    for backend in [&two, &one, &third, &two] {
        for _ in 0..2 {
            let next = token(backend, "a").await;
            assert!(next > last, "{last} was followed by {next}");
            last = next;
        }
        delete_directory(&client, &format!("{root}/a")).await;
    }
    assert!(token(&two, "b").await > FAR);
    assert!(token(&third, "c").await > FAR);
}

/// Its token is that of its grant, whatever another lock's floor was since.
#[testbed::test]
async fn a_hold_keeps_its_token_when_the_offset_is_raised() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two) = (backend(server, &root), backend(server, &root));
    let (before, _request, _control) = hold(&one, "a").await;
    let (raising, _control) = hold_above(&two, "b", FAR).await;
    assert_eq!(shown(&two, "a").await, Some(before.token()));
    release(&*before).await;
    let (between, _request, _control) = hold(&one, "a").await;
    let (again, _control) = hold_above(&two, "c", 2 * FAR).await;
    assert!(between.token().as_u64() > FAR);
    assert_eq!(shown(&two, "a").await, Some(between.token()));
    assert_eq!(shown(&one, "b").await, Some(raising.token()));
    assert_eq!(shown(&one, "c").await, Some(again.token()));
}

/// A waiter's node is older than a raise for which it waits.
#[testbed::test]
async fn a_waiter_gets_a_token_above_one_that_was_raised_before_it() {
    // If the machine stands still, its holder has written its token.
    in_some_run("the server knows when it was granted", waits_and_is_above).await;
}

async fn waits_and_is_above() -> bool {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let (first, _request, _control) = hold(&one, "a").await;
    let ask = |backend: &ZooKeeperBackend, request: AcquireRequest| {
        let backend = backend.clone();
        tokio::spawn(async move { backend.acquire(&request).await })
    };
    let queue = async |length| children_until(&client, &format!("{root}/a"), |children| children.len() == length).await;
    let (raising, _control) = options("a").token_above(FencingToken::new(FAR).unwrap()).start();
    let raising = ask(&two, raising);
    queue(2).await;
    let (plain, _control) = waiting("a");
    let plain = ask(&one, plain);
    queue(3).await;
    release(&*first).await;
    let raising = granted(happens("the grant", raising).await.unwrap());
    assert!(raising.token().as_u64() > FAR);
    release(&*raising).await;
    let plain = granted(happens("the grant", plain).await.unwrap());
    assert!(plain.token() > raising.token());
    let shown = shown(&two, "a").await;
    assert!(shown.is_none_or(|shown| shown == plain.token()), "{shown:?}");
    shown.is_none()
}

/// As another server has counted it. One that was reached gives the next one.
#[testbed::test]
async fn a_token_is_adopted_as_it_is() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two) = (backend(server, &root), backend(server, &root));
    let adopt = async |backend: &ZooKeeperBackend, wanted: u64| {
        let (request, _control) = options("a").token_at_least(FencingToken::new(wanted).unwrap()).start();
        let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
        assert_eq!(shown(backend, "a").await, Some(hold.token()));
        release(&*hold).await;
        hold.token().as_u64()
    };
    assert_eq!(adopt(&one, FAR).await, FAR);
    assert_eq!(adopt(&two, 2 * FAR).await, 2 * FAR);
    for wanted in [2 * FAR, 7] {
        let next = adopt(&one, wanted).await;
        assert!(next > 2 * FAR && next < 2 * FAR + (1 << 30), "{next}");
    }
}

/// Also by the grant of a waiter that was there before, and by a session that has not heard of it.
#[testbed::test]
async fn a_raised_token_is_below_all_later_ones() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (first, _request, _control) = hold(&one, "a").await;
    let second = start_waiting(&two, (&client, &directory), 2, waiting("a")).await;
    first.raise_token(FencingToken::new(FAR).unwrap()).await.unwrap();
    release(&*first).await;
    let (second, _control) = happens("the grant", second).await.unwrap();
    assert!(second.token().as_u64() > FAR);
    second.raise_token(FencingToken::new(2 * FAR).unwrap()).await.unwrap();
    // Reached already: nothing is written.
    let stored = client.get_data(&format!("{root}/%token-offset")).await.unwrap();
    second.raise_token(FencingToken::new(FAR).unwrap()).await.unwrap();
    let unchanged = client.get_data(&format!("{root}/%token-offset")).await.unwrap();
    assert_eq!(unchanged.1.version, stored.1.version);
    release(&*second).await;
    delete_directory(&client, &directory).await;
    assert!(token(&backend(server, &root), "a").await > 2 * FAR);
}

/// The hold's task has written the token of the grant before.
#[testbed::test]
async fn a_status_shows_a_raised_token() {
    let (server, client) = (shared_server().await, observer(shared_server().await).await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let root = fresh_root();
        let (one, two) = (backend(server, &root), backend(server, &root));
        let (request, _control) = labelled("a", Some("raising")).mode(mode).start();
        let hold = granted(happens("an answer to the acquire", one.acquire(&request)).await);
        token_is_written(&client, &format!("{root}/a")).await;
        for (raised, expected) in [(FAR, FAR), (7, FAR), (2 * FAR, 2 * FAR)] {
            hold.raise_token(FencingToken::new(raised).unwrap()).await.unwrap();
            assert_eq!(shown(&two, "a").await, FencingToken::new(expected), "{mode:?}");
        }
        let status = two.status(&name("a")).await.unwrap();
        assert_eq!(status.holders[0].label.as_deref(), Some("raising"));
        if mode == Mode::Exclusive {
            happens("the downgrade", hold.downgrade(TTL)).await.unwrap();
            let status = two.status(&name("a")).await.unwrap();
            let [holder] = &*status.holders else {
                panic!("{status:?}")
            };
            assert_eq!(
                (holder.mode, holder.token, holder.label.as_deref()),
                (Some(Mode::Shared), FencingToken::new(2 * FAR), Some("raising"))
            );
        }
        release(&*hold).await;
    }
}

/// Nothing is written in the place of a node that is gone.
#[testbed::test]
async fn a_hold_that_is_gone_raises_nothing() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let directory = format!("{root}/a");
    let (robbed, _request, _control) = hold(&one, "a").await;
    let [node] = &*client.list_children(&directory).await.unwrap() else {
        panic!("one holds it")
    };
    client.delete(&format!("{directory}/{node}"), None).await.unwrap();
    let (released, _request, _control) = hold(&one, "a").await;
    release(&*released).await;
    for gone in [robbed, released] {
        let error = gone.raise_token(FencingToken::new(FAR).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    let offset = client.get_data(&format!("{root}/%token-offset")).await;
    assert!(offset.is_err(), "{offset:?}");
}

/// Eight holders at once, of locks that share one offset.
#[testbed::test]
async fn raises_of_several_holds_do_not_undo_each_other() {
    let (server, root) = (shared_server().await, fresh_root());
    let mut holders = JoinSet::new();
    for number in 1..=8_u64 {
        let backend = backend(server, &root);
        holders.spawn(async move {
            let lock = format!("a{number}");
            let (hold, _request, _control) = hold(&backend, &lock).await;
            let raised = FencingToken::new(number * FAR).unwrap();
            hold.raise_token(raised).await.unwrap();
            release(&*hold).await;
            assert!(token(&backend, &lock).await > raised.as_u64());
        });
    }
    happens("all of them", holders.join_all()).await;
    assert!(token(&backend(server, &root), "b").await > 8 * FAR);
}

#[testbed::test]
async fn a_raise_that_leaves_no_tokens_is_refused() {
    let (server, root) = (shared_server().await, fresh_root());
    let one = backend(server, &root);
    let (hold, _request, _control) = hold(&one, "a").await;
    let error = hold
        .raise_token(FencingToken::new((1 << 63) - 1).unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    release(&*hold).await;
    assert!(token(&one, "a").await < FAR, "nothing was raised");
}

#[testbed::test]
async fn tokens_grow_while_everybody_raises_the_floor() {
    let (server, root) = (shared_server().await, fresh_root());
    let client = observer(server).await;
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut clients = JoinSet::new();
    for number in 0..4_u64 {
        let (backend, seen) = (backend(server, &root), seen.clone());
        clients.spawn(async move {
            for round in 0..8 {
                let last = seen.lock().unwrap().last().copied().unwrap_or(1);
                let hold = match (number + round) % 3 {
                    0 => hold(&backend, "a").await.0,
                    _ => hold_above(&backend, "a", last + number * 1000).await.0,
                };
                let shown = shown(&backend, "a").await;
                assert!(shown.is_none_or(|shown| shown == hold.token()), "{shown:?}");
                seen.lock().unwrap().push(hold.token().as_u64());
                release(&*hold).await;
                // Another lock raises it as well.
                release(&*hold_above(&backend, &format!("b{number}"), last + 500).await.0).await;
            }
        });
    }
    let stop = async {
        loop {
            // Fails while somebody waits.
            let _ = client.delete(&format!("{root}/a"), None).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = happens("all of them", clients.join_all()) => drop(done),
        never = stop => never,
    }
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 32 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[testbed::test]
async fn a_session_restores_an_offset_that_somebody_deleted() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (hold, _control) = hold_above(&one, "a", FAR).await;
    release(&*hold).await;
    client.delete(&format!("{root}/%token-offset"), None).await.unwrap();
    assert!(token(&one, "a").await > hold.token().as_u64());
    assert!(token(&backend(server, &root), "a").await > hold.token().as_u64());
}

#[testbed::test]
async fn other_data_in_the_offsets_node_is_an_error_and_stays() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    release(&*hold_above(&one, "a", FAR).await.0).await;
    let path = format!("{root}/%token-offset");
    client.set_data(&path, b"10.0.0.5", None).await.unwrap();
    let with_floor = options("a").token_above(FencingToken::new(2 * FAR).unwrap()).start();
    for (request, _control) in [trying("a"), with_floor] {
        let error = one.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&path), "{error}");
    }
    assert_eq!(client.get_data(&path).await.unwrap().0, b"10.0.0.5");
    assert!(!one.status(&name("a")).await.unwrap().is_held());
}

#[testbed::test]
async fn a_floor_that_leaves_no_tokens_is_refused() {
    let (server, root) = (shared_server().await, fresh_root());
    let one = backend(server, &root);
    for floor in [(1 << 63) - 1, (1 << 63) - (1 << 55)] {
        let (request, _control) = options("a").token_above(FencingToken::new(floor).unwrap()).start();
        let error = one.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
    assert!(token(&one, "a").await < FAR, "no other lock suffers");
    release(&*hold_above(&one, "a", (1 << 63) - (1 << 57)).await.0).await;
}
