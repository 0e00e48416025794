//! A hold passes on within a process without a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::backend::request::RequestOptions;
use lock_core::backend::{Hold, Lease, ReleaseOptions, ReleaseOutcome, SentAt, rules};
use lock_core::{HoldState, Locker};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::proxy::Proxy;
use crate::support::*;

/// As many as a grant reserves at most, its own included.
const TOKENS: u64 = 17;
/// Far enough ahead of the clock that no test catches up with it.
const AHEAD: u64 = 3_600_000_000;
/// So long that half of it is left when the last pass comes, whatever the machine does meanwhile.
const TTL: Duration = secs(600);

fn reserving(name: &str) -> RequestOptions {
    options(name, TTL).reserve(99)
}

/// As core does it: the next lease goes on where the other one leaves off.
fn next_lease() -> Lease {
    let lease = Lease::new(name("a"));
    lease.arm(SentAt::now(), TTL).expect("a moment ago");
    lease
}

/// A hold as it was passed on, and its lease.
struct Passed {
    hold: Arc<dyn Hold>,
    lease: Lease,
}

/// Passes it on as often as there are tokens, at the moments at which core may, and has the token of each in between.
async fn pass_all(hold: &Arc<dyn Hold>) -> (Passed, Vec<u64>) {
    let (granted, mut tokens) = (Instant::now(), vec![hold.token().as_u64()]);
    let mut last = Passed {
        hold: hold.clone(),
        lease: next_lease(),
    };
    for number in 1.. {
        let end = granted + TTL * 9 / 10;
        while !rules::may_pass(granted, Instant::now(), number, end, TTL) {
            tokio::task::yield_now().await;
        }
        let lease = next_lease();
        let Some(hold) = last.hold.pass(&lease) else { break };
        tokens.push(hold.token().as_u64());
        last = Passed { hold, lease };
    }
    (last, tokens)
}

#[testbed::test]
async fn a_pass_sends_nothing_and_takes_the_next_token() {
    let fixture = Fixture::shared().await;
    let proxy = Proxy::of(&fixture).await;
    let backend = proxy.patient(&fixture);
    let mut sent = Vec::new();
    for _ in 0..3 {
        let granted = ask(&backend, reserving("a")).await.unwrap();
        let before = proxy.requests();
        let (last, tokens) = pass_all(&granted.hold).await;
        // A ping of the connection counts as well.
        sent.push(proxy.requests() - before);
        let first = granted.token();
        assert_eq!(tokens, (first..first + TOKENS).collect::<Vec<_>>());
        let released = last.hold.release(ReleaseOptions::default()).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        let after = grant(&backend, "a", secs(20)).await;
        assert!(after.token() > tokens[16]);
        assert!(after.hold.pass(&next_lease()).is_none(), "it has reserved nothing");
        after.release().await;
    }
    assert!(sent.contains(&0), "{sent:?}");
}

/// What was rolled back with the connection, the row has forgotten. No token is granted again.
#[testbed::test]
async fn tokens_grow_over_a_connection_that_ends_within_a_block() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    grant(&backend, "a", secs(20)).await.release().await;
    let token = format!("SELECT token FROM {}", fixture.table);
    for is_ahead in [false, true] {
        if is_ahead {
            // As a clock that was set back leaves it.
            observer
                .run(&format!("UPDATE {} SET token=token+{AHEAD}", fixture.table))
                .await;
        }
        let committed = fixture.observer().await.number(&token).await;
        let mut highest = committed;
        for _ in 0..3 {
            let granted = soon("free", ask(&backend, reserving("a"))).await.unwrap();
            assert!(granted.token() > highest);
            let (last, tokens) = pass_all(&granted.hold).await;
            highest = tokens[16];
            observer.kill_holder("a").await;
            soon("lost", last.lease.ended()).await;
            let next = soon("free", ask(&fixture.backend(), reserving("a"))).await.unwrap();
            assert_eq!(fixture.observer().await.number(&token).await, committed, "rolled back");
            assert!(next.token() > highest, "{} after {highest}", next.token());
            highest = next.token() + TOKENS - 1;
            observer.kill_holder("a").await;
            soon("lost", next.request.lease().ended()).await;
        }
    }
}

