//! Terms with a maximum.

use std::time::Duration;

use lock_core::{ErrorKind, Locker};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::{PAUSE, TTL, Told, Work, leads, next, next_leader, scripted, seconds, two};

const MAXIMUM: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn leaders_that_hang_take_turns() {
    let (_server, ours, theirs) = two();
    let (tell, mut told) = unbounded_channel();
    let election = |locks: &Locker| locks.election("a").hold_at_most(MAXIMUM);
    let started = Instant::now();
    let first = leads(election(&ours), "ours", Work::Hangs, &tell);
    assert_eq!(next_leader(&mut told).await.0, "ours");
    let second = leads(election(&theirs), "theirs", Work::Hangs, &tell);
    let mut last = 0;
    for (turn, who) in [(1, "theirs"), (2, "ours"), (3, "theirs")] {
        let Told::Ends(_, ended) = next(&mut told).await else {
            panic!("a term begins before the one before has ended")
        };
        let (leader, term) = next_leader(&mut told).await;
        assert_eq!((leader, started.elapsed()), (who, turn * MAXIMUM));
        assert!(term > ended && ended > last, "terms grow");
        last = ended;
    }
    first.abort();
    second.abort();
}

/// Alone, it leads again after its pause.
#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_a_margin_before_the_maximum() {
    let (_backend, locks) = scripted();
    let (tell, mut told) = unbounded_channel();
    let margin = seconds(2);
    let election = locks.election("a").margin(margin).hold_at_most(MAXIMUM);
    let started = Instant::now();
    let leader = leads(election, "ours", Work::Hangs, &tell);
    next_leader(&mut told).await;
    assert!(matches!(next(&mut told).await, Told::Ends(..)));
    assert_eq!(started.elapsed(), MAXIMUM - margin);
    next_leader(&mut told).await;
    assert_eq!(started.elapsed(), MAXIMUM + PAUSE);
    leader.abort();
}

#[tokio::test(start_paused = true)]
async fn a_margin_that_leaves_nothing_of_it_is_refused() {
    let (_backend, locks) = scripted();
    let election = |margin, maximum| locks.election("a").margin(margin).hold_at_most(maximum);
    let refused = election(TTL / 3, TTL / 3).campaign().await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(
        refused.to_string().contains("leaves nothing of a maximum hold"),
        "{refused}"
    );
    let term = election(TTL / 3, TTL / 2).campaign().await.unwrap();
    assert_eq!(term.options().maximum_hold, Some(TTL / 2));
    // A maximum of nothing is refused as that of a lock is.
    assert!(election(Duration::ZERO, Duration::ZERO).campaign().await.is_err());
}
