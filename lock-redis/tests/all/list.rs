//! Names in pages, on a server with other keys.

use std::collections::BTreeSet;

use lock_core::backend::{DistributedLock, ListFrom};
use tokio::time::Instant;

use crate::support::*;

/// All names with this prefix, and how many pages they took.
async fn listed(backend: &lock_redis::RedisBackend, prefix: &str) -> (BTreeSet<String>, usize) {
    let (mut names, mut pages, mut next) = (BTreeSet::new(), 0, Some(ListFrom::prefix(prefix)));
    while let Some(from) = next {
        let page = backend.list(&from, 1000).await.expect("an answer");
        names.extend(page.names.iter().map(|name| name.as_str().to_owned()));
        (pages, next) = (pages + 1, page.next);
    }
    (names, pages)
}

/// Keys of other programs are no names, but what excludes us is one. The fence that a release leaves is none.
#[testbed::test]
async fn foreign_keys_are_names_only_if_they_keep_us_out() {
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    let held = take(&backend, "held").await;
    assert!(release(&take(&backend, "released").await).await);
    let _: () = fixture.raw(&["SET", "somebody's", "7", "PX", "60000"]).await;
    let _: () = fixture
        .raw(&["SET", &fixture.lock_key("foreign"), "7", "PX", "60000"])
        .await;
    let names: Vec<String> = listed(&backend, "").await.0.into_iter().collect();
    assert_eq!(names, ["foreign", "held"]);
    assert!(release(&held).await);
}

/// Writes so many locks that somebody holds.
async fn hold_many(fixture: &Fixture, names: usize) {
    for number in 0..names {
        let value = format!("{number:032x} 1 600000");
        let _: () = fixture
            .raw(&["SET", &fixture.lock_key(&number.to_string()), &value, "PX", "600000"])
            .await;
    }
}

/// Whoever wants a few names does not get all that the server has.
#[testbed::test]
async fn a_page_has_about_as_many_names_as_are_asked_for() {
    const NAMES: usize = 300;
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    hold_many(&fixture, NAMES).await;
    let (mut names, mut next) = (BTreeSet::new(), Some(ListFrom::all()));
    while let Some(from) = next {
        let page = backend.list(&from, 3).await.expect("an answer");
        // The server reads whole buckets of its table.
        assert!(page.names.len() < 50, "{} names in a page", page.names.len());
        names.extend(page.names.iter().map(|name| name.as_str().to_owned()));
        next = page.next;
    }
    assert_eq!(names.len(), NAMES);
}

/// The cursor of a server says nothing to the next one, which keeps its keys in another order.
#[testbed::test]
async fn a_list_that_goes_on_after_a_restart_misses_no_name() {
    const NAMES: usize = 3000;
    let Some(mut fixture) = Fixture::own().await else {
        return;
    };
    let backend = fixture.backend();
    hold_many(&fixture, NAMES).await;
    let first = backend.list(&ListFrom::all(), 1000).await.expect("an answer");
    let mut names: BTreeSet<String> = first.names.iter().map(|name| name.as_str().to_owned()).collect();
    assert!((1000..2000).contains(&names.len()), "{} names", names.len());
    fixture.server.restart().await.expect("it starts again");
    fixture.reconnect().await;
    let mut next = first.next;
    while let Some(from) = next {
        let page = in_the_end(async || backend.list(&from, 1000).await).await;
        names.extend(page.names.iter().map(|name| name.as_str().to_owned()));
        next = page.next;
    }
    assert_eq!(names.len(), NAMES);
}

/// Figures, for a quiet machine: `cargo test --release -p lock-redis --test redis -- --ignored --nocapture hundred_thousand`
#[testbed::test]
#[ignore = "it is for figures"]
async fn a_hundred_thousand_names_in_pages() {
    const NAMES: usize = 100_000;
    let fixture = Fixture::new().await;
    let backend = fixture.backend();
    for number in 0..NAMES {
        let key = fixture.lock_key(&format!("orders/{number}"));
        let value = format!("{number:032x} 1 600000 host:7");
        let _: () = fixture.raw(&["SET", &key, &value, "PX", "600000"]).await;
    }
    let start = Instant::now();
    let (names, pages) = listed(&backend, "orders/").await;
    println!(
        "{} names in {pages} pages of about 1000: {:?}",
        names.len(),
        start.elapsed()
    );
    assert_eq!(names.len(), NAMES);
}
