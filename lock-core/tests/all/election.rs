//! Elections, on paused time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{Election, ElectionState, ErrorKind, Locker, MemoryBackend, Term};
use static_assertions::assert_impl_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::scripted::{Answer, Pass, Request, Scripted};

mod following;
mod forgotten;
mod maximum;
mod observing;
mod sessions;

assert_impl_all!(Election: Send, Sync, Clone);
assert_impl_all!(Term: Send, Sync);

const TTL: Duration = Duration::from_secs(9);
const PAUSE: Duration = Duration::from_secs(3);
/// Nine tenths of the ttl.
const LEASE: Duration = Duration::from_millis(8100);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two processes and their server.
fn two() -> (MemoryBackend, Locker, Locker) {
    let server = MemoryBackend::new();
    let process = |label: &str| Locker::new(server.clone()).with_ttl(TTL).with_label(label);
    (server.clone(), process("ours"), process("theirs"))
}

fn scripted() -> (Scripted, Locker) {
    let backend = Scripted::default();
    (backend.clone(), Locker::new(backend).with_ttl(TTL))
}

/// What a leader's work does.
#[derive(Clone, Copy)]
enum Work {
    Hangs,
    /// For so long, and goes on as a candidate.
    Resigns(Duration),
}

/// When calls of the closure begin and end.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Begins(&'static str, u64),
    Ends(&'static str, u64),
}

