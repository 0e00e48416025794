//! Waiters whose process is not connected: they cost the others little, and those that come back have their position again.

use lock_core::backend::{DistributedLock, HolderId};

use crate::support::waiter::Waiter;
use crate::support::{Fixture, Proxied, TTL, eventually, release, take};

/// The number of the first entry of a queue.
const FIRST: i64 = -1_000_000_000_000_000;

/// Appends so many entries of ended processes to a queue.
async fn append_disconnected(fixture: &Fixture, name: &str, count: usize) {
    let expires = ((fixture.now().await.as_secs() + 14) * 1000).to_string();
    let mut command = vec!["ZADD".to_owned(), fixture.queue_key(name)];
    for number in 0..count {
        let entry = format!("{number:032x} {}inbox:{number:032x}", fixture.prefix);
        let number = (FIRST + i64::try_from(number).expect("not so many")).to_string();
        command.extend([number, entry.clone(), expires.clone(), format!(">{entry}")]);
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let added: usize = fixture.raw(&command).await;
    assert_eq!(added, 2 * count);
}

/// How often a script has checked which inboxes are connected.
async fn checks(fixture: &Fixture) -> u64 {
    fixture.calls("pubsub|numsub:").await
}

/// The number of a waiter's entry, lower than any while it is set aside.
async fn number(fixture: &Fixture, name: &str, id: &str) -> Option<i64> {
    let queue: Vec<(String, i64)> = fixture
        .raw(&["ZRANGEBYSCORE", &fixture.queue_key(name), "-inf", "(0", "WITHSCORES"])
        .await;
    queue
        .into_iter()
        .find(|(entry, _)| entry.starts_with(id))
        .map(|(_, number)| number)
}

#[testbed::test]
async fn many_disconnected_entries_are_checked_together_once_and_in_several_scripts() {
    const COUNT: usize = 3000;
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let [backend, later] = [fixture.backend(), fixture.backend()];
    for backend in [&backend, &later] {
        backend.connect().await.expect("it is there");
    }
    append_disconnected(&fixture, "a", COUNT).await;
    let waiter = Waiter::queued(&fixture, &backend, "a", TTL).await;
    let (before, run) = (checks(&fixture).await, fixture.scripts_run().await);
    assert!(release(&hold).await);
    let hold = waiter.granted().await;
    let (after, run) = (checks(&fixture).await, fixture.scripts_run().await - run);
    assert!(after - before < 30, "it asked {} times", after - before);
    // Of which one or two are the waiter's.
    assert!(run > 3, "the server did nothing else meanwhile: {run} scripts");

    let last = Waiter::queued(&fixture, &later, "a", TTL).await;
    assert!(release(&hold).await);
    let hold = last.granted().await;
    assert!(release(&hold).await);
    let again = checks(&fixture).await - after;
    assert!(again < 5, "it asked {again} times for those that were set aside");
    assert!(!fixture.exists("a").await);
}

#[testbed::test]
async fn a_process_that_reconnects_has_its_position_again() {
    let fixture = Fixture::new().await;
    let Proxied { proxy, backend: away } = Proxied::new(&fixture, |config| config).await;
    let hold = take(&fixture.backend(), "a").await;
    let first = Waiter::queued(&fixture, &away, "a", TTL).await;
    let second = Waiter::queued(&fixture, &fixture.with_long_grace(), "a", TTL).await;
    let (id, before) = (first.id(), number(&fixture, "a", &first.id()).await);
    proxy.lead_to("127.0.0.1:1");
    proxy.cut();
    fixture.until_connected(2).await;
    assert!(release(&hold).await);
    let hold = second.granted().await;
    let aside = number(&fixture, "a", &id).await;
    assert!(aside.is_some_and(|number| number < FIRST), "{aside:?}");

    let third = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    assert!(number(&fixture, "a", &third.id()).await > before, "it came later");
    proxy.lead_to(fixture.server.address());
    eventually("it is back", async || number(&fixture, "a", &id).await == before).await;
    assert!(release(&hold).await);
    let hold = first.granted().await;
    assert!(third.is_waiting());
    assert!(release(&hold).await);
    assert!(release(&third.granted().await).await);
}

#[testbed::test]
async fn disconnected_entries_are_removed_when_they_have_expired() {
    let fixture = Fixture::new().await;
    let hold = take(&fixture.backend(), "a").await;
    let entry = format!("{} {}inbox:x", HolderId::random(), fixture.prefix);
    let aside = (3 * FIRST).to_string();
    let key = fixture.queue_key("a");
    let _: i64 = fixture
        .raw(&["ZADD", &key, &aside, &entry, "1", &format!(">{entry}")])
        .await;
    let waiter = Waiter::queued(&fixture, &fixture.backend(), "a", TTL).await;
    assert_eq!(fixture.queue("a").await, [waiter.id()]);
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}
