//! Waiters whose process is not there: they cost the others little, and those that come back are in their order again.

use lock_core::backend::HolderId;
use lock_redis::RedisBackend;

use crate::support::proxy::Proxy;
use crate::support::waiter::Waiter;
use crate::support::{TTL, World, release, take, until};

/// The number of the first place of a queue.
const FIRST: i64 = -1_000_000_000_000_000;

/// Puts so many places of processes that have gone into a queue, at its end.
async fn bury(world: &World, name: &str, count: usize) {
    let now: (u64, u64) = world.raw(&["TIME"]).await;
    let ends = ((now.0 + 14) * 1000).to_string();
    let mut command = vec!["ZADD".to_owned(), world.queue_key(name)];
    for number in 0..count {
        let place = format!("{number:032x} {}inbox:{number:032x}", world.prefix);
        let number = (FIRST + i64::try_from(number).expect("not so many")).to_string();
        command.extend([number, place.clone(), ends.clone(), format!(">{place}")]);
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let added: usize = world.raw(&command).await;
    assert_eq!(added, 2 * count);
}

/// How often a script has asked which inboxes are there.
async fn asked(world: &World) -> u64 {
    let info: String = world.raw(&["INFO", "commandstats"]).await;
    let line = info.lines().find(|line| line.starts_with("cmdstat_pubsub|numsub:"));
    line.map_or(0, |line| {
        line.split(['=', ',']).nth(1).expect("calls").parse().expect("a number")
    })
}

/// The number of a waiter's place, lower than any while it is set aside.
async fn number(world: &World, name: &str, id: &str) -> Option<i64> {
    let queue: Vec<(String, i64)> = world
        .raw(&["ZRANGEBYSCORE", &world.queue_key(name), "-inf", "(0", "WITHSCORES"])
        .await;
    queue
        .into_iter()
        .find(|(place, _)| place.starts_with(id))
        .map(|(_, number)| number)
}

#[testbed::test]
async fn many_dead_places_are_asked_for_together_once_and_not_in_one_go() {
    const COUNT: usize = 3000;
    let world = World::new().await;
    let hold = take(&world.backend(), "a").await;
    bury(&world, "a", COUNT).await;
    let waiter = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    let (before, run) = (asked(&world).await, world.scripts_run().await);
    assert!(release(&hold).await);
    let hold = waiter.granted().await;
    let (after, run) = (asked(&world).await, world.scripts_run().await - run);
    assert!(after - before < 30, "it asked {} times", after - before);
    // Of which one or two are the waiter's.
    assert!(run > 3, "the server did nothing else meanwhile: {run} scripts");

    let last = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    assert!(release(&hold).await);
    let hold = last.granted().await;
    assert!(release(&hold).await);
    let again = asked(&world).await - after;
    assert!(again < 5, "it asked {again} times for those that were set aside");
    assert!(!world.exists("a").await);
}

#[testbed::test]
async fn a_process_that_was_away_for_a_moment_has_its_place_again() {
    let world = World::new().await;
    let proxy = Proxy::start(world.server.address()).await;
    let away = RedisBackend::new(world.config_at(&proxy.address)).expect("a good configuration");
    let hold = take(&world.backend(), "a").await;
    let first = Waiter::queued(&world, &away, "a", TTL).await;
    let second = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    let (id, before) = (first.id(), number(&world, "a", &first.id()).await);
    proxy.lead_to("127.0.0.1:1");
    proxy.cut();
    until("the server sees it gone", async || {
        let channels: Vec<String> = world
            .raw(&["PUBSUB", "CHANNELS", &format!("{}inbox:*", world.prefix)])
            .await;
        channels.len() == 2
    })
    .await;
    assert!(release(&hold).await);
    let hold = second.granted().await;
    let aside = number(&world, "a", &id).await;
    assert!(aside.is_some_and(|number| number < FIRST), "{aside:?}");

    let third = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    assert!(number(&world, "a", &third.id()).await > before, "it came later");
    proxy.lead_to(world.server.address());
    until("it is back", async || number(&world, "a", &id).await == before).await;
    assert!(release(&hold).await);
    let hold = first.granted().await;
    assert!(third.is_waiting());
    assert!(release(&hold).await);
    assert!(release(&third.granted().await).await);
}

#[testbed::test]
async fn dead_places_are_cleared_away_when_their_time_is_up() {
    let world = World::new().await;
    let hold = take(&world.backend(), "a").await;
    let place = format!("{} {}inbox:x", HolderId::random(), world.prefix);
    let aside = (3 * FIRST).to_string();
    let key = world.queue_key("a");
    let _: i64 = world
        .raw(&["ZADD", &key, &aside, &place, "1", &format!(">{place}")])
        .await;
    let waiter = Waiter::queued(&world, &world.backend(), "a", TTL).await;
    assert_eq!(world.queue("a").await, [waiter.id()]);
    assert!(release(&hold).await);
    assert!(release(&waiter.granted().await).await);
}
