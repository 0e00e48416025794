//! Lists of names, and of a name's waiters.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use lock_core::LockName;
use lock_core::backend::request::Terms;
use lock_core::backend::{DistributedLock, ListFrom, Mode, ReleaseOptions};
use lock_zookeeper::ZooKeeperBackend;
use zookeeper_client::{Acls, CreateMode};

use crate::support::*;

/// All names with the prefix, and the number of pages.
async fn listed(backend: &ZooKeeperBackend, prefix: &str, at_most: usize) -> (BTreeSet<String>, usize) {
    let (mut names, mut pages, mut next) = (BTreeSet::new(), 0, Some(ListFrom::prefix(prefix)));
    while let Some(from) = next {
        let page = happens("the list", backend.list(&from, at_most)).await.unwrap();
        assert!(page.names.len() <= at_most, "{page:?}");
        names.extend(page.names.iter().map(LockName::as_str).map(str::to_owned));
        (pages, next) = (pages + 1, page.next);
    }
    (names, pages)
}

/// The server removes the directories of unused locks a minute later, and other nodes of the root path never.
#[testbed::test]
async fn only_names_with_a_queue_are_listed() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    assert_eq!(
        listed(&one, "", 10).await,
        (BTreeSet::new(), 1),
        "there is no root path yet"
    );
    let (held, _request, _control) = hold(&one, "held").await;
    let (left, _request, _control) = hold(&one, "left").await;
    left.release(ReleaseOptions::default()).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    // The node of a token offset, no name, a directory without nodes, one with another node, and a minimum hold that is over.
    for (path, data) in [
        ("%token-offset", ""),
        ("not%a%name", ""),
        ("empty", ""),
        ("strange", ""),
        ("strange/config", ""),
        ("over", ""),
        (
            "over/_c_01234567-89ab-cdef-0123-456789abcdef-keep-lock-0000000001",
            "\u{0}",
        ),
    ] {
        let data = match data {
            "" => Vec::new(),
            _ => b"label\xFFkeep=0".to_vec(),
        };
        client.create(&format!("{root}/{path}"), &data, &options).await.unwrap();
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(listed(&two, "", 10).await.0, names(&["held"]));
    client
        .create(&format!("{root}/strange/lock-0000000001"), b"", &options)
        .await
        .unwrap();
    assert_eq!(listed(&two, "", 1).await.0, names(&["held", "strange"]));
    held.release(ReleaseOptions::default()).await.unwrap();
    assert_eq!(listed(&two, "h", 1).await.0, names(&[]));
}

/// A page does not look at all directories of the root path, and the listing goes on behind them.
#[testbed::test]
async fn a_page_of_many_directories_without_a_queue_is_short() {
    const EMPTY: usize = 1030;
    let (server, root) = (shared_server().await, fresh_root());
    let (one, client) = (backend(server, &root), observer(server).await);
    let (_held, _request, _control) = hold(&one, "z").await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let directories = (0..EMPTY).map(|number| format!("{root}/{number}"));
    let making = directories.map(|path| {
        let (client, options) = (&client, &options);
        async move { client.create(&path, b"", options).await.unwrap() }
    });
    futures_util::future::join_all(making).await;
    let (names, pages) = listed(&one, "", 10).await;
    assert_eq!((names, pages), (BTreeSet::from(["z".to_owned()]), 2));
}

/// Figures, for a quiet machine: `cargo test --release -p lock-zookeeper --test zookeeper -- --ignored --nocapture hundred_thousand`
#[testbed::test]
#[ignore = "it is for figures"]
async fn a_hundred_thousand_names_in_pages() {
    const NAMES: usize = 100_000;
    let (server, root) = (own_server().await, fresh_root());
    let (one, client) = (backend(&server, &root), observer(&server).await);
    let (_held, _request, _control) = hold(&one, "z").await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for first in (0..NAMES).step_by(1000) {
        let making = (first..first + 1000).map(|number| {
            let (client, options, directory) = (&client, &options, format!("{root}/orders%2F{number}"));
            async move {
                client.create(&directory, b"", options).await.unwrap();
                let entry = format!("{directory}/lock-0000000001");
                client.create(&entry, b"", options).await.unwrap();
            }
        });
        futures_util::future::join_all(making).await;
    }
    let start = tokio::time::Instant::now();
    let (names, pages) = listed(&one, "orders/", 1000).await;
    println!("{} names in {pages} pages of 1000: {:?}", names.len(), start.elapsed());
    assert_eq!(names.len(), NAMES);
}

/// A label, a mode and a time for each, in the order of the queue.
#[testbed::test]
async fn waiters_are_shown_in_order() {
    let (server, root) = (shared_server().await, fresh_root());
    let (one, two, client) = (backend(server, &root), backend(server, &root), observer(server).await);
    let begun = SystemTime::now();
    let (held, _request, _control) = hold(&one, "a").await;
    let status = two.status(&name("a")).await.unwrap();
    let (holder, since) = (
        &status.holders[0],
        status.holders[0].since.expect("it was granted at once"),
    );
    assert!(
        holder.id.as_deref().is_some_and(|id| id.contains("-lock-")),
        "{holder:?}"
    );
    let directory = format!("{root}/a");
    let asked = [
        (Mode::Shared, Some("a reader")),
        (Mode::Exclusive, None),
        (Mode::Exclusive, Some("a writer")),
    ];
    let mut waiting = Vec::new();
    for (number, (mode, label)) in asked.into_iter().enumerate() {
        let mut terms = Terms::new(TTL);
        if let Some(label) = label {
            terms = terms.label(label);
        }
        let options = lock_core::backend::request::RequestOptions::new(name("a"), terms).mode(mode);
        let request = options.start();
        waiting.push(start_waiting(&two, (&client, &directory), number + 2, request).await);
    }
    let status = two.status(&name("a")).await.unwrap();
    let waiters = status.waiters.expect("the server knows them");
    let shown: Vec<_> = waiters
        .iter()
        .map(|waiter| (waiter.mode.expect("by its name"), waiter.label.as_deref()))
        .collect();
    assert_eq!((shown, status.waiting), (asked.to_vec(), Some(3)));
    let mut times = vec![begun - Duration::from_secs(1), since];
    times.extend(waiters.iter().map(|waiter| waiter.since.expect("by its node")));
    times.push(SystemTime::now() + Duration::from_secs(1));
    assert!(times.is_sorted(), "{times:?}");
    held.release(ReleaseOptions::default()).await.unwrap();
    for waiter in waiting {
        let (next, _control) = happens("the grant", waiter).await.unwrap();
        next.release(ReleaseOptions::default()).await.unwrap();
    }
}
