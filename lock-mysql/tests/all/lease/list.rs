//! Names in pages.

use std::time::Instant;

use lock_core::FencingToken;
use lock_core::backend::{DistributedLock, ListFrom, Revoke, Revoked};
use lock_mysql::{LeaseTableBackend, Strategy};
use testbed::in_some_run;

use super::support::*;
use crate::support::proxy::Proxy;
use crate::support::*;

/// The names with this prefix, and the number of pages of so many rows.
async fn names(backend: &LeaseTableBackend, prefix: &str, at_most: usize) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut next) = (Vec::new(), 0, Some(ListFrom::prefix(prefix)));
    while let Some(from) = next {
        let page = backend.list(&from, at_most).await.unwrap();
        names.extend(page.names.iter().map(ToString::to_string));
        (pages, next) = (pages + 1, page.next);
    }
    (names, pages)
}

/// How many names with this prefix there are, in how many pages of 1000 rows.
async fn listed(backend: &LeaseTableBackend, prefix: &str) -> (usize, usize) {
    let (names, pages) = names(backend, prefix, 1000).await;
    (names.len(), pages)
}

/// Makes rows of names that somebody holds, or that are free.
async fn make_rows(fixture: &Fixture, prefix: &str, count: usize, holder: &str) {
    for first in (0..count).step_by(1000) {
        let last = count.min(first + 1000);
        let rows: Vec<String> = (first..last).map(|number| format!("'{prefix}{number}'")).collect();
        insert(fixture, &rows, holder).await;
    }
}

/// Makes rows of these names, as they are written in SQL.
async fn insert(fixture: &Fixture, names: &[String], holder: &str) {
    let end = "UNIX_TIMESTAMP()*1000000+600000000";
    let rows: Vec<String> = (names.iter())
        .map(|name| format!("({name},{holder},{end},600000000,1,1)"))
        .collect();
    let (table, rows) = (format!("{}_leases", fixture.table), rows.join(","));
    let columns = "`name`,`holder`,`expires`,`term`,`token`,`last_token`";
    let mut observer = fixture.observer().await;
    observer
        .run(&format!("INSERT INTO {table} ({columns}) VALUES {rows}"))
        .await;
}

const SOMEBODY: &str = "'00112233445566778899aabbccddeeff'";

/// A page reads no more rows than it may have names: where all are free, it is empty, with more to come.
#[testbed::test]
async fn free_names_are_passed_over_page_by_page() {
    let fixture = Fixture::shared().await;
    let backend = backend(&fixture);
    grant(&backend, "z", secs(600)).await;
    make_rows(&fixture, "free/", 2500, "NULL").await;
    make_rows(&fixture, "held/", 10, SOMEBODY).await;
    assert_eq!(listed(&backend, "").await, (11, 3));
    assert_eq!(listed(&backend, "free/").await, (0, 3));
    assert_eq!(listed(&backend, "held/").await, (10, 1));
}

/// Another program wrote it. It must neither hide names nor end a list.
#[testbed::test]
async fn a_row_whose_name_is_no_text_is_passed_over() {
    let fixture = Fixture::shared().await;
    let backend = backend(&fixture);
    grant(&backend, "a0", secs(600)).await;
    let rows = ["'a1'", "x'6180'", "x'61ff'", "'b2'", "'\u{e9}3'", "x'ffff'"];
    insert(&fixture, &rows.map(str::to_owned), SOMEBODY).await;
    for at_most in 1..=rows.len() + 1 {
        let (names, _) = names(&backend, "", at_most).await;
        assert_eq!(names, ["a0", "a1", "b2", "\u{e9}3"], "{at_most} in a page");
    }
}

/// What is left to nobody has its token, label and end still.
#[testbed::test]
async fn a_lease_that_is_revoked_at_its_end_changes_its_holder_alone() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (backend(&fixture), fixture.observer().await);
    let granted = grant(&backend, "a", secs(600)).await;
    let columns = "CONCAT_WS(' ',token,last_token,expires,term)";
    let sql = format!("SELECT {columns} FROM {}_leases WHERE name='a'", fixture.table);
    let before = observer.text(&sql).await;
    let (name, token) = (lock_core::LockName::new("a").unwrap(), granted.hold.token());
    let revoked = backend.revoke(&name, token, Revoke::AtLeaseEnd).await.unwrap();
    assert!(matches!(revoked, Revoked::Done { .. }), "{revoked:?}");
    assert_eq!(observer.text(&sql).await, before);
    assert!(is_held(&mut observer, &fixture, "a").await);
}

/// The server ends the hold, and the connection breaks before the answer. A second request would find no hold.
#[testbed::test]
async fn a_revoke_whose_answer_is_lost_is_not_taken_for_one_of_no_hold() {
    let fixture = Fixture::shared().await;
    let (holding, mut observer, proxy) = (backend(&fixture), fixture.observer().await, Proxy::of(&fixture).await);
    let revoking = LeaseTableBackend::new(proxy.config(&fixture).with_strategy(Strategy::Lease)).unwrap();
    let name = lock_core::LockName::new("a").unwrap();
    // If the machine stands still, the answer is there before the connection is cut.
    in_some_run("the answer was not lost", async || {
        let token = grant(&holding, "a", secs(600)).await.hold.token();
        // Over the connections that end holds, as the server may have closed one that was used.
        let none = FencingToken::new(token.as_u64() + 1).unwrap();
        for _ in 0..4 {
            let revoked = insist("answered", async || revoking.revoke(&name, none, Revoke::Now).await).await;
            assert_eq!(revoked, Revoked::NotHeld);
        }
        proxy.delay(secs(2));
        let call = tokio::spawn({
            let (revoking, name) = (revoking.clone(), name.clone());
            async move { revoking.revoke(&name, token, Revoke::Now).await }
        });
        until("ended", async || !is_held(&mut observer, &fixture, "a").await).await;
        proxy.cut();
        proxy.heal();
        match soon("answered", call).await.unwrap() {
            Ok(Revoked::Done { .. }) => Err("an answer"),
            answer => {
                let error = answer.unwrap_err();
                assert!(error.is_retryable() && !error.is_not_executed(), "{error:?}");
                Ok(())
            }
        }
    })
    .await;
}

/// Figures, for a quiet machine: `cargo test --release -p lock-mysql --test mysql -- --ignored --nocapture hundred_thousand`
#[testbed::test]
#[ignore = "it is for figures"]
async fn a_hundred_thousand_names_in_pages() {
    const NAMES: usize = 100_000;
    let fixture = Fixture::shared().await;
    let backend = backend(&fixture);
    grant(&backend, "z", secs(600)).await;
    make_rows(&fixture, "orders/", NAMES, SOMEBODY).await;
    let start = Instant::now();
    let (names, pages) = listed(&backend, "orders/").await;
    println!("{names} names in {pages} pages of 1000: {:?}", start.elapsed());
    assert_eq!(names, NAMES);
}