#[testbed::test]
async fn a_loss_is_the_last_ones() {
    let fixture = Fixture::shared().await;
    let (backend, mut observer) = (fixture.backend(), fixture.observer().await);
    let granted = ask(&backend, reserving("a")).await.unwrap();
    let (first, second) = (next_lease(), next_lease());
    let once = granted.hold.pass(&first).expect("a token is left");
    let twice = once.pass(&second).expect("a token is left");
    observer.kill_holder("a").await;
    soon("lost", second.ended()).await;
    assert!(matches!(second.state(), HoldState::Lost(_)));
    assert_eq!(first.state(), HoldState::Held, "it has the hold no more");
    assert!(twice.pass(&next_lease()).is_none(), "nothing is left to pass on");
    assert_eq!(
        twice.release(ReleaseOptions::default()).await.unwrap(),
        ReleaseOutcome::AlreadyLost
    );
}

/// Of many that take turns in a process, few commit; and one who waits elsewhere comes to its turn.
#[testbed::test]
async fn turns_within_a_process_are_cheap_and_bounded() {
    const TASKS: u64 = 16;
    const TURNS: u64 = 100;
    let fixture = Fixture::own().await;
    let mut observer = fixture.observer().await;
    let (locks, others) = (Locker::new(fixture.backend()), Locker::new(fixture.backend()));
    let first = locks.lock("a").acquire().await.unwrap();
    let taken = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, taken) = (locks.lock("a"), taken.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                taken.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    let elsewhere = others.lock("a");
    let (waiting, counted) = (taken.clone(), tokio::spawn(async move { elsewhere.acquire().await }));
    let queued = async || fixture.observer().await.waiters().await >= 1;
    until("waiting elsewhere", queued).await;
    let before = observer.counter("Com_commit").await;
    first.release().await.unwrap();
    let guard = soon("granted elsewhere", counted).await.unwrap().unwrap();
    let overtaken = waiting.load(Ordering::SeqCst);
    assert!(overtaken <= 2 * TOKENS, "{overtaken} were served before it");
    guard.release().await.unwrap();
    while let Some(task) = all_soon("all their turns", tasks.join_next()).await {
        task.unwrap();
    }
    let commits = observer.counter("Com_commit").await - before;
    let turns = TASKS * TURNS;
    println!("{turns} turns, {commits} commits");
    assert!(commits < turns / 4, "{turns} turns, {commits} commits");
}

/// Callers that take turns in a process, and hold the name for a moment each. What they were granted, and when they had asked.
fn taking_turns(locks: &Locker, grants: &Arc<Mutex<Vec<(Instant, u64)>>>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (lock, grants) = (locks.lock("a"), grants.clone());
        tasks.spawn(async move {
            loop {
                let asked = Instant::now();
                let guard = lock.acquire().await.unwrap();
                grants.lock().unwrap().push((asked, guard.token().as_u64()));
                sleep(Duration::from_millis(5)).await;
                // It may be lost.
                drop(guard.release().await);
            }
        });
    }
    tasks
}

/// The next holder comes before the process notices that its connection was killed.
#[testbed::test]
async fn a_killed_hold_is_passed_on_to_nobody_who_came_after_the_next_grant() {
    let fixture = Fixture::shared().await;
    let mut observer = fixture.observer().await;
    for _ in 0..5 {
        let (locks, others) = (Locker::new(fixture.backend()), Locker::new(fixture.backend()));
        let grants = Arc::<Mutex<Vec<(Instant, u64)>>>::default();
        others.lock("other").acquire().await.unwrap().release().await.unwrap();
        let turns = taking_turns(&locks, &grants);
        until("taken in turns", async || grants.lock().unwrap().len() > 8).await;
        // A connection of theirs: nobody else has asked yet. It may be between two holders, or be killed as it is released.
        let connection = observer.holder("a").await;
        let elsewhere = others.lock("a");
        let mut next = tokio::spawn(async move { elsewhere.acquire().await.unwrap() });
        if let Some(connection) = connection {
            observer.try_run(&format!("KILL CONNECTION {connection}")).await;
        }
        let next = soon("granted elsewhere", &mut next).await.unwrap();
        let granted = Instant::now();
        // From then on the process knows.
        until("asking the server", async || observer.waiters().await > 0).await;
        let stale = |(asked, token): &&(Instant, u64)| *asked > granted && *token < next.token().as_u64();
        let stale = grants.lock().unwrap().iter().filter(stale).count();
        assert_eq!(stale, 0, "granted a hold that had ended before they asked");
        drop(turns);
        drop(next);
    }
}