/// Tells that a call has ended, however it did.
struct Call(&'static str, u64, UnboundedSender<Told>);

impl Drop for Call {
    fn drop(&mut self) {
        self.2.send(Told::Ends(self.0, self.1)).ok();
    }
}

fn leads(election: Election, who: &'static str, work: Work, told: &UnboundedSender<Told>) -> JoinHandle<()> {
    let told = told.clone();
    tokio::spawn(async move {
        let outcome = election.lead(|term| {
            let call = Call(who, term.token().as_u64(), told.clone());
            told.send(Told::Begins(who, call.1)).ok();
            async move {
                let _call = call;
                match work {
                    Work::Hangs => std::future::pending().await,
                    Work::Resigns(after) => sleep(after).await,
                }
                ControlFlow::<()>::Continue(())
            }
        });
        outcome.await.unwrap();
    })
}

async fn next(told: &mut UnboundedReceiver<Told>) -> Told {
    timeout(seconds(600), told.recv())
        .await
        .expect("soon")
        .expect("somebody tells")
}

/// The next term, after the end of the one before; who leads in it.
async fn next_leader(told: &mut UnboundedReceiver<Told>) -> (&'static str, u64) {
    loop {
        if let Told::Begins(who, term) = next(told).await {
            return (who, term);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_begins_after_the_one_before_was_dropped() {
    let (server, ours, _) = two();
    let (tell, mut told) = unbounded_channel();
    let leader = leads(ours.election("a"), "ours", Work::Hangs, &tell);
    let mut last = None;
    for _ in 0..5 {
        let Told::Begins(_, term) = next(&mut told).await else {
            panic!("a call that ends before it began")
        };
        assert!(last.is_none_or(|last| last < term), "terms grow");
        last = Some(term);
        server.take_away("a").unwrap();
        assert_eq!(next(&mut told).await, Told::Ends("ours", term));
    }
    leader.abort();
}

#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_lease_ends_or_a_margin_before() {
    for margin in [Duration::ZERO, seconds(3)] {
        let (backend, locks) = scripted();
        let (tell, mut told) = unbounded_channel();
        let started = Instant::now();
        let leader = leads(locks.election("a").margin(margin), "ours", Work::Hangs, &tell);
        next_leader(&mut told).await;
        backend.next(Request::Renew, vec![Answer::Fail; 100]);
        assert!(matches!(next(&mut told).await, Told::Ends(..)));
        assert_eq!(started.elapsed(), LEASE - margin);
        leader.abort();
    }
}

/// What the work has started may go on until the margin is over: nobody else is elected before, although renewals succeed again.
#[tokio::test(start_paused = true)]
async fn nobody_else_is_elected_within_the_margin() {
    let (backend, locks) = scripted();
    let (tell, mut told) = unbounded_channel();
    let margin = seconds(3);
    let leader = leads(locks.election("a").margin(margin), "ours", Work::Hangs, &tell);
    next_leader(&mut told).await;
    let other = Locker::new(backend.server().clone()).with_ttl(TTL).election("a");
    let elected = tokio::spawn(async move { other.campaign().await.map(|term| (term, Instant::now())) });
    // Until half a second before the margin, and again within it.
    backend.next(Request::Renew, vec![Answer::Fail; 3]);
    assert!(matches!(next(&mut told).await, Told::Ends(..)));
    let dropped = Instant::now();
    let (_term, began) = elected.await.unwrap().unwrap();
    assert!(began - dropped >= margin, "{:?}", began - dropped);
    leader.abort();
}

/// What goes on beside the work learns that the term was resigned.
#[tokio::test(start_paused = true)]
async fn a_clone_of_the_term_knows_that_it_was_resigned() {
    let (_server, ours, _) = two();
    let mut watch = None;
    let election = ours.election("a");
    let led = election.lead(|term| {
        assert!(term.is_held());
        watch = Some(term.clone());
        async { ControlFlow::Break(()) }
    });
    led.await.unwrap();
    let watch = watch.expect("it was elected");
    assert!(!watch.is_held() && watch.check().is_ok());
}

/// Renewals that come in time never end a term, however long the margin.
#[tokio::test(start_paused = true)]
async fn a_margin_ends_no_term_that_is_renewed() {
    let (_backend, locks) = scripted();
    let (tell, mut told) = unbounded_channel();
    let leader = leads(locks.election("a").margin(TTL / 3), "ours", Work::Hangs, &tell);
    next_leader(&mut told).await;
    sleep(20 * TTL).await;
    assert!(told.is_empty());
    leader.abort();
    let error = locks.election("a").margin(seconds(4)).campaign().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("choose at most 3s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_it_pauses_and_campaigns_again() {
    let (server, ours, _) = two();
    let (tell, mut told) = unbounded_channel();
    let election = ours.election("a");
    let leader = leads(election.clone(), "ours", Work::Hangs, &tell);
    let (_, first) = next_leader(&mut told).await;
    server.take_away("a").unwrap();
    assert_eq!(next(&mut told).await, Told::Ends("ours", first));
    assert!(!election.is_leader());
    let lost = Instant::now();
    let (_, second) = next_leader(&mut told).await;
    assert_eq!(lost.elapsed(), PAUSE);
    assert!(election.is_leader() && second > first);
    leader.abort();
}

#[tokio::test(start_paused = true)]
async fn whoever_resigns_lets_the_other_process_lead() {
    let (_server, ours, theirs) = two();
    let (tell, mut told) = unbounded_channel();
    let work = Work::Resigns(seconds(4));
    let first = leads(ours.election("a"), "ours", work, &tell);
    assert_eq!(next_leader(&mut told).await.0, "ours");
    let second = leads(theirs.election("a"), "theirs", work, &tell);
    let mut last = 0;
    for _ in 0..10 {
        for expected in ["theirs", "ours"] {
            let began = Instant::now();
            let (who, term) = next_leader(&mut told).await;
            assert_eq!((who, began.elapsed()), (expected, seconds(4)));
            assert!(term > last);
            last = term;
        }
    }
    first.abort();
    second.abort();
}

/// A candidate elsewhere that waits comes before one of the same process, though that one has waited for longer.
#[tokio::test(start_paused = true)]
async fn a_term_is_not_passed_within_the_process() {
    let (backend, locks) = scripted();
    backend.pass(Pass::AsItIs);
    let (tell, mut told) = unbounded_channel();
    let term = locks.election("a").campaign().await.unwrap();
    let local = leads(locks.election("a"), "local", Work::Hangs, &tell);
    sleep(seconds(1)).await;
    let elsewhere = Locker::new(backend.server().clone()).with_ttl(TTL);
    let remote = leads(elsewhere.election("a"), "elsewhere", Work::Resigns(seconds(1)), &tell);
    sleep(seconds(1)).await;
    backend.sent();
    term.resign().await.unwrap();
    assert_eq!(backend.sent()[0], Request::Release);
    assert_eq!(next_leader(&mut told).await.0, "elsewhere");
    assert_eq!(next_leader(&mut told).await.0, "local");
    local.abort();
    remote.abort();
}

#[tokio::test(start_paused = true)]
async fn a_candidate_alone_is_elected_again_after_its_pause() {
    let (_server, ours, _) = two();
    let election = ours.election("a");
    let term = election.campaign().await.unwrap();
    let first = term.token();
    term.resign().await.unwrap();
    let resigned = Instant::now();
    // Whatever clone of it, and however its term ended.
    let term = election.clone().campaign().await.unwrap();
    assert_eq!(resigned.elapsed(), PAUSE);
    assert!(term.token() > first);
    drop(term);
    let dropped = Instant::now();
    drop(election.campaign().await.unwrap());
    assert_eq!(dropped.elapsed(), PAUSE);
    // Another candidate need not.
    drop(ours.election("a").campaign().await.unwrap());
    assert_eq!(dropped.elapsed(), PAUSE);
}

#[tokio::test(start_paused = true)]
async fn lead_ends_with_the_value_of_its_work() {
    let (_server, ours, theirs) = two();
    let calls = AtomicUsize::new(0);
    let election = ours.election("a");
    let led = election.lead(|term| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            term.check().unwrap();
            match call {
                0 | 1 => ControlFlow::Continue(()),
                call => ControlFlow::Break(call),
            }
        }
    });
    assert_eq!(led.await.unwrap(), 2);
    assert!(!election.is_leader());
    let resigned = Instant::now();
    drop(theirs.election("a").campaign().await.unwrap());
    assert_eq!(resigned.elapsed(), Duration::ZERO, "it resigned before it returned");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lead_ends_its_work_and_then_its_term() {
    let (server, ours, theirs) = two();
    let (tell, mut told) = unbounded_channel();
    let leader = leads(ours.election("a"), "ours", Work::Hangs, &tell);
    next_leader(&mut told).await;
    let waiting = leads(theirs.election("a"), "theirs", Work::Hangs, &tell);
    sleep(seconds(1)).await;
    let started = Instant::now();
    leader.abort();
    assert!(matches!(next(&mut told).await, Told::Ends("ours", _)));
    assert!(matches!(next(&mut told).await, Told::Begins("theirs", _)));
    assert_eq!(started.elapsed(), Duration::ZERO);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    theirs.shutdown().await.unwrap();
    assert!(!Locker::new(server).status("a").await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_work_ends_its_term() {
    let (_server, ours, theirs) = two();
    let panics = tokio::spawn(async move { ours.election("a").lead::<(), _>(|_| async { panic!("planned") }).await });
    assert!(panics.await.unwrap_err().is_panic());
    let next = theirs.election("a").campaign().await.unwrap();
    next.resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_waiting_cannot_cure_ends_a_campaign() {
    let (_server, ours, theirs) = two();
    let kind = |error: lock_core::Error| error.kind();
    assert_eq!(
        ours.election("").campaign().await.map_err(kind).unwrap_err(),
        ErrorKind::InvalidName
    );
    let long = "x".repeat(256);
    assert_eq!(
        ours.election("a")
            .value(long)
            .campaign()
            .await
            .map_err(kind)
            .unwrap_err(),
        ErrorKind::Misconfigured
    );
    let leader = theirs.election("a").campaign().await.unwrap();
    let (waits, pauses) = (ours.election("a"), ours.election("b"));
    drop(pauses.campaign().await.unwrap());
    let waiting = tokio::spawn(async move { waits.lead(|_| async { ControlFlow::Break(()) }).await });
    let pausing = tokio::spawn(async move { pauses.campaign().await.map(drop) });
    sleep(seconds(1)).await;
    let started = Instant::now();
    ours.shutdown().await.unwrap();
    assert_eq!(waiting.await.unwrap().map_err(kind).unwrap_err(), ErrorKind::ShutDown);
    assert_eq!(pausing.await.unwrap().map_err(kind).unwrap_err(), ErrorKind::ShutDown);
    assert_eq!(started.elapsed(), Duration::ZERO);
    drop(leader);
}

#[tokio::test(start_paused = true)]
async fn the_state_is_that_of_the_own_clock_or_of_the_server() {
    let (server, ours, theirs) = two();
    let (election, other) = (ours.election("a"), theirs.election("a").value("their address"));
    assert!(matches!(election.state().await, ElectionState::Electing));
    let term = election.campaign().await.unwrap();
    let ElectionState::Leading {
        term: number,
        valid_for,
        ..
    } = election.state().await
    else {
        panic!("it leads")
    };
    assert_eq!((number, valid_for), (term.token(), LEASE));
    let ElectionState::Following(leader) = other.state().await else {
        panic!("somebody leads")
    };
    assert_eq!(
        (leader.term(), leader.value(), leader.is_me()),
        (term.token(), Some("ours"), false)
    );
    // Without the server it leads on, and knows when no longer.
    server.set_available(false);
    assert!(matches!(election.state().await, ElectionState::Leading { .. }));
    assert!(matches!(other.state().await, ElectionState::Unreachable(error) if error.kind() == ErrorKind::Unavailable));
    sleep(LEASE).await;
    assert!(!election.is_leader());
    assert!(matches!(election.state().await, ElectionState::Unreachable(_)));
    // The server has not freed it yet, but this process knows better.
    server.set_available(true);
    assert!(matches!(election.state().await, ElectionState::Electing));
    assert!(term.check().is_err());
    assert!(term.resign().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn clones_are_one_candidate() {
    let (_server, ours, _) = two();
    let election = ours.election("a");
    let clone = election.clone();
    let term = Arc::new(election.campaign().await.unwrap());
    assert!(clone.is_leader() && !ours.election("a").is_leader());
    advance(seconds(1)).await;
    drop(term);
    assert!(!clone.is_leader());
}
