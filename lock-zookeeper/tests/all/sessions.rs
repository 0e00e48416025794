//! The sessions of a backend: what each carries, and what follows.

use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use lock_core::ErrorKind;
use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome};
use testbed::Server;

use crate::support::line::Line;
use crate::support::*;

/// A session carries fewer holds of names of 512 bytes than this.
const LONG_NAMES: usize = 900;

fn long_name(number: usize) -> String {
    format!("{number:0>512}")
}

/// The sessions that own nodes below this root, with the bytes of their paths.
async fn owners(server: &Server, root: &str) -> Vec<usize> {
    let answer = ask(server, "dump").await;
    let mut owners = Vec::new();
    for line in answer.lines() {
        match line.trim() {
            line if line.starts_with("0x") && line.ends_with(':') => owners.push(0),
            line if line.starts_with(root) => *owners.last_mut().unwrap() += line.len() + 4,
            _ => {}
        }
    }
    owners.retain(|bytes| *bytes > 0);
    owners
}

/// How many watches there are, of data and of children: `wchs` counts the first kind alone.
async fn watches(server: &Server) -> usize {
    let answer = ask(server, "mntr").await;
    let count = answer
        .lines()
        .find_map(|line| line.strip_prefix("zk_watch_count"))
        .unwrap();
    count.trim().parse().unwrap()
}

async fn watches_until(server: &Server, enough: usize) {
    eventually(&format!("{enough} watches"), async || {
        let found = watches(server).await;
        (found >= enough).then_some(()).ok_or(found)
    })
    .await;
}

#[testbed::test]
async fn names_are_spread_over_sessions() {
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend(server, &root);
    let mut held = Vec::new();
    for number in 0..40 {
        held.push(hold(&backend, &format!("orders/{number}")).await);
    }
    assert_eq!(owners(server, &root).await.len(), 4);
    // A name has its session.
    for _ in 0..20 {
        let (hold, ..) = hold(&backend, "again").await;
        // Sent, and not waited for.
        assert!(hold.release(ReleaseOptions::default()).now_or_never().is_none());
        let (request, _control) = trying("again");
        let hold = granted(happens("an answer to the acquire", backend.acquire(&request)).await);
        hold.release(ReleaseOptions::default()).await.unwrap();
    }
    let one = backend_with(
        config(server.address(), &root)
            .with_session_timeout(STEADY)
            .with_sessions(1),
    );
    for number in 40..80 {
        held.push(hold(&one, &format!("orders/{number}")).await);
    }
    assert_eq!(owners(server, &root).await.len(), 5);
}

/// Also names that are asked for before there is any session.
#[testbed::test]
async fn names_that_begin_together_are_spread_too() {
    const NAMES: usize = 64;
    let (server, root) = (shared_server().await, fresh_root());
    let backend = backend(server, &root);
    let names: Vec<_> = (0..NAMES).map(|number| format!("orders/{number:0>3}")).collect();
    let held = happens("all of them", join_all(names.iter().map(|name| hold(&backend, name)))).await;
    let owned = owners(server, &root).await;
    let all: usize = owned.iter().sum();
    // Eight are in the first session, and a quarter of the others in each.
    assert!(
        owned.len() == 4 && owned.iter().all(|bytes| bytes * 2 < all),
        "the sessions carry {owned:?} bytes"
    );
    drop(held);
}

#[testbed::test]
async fn a_full_session_takes_no_more_and_the_next_one_does() {
    let (server, root) = (shared_server().await, fresh_root());
    let config = |sessions| {
        let config = config(server.address(), &root).with_session_timeout(LONG);
        config.with_sessions(sessions).with_connect_timeout(GENEROUS)
    };
    let backend = backend_with(config(1));
    let mut held = Vec::new();
    let full = loop {
        assert!(held.len() < LONG_NAMES);
        let (request, control) = long(&long_name(held.len()));
        match happens("an answer to the acquire", backend.acquire(&request)).await {
            Err(error) => break error,
            attempt => held.push((granted(attempt), request, control)),
        }
    };
    assert!(held.len() > LONG_NAMES / 2, "{}", held.len());
    assert_eq!(full.kind(), ErrorKind::Unavailable);
    assert!(full.is_not_executed(), "{full}");
    for hint in ["512 KiB", "`sessions`", "1 ZooKeeper session"] {
        assert!(full.to_string().contains(hint), "{full}");
    }
    let owned = owners(server, &root).await;
    assert!(owned.len() == 1 && owned[0] < 512 * 1024, "{owned:?}");

    // A release makes room.
    let (last, ..) = held.pop().unwrap();
    assert_eq!(
        last.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::Released
    );
    let (request, _control) = long(&long_name(5000));
    granted(happens("an answer to the acquire", backend.acquire(&request)).await);

    let two = backend_with(config(2));
    let others = (0..LONG_NAMES).map(async |number| {
        let (request, control) = long(&long_name(10_000 + number));
        (
            granted(happens("an answer to the acquire", two.acquire(&request)).await),
            control,
        )
    });
    let others = happens("all of them", join_all(others)).await;
    let owned = owners(server, &root).await;
    assert!(
        owned.len() == 3 && owned.iter().all(|bytes| *bytes < 512 * 1024),
        "{owned:?}"
    );
    drop(others);
}

/// Also after a reconnect: the driver breaks when it sends more than 128 KiB of watched paths again.
#[testbed::test]
async fn two_thousand_waiting_names_have_watches() {
    const NAMES: usize = 2000;
    let (server, root) = (own_server().await, fresh_root());
    let lock = |number: usize| format!("{number:0>100}");
    let holder = patient(server.address(), &root);
    let held: Vec<_> = stream::iter(0..NAMES)
        .map(|number| {
            let (request, control) = long(&lock(number));
            let holder = &holder;
            async move {
                (
                    granted(happens("an answer to the acquire", holder.acquire(&request)).await),
                    control,
                )
            }
        })
        .buffered(64)
        .collect()
        .await;
    // Of the holders, for the ends of their holds.
    watches_until(&server, NAMES).await;

    let line = Line::to(server.address());
    // All in one session.
    let waiter = config(&line.address, &root);
    let waiter = backend_with(
        waiter
            .with_session_timeout(LONG)
            .with_connect_timeout(GENEROUS)
            .with_sessions(1),
    );
    let mut waiting = Vec::new();
    for number in 0..NAMES {
        let (request, control) = long(&lock(number));
        let waiter = waiter.clone();
        waiting.push(tokio::spawn(async move {
            let _control = control;
            waiter.acquire(&request).await
        }));
    }
    watches_until(&server, 2 * NAMES).await;
    line.cut();
    // The server drops a connection's watches when it has ended.
    eventually("the watches have gone", async || watches(&server).await < 2 * NAMES).await;
    line.heal();
    watches_until(&server, 2 * NAMES).await;

    for (number, (hold, _)) in held.iter().enumerate().step_by(400) {
        happens("the release", hold.release(ReleaseOptions::default()))
            .await
            .unwrap();
        granted(happens("the grant", &mut waiting[number]).await.unwrap());
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
