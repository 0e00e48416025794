//! Faults of an ensemble that no single server has: its servers are cut off from each other, or end one after the other.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, DistributedLock, Hold, Lease, ReleaseOptions, ReleaseOutcome};
use lock_core::{ErrorKind, HoldState};
use lock_zookeeper::{HeartbeatKind, ZooKeeperBackend, ZooKeeperConfig};
use testbed::{Ensemble, Server, ZooKeeper, assert_safe};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{CreateMode, Error as DriverError};

use crate::support::line::Line;
use crate::support::*;

mod divided;
mod fenced;

/// More ticks than a session lasts: a leader that is cut off goes on answering for 10 s.
const LATE_TO_NOTICE: u32 = 20;
/// For tests that heal the cut before anybody has noticed it, on a machine however slow.
const TOO_LATE_TO_NOTICE: u32 = 60;
const TICK: Duration = Duration::from_millis(500);
/// The session timeout of a hold that is cut off. It outlasts a busy machine's stalls, and ends before a leader without a
/// quorum steps down.
const CUT_OFF: Duration = Duration::from_secs(8);

async fn ensemble(sync_limit: u32) -> (Ensemble, usize) {
    let zookeeper = ZooKeeper::new().tick(TICK).sync_limit(sync_limit);
    let ensemble = zookeeper.start_ensemble().await.unwrap();
    let leader = ensemble.ready().await.unwrap();
    (ensemble, leader)
}

fn followers(leader: usize) -> [usize; 2] {
    [(leader + 1) % 3, (leader + 2) % 3]
}

fn at(server: &Server) -> ZooKeeperConfig {
    config(server.address(), "/test")
}

/// A client of all servers, whose session outlasts an election and the restart of a server.
fn of_all(ensemble: &Ensemble) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::new(ensemble.addresses()).with_open_acl();
    let config = config.with_root("/test").with_session_timeout(LONG);
    backend_with(config.with_connect_timeout(GENEROUS))
}

async fn hold_at(backend: &ZooKeeperBackend, lock: &str) -> (Arc<dyn Hold>, AcquireRequest, RequestControl) {
    let (request, control) = waiting(lock);
    (acquire(backend, &request).await, request, control)
}

async fn hold_long(backend: &ZooKeeperBackend, lock: &str) -> (Arc<dyn Hold>, AcquireRequest, RequestControl) {
    let (request, control) = long(lock);
    let hold = after_an_election("the grant", backend.acquire(&request)).await;
    (granted(hold), request, control)
}

/// Follows a lease to its end, and returns until when it was believed in: by its own clock, however late anybody looks.
fn believed_until(lease: &Lease) -> JoinHandle<Instant> {
    let (lease, mut until) = (lease.clone(), Instant::now());
    tokio::spawn(async move {
        while is_live(&lease) {
            until = until.max(Instant::now() + lease.valid_for());
            sleep(Duration::from_millis(5)).await;
        }
        until.min(Instant::now())
    })
}

/// Starts to wait for the lock, and returns when its place is there.
async fn wait_at(server: &Server, lock: &'static str) -> JoinHandle<(Instant, Arc<dyn Hold>)> {
    let backend = backend_with(at(server));
    let client = observer(server).await;
    let waiting = tokio::spawn(async move {
        let (request, _control) = waiting(lock);
        let hold = loop {
            // Elections end connections, and may outlast sessions.
            match backend.acquire(&request).await {
                Err(error) if error.is_retryable() => sleep(Duration::from_millis(20)).await,
                attempt => break granted(attempt),
            }
        };
        (Instant::now(), hold)
    });
    children_until(&client, &format!("/test/{lock}"), |children| children.len() == 2).await;
    waiting
}

/// For what takes an election and the end of a session.
async fn in_time<T>(waiting: JoinHandle<T>) -> T {
    after_an_election("the grant", waiting).await.unwrap()
}

/// What this future yields. Several connects, of 30 s each, may time out before.
async fn after_an_election<T>(what: &str, future: impl Future<Output = T>) -> T {
    const LIMIT: Duration = Duration::from_secs(150);
    let answer = timeout(LIMIT, future).await;
    answer.unwrap_or_else(|_| panic!("did not happen within {LIMIT:?} of an election: {what}"))
}

async fn released(hold: &Arc<dyn Hold>) -> ReleaseOutcome {
    let release = hold.release(ReleaseOptions::default());
    after_an_election("the release", release).await.unwrap()
}

#[testbed::test]
async fn a_hold_at_a_follower_without_its_leader_is_lost_before_the_next_grant() {
    let (ensemble, leader) = ensemble(TOO_LATE_TO_NOTICE).await;
    let [follower, _] = followers(leader);
    let backend = backend_with(at(&ensemble[follower]).with_session_timeout(CUT_OFF));
    let (first, request, _control) = hold_at(&backend, "a").await;
    let next = wait_at(&ensemble[leader], "a").await;
    let believed = believed_until(request.lease());
    let cut = Instant::now();
    ensemble.cut(follower, leader);
    let (granted, second) = in_time(next).await;
    // It has not noticed yet, and answers its clients.
    assert!(ask(&ensemble[follower], "srvr").await.contains("Mode: follower"));
    let believed = in_time(believed).await;
    println!("believed for {:?}, granted after {:?}", believed - cut, granted - cut);
    assert_safe!(believed < granted, "two believed for {:?}", believed - granted);
    assert!(second.token() > first.token());
    // The session was ended by the servers: what was lost stays lost.
    ensemble.heal();
    let (again, _control) = waiting("b");
    acquire(&backend, &again).await;
    assert!(matches!(request.lease().state(), HoldState::Lost(_)));
}

/// Short sessions, cut off at several phases of the leader's pings. Those of two ticks leave a follower on a busy machine no time to
/// report them.
#[testbed::test]
async fn a_session_of_four_ticks_is_believed_in_no_longer_than_its_leader_keeps_it() {
    let (ensemble, leader) = ensemble(TOO_LATE_TO_NOTICE).await;
    let [follower, _] = followers(leader);
    let (mut phase, mut tries) = (0, 0);
    while phase < 5 {
        tries += 1;
        assert!(tries < 30, "no session lives until it is cut off");
        let short = |server| backend_with(at(server).with_session_timeout(TICK * 4));
        let (backend, second) = (short(&ensemble[follower]), short(&ensemble[leader]));
        let lock = format!("a{tries}");
        let (request, _control) = waiting(&lock);
        let _hold = acquire(&backend, &request).await;
        let (next, _next_control) = waiting(&lock);
        let next = tokio::spawn(async move {
            let hold = acquire(&second, &next).await;
            (Instant::now(), hold)
        });
        sleep(TICK * 4 + TICK / 10 * phase).await;
        let believed = believed_until(request.lease());
        if !is_live(request.lease()) || next.is_finished() {
            // The machine stood still for longer than such a session lives.
            believed.abort();
            let (_, hold) = in_time(next).await;
            released(&hold).await;
            continue;
        }
        let cut = Instant::now();
        ensemble.cut(follower, leader);
        let (granted, hold) = in_time(next).await;
        let believed = in_time(believed).await;
        println!("believed for {:?}, granted after {:?}", believed - cut, granted - cut);
        assert_safe!(believed < granted, "two believed for {:?}", believed - granted);
        ensemble.heal();
        released(&hold).await;
        ensemble.ready().await.unwrap();
        phase += 1;
    }
}

#[testbed::test]
async fn a_hold_and_a_place_survive_the_end_of_the_leader() {
    let (ensemble, leader) = ensemble(10).await;
    let (one, two) = (of_all(&ensemble), of_all(&ensemble));
    let (hold, request, _control) = hold_long(&one, "a").await;
    let (early, ..) = hold_long(&one, "b").await;
    let (client, path) = (observer(&ensemble[followers(leader)[0]]).await, "/test/a");
    let waiting = start_waiting(&two, (&client, path), 2, long("a")).await;
    let before = children_until(&client, path, |_| true).await.len();
    ensemble[leader].kill().unwrap();
    let killed = Instant::now();
    ensemble.leader_after(leader).await.unwrap();
    // Its first request was lost, or waits for a connection.
    assert_eq!(released(&early).await, ReleaseOutcome::Released);
    println!("served again after {:?}", killed.elapsed());
    assert!(is_live(request.lease()) && !waiting.is_finished());
    let (late, ..) = hold_long(&one, "b").await;
    assert!(late.token() > early.token());
    assert_eq!(children_until(&client, path, |_| true).await.len(), before);
    assert_eq!(released(&hold).await, ReleaseOutcome::Released);
    let (next, _control) = happens("the grant", waiting).await.unwrap();
    assert!(next.token() > hold.token() && next.token() > early.token());
}

#[testbed::test]
async fn a_release_while_nobody_leads_frees_the_lock() {
    let (ensemble, leader) = ensemble(10).await;
    let [one, other] = followers(leader);
    let (backend, second) = (of_all(&ensemble), of_all(&ensemble));
    let (hold, ..) = hold_long(&backend, "a").await;
    let client = observer(&ensemble[one]).await;
    let waiting = start_waiting(&second, (&client, "/test/a"), 2, long("a")).await;
    // One server alone serves nobody.
    ensemble[leader].kill().unwrap();
    ensemble[other].kill().unwrap();
    eventually("the server serves no more", async || {
        !ask(&ensemble[one], "srvr").await.contains("Mode:")
    })
    .await;
    let releasing = tokio::spawn({
        let hold = hold.clone();
        async move {
            loop {
                match hold.release(ReleaseOptions::default()).await {
                    // On a busy machine the servers start slowly.
                    Err(error) if error.is_retryable() => {}
                    answer => return answer,
                }
            }
        }
    });
    sleep(TICK).await;
    assert!(!releasing.is_finished() && !waiting.is_finished());
    tokio::try_join!(ensemble[leader].restart(), ensemble[other].restart()).unwrap();
    let (next, _control) = in_time(waiting).await;
    assert!(next.token() > hold.token());
    assert_eq!(in_time(releasing).await.unwrap(), ReleaseOutcome::Released);
}

#[testbed::test]
async fn a_hold_and_a_place_survive_the_restart_of_every_server_in_turn() {
    let (ensemble, _) = ensemble(10).await;
    let (one, two) = (of_all(&ensemble), of_all(&ensemble));
    let (hold, request, _control) = hold_long(&one, "a").await;
    let client = observer(&ensemble[0]).await;
    let waiting = start_waiting(&two, (&client, "/test/a"), 2, long("a")).await;
    let mut last = hold.token();
    for server in ensemble.servers() {
        let started = Instant::now();
        server.restart().await.unwrap();
        ensemble.ready().await.unwrap();
        println!("restarted within {:?}", started.elapsed());
        let (other, ..) = hold_long(&one, "b").await;
        assert!(other.token() > last);
        last = other.token();
        assert_eq!(released(&other).await, ReleaseOutcome::Released);
        assert!(is_live(request.lease()) && !waiting.is_finished());
    }
    assert_eq!(released(&hold).await, ReleaseOutcome::Released);
    let (next, _control) = happens("the grant", waiting).await.unwrap();
    assert!(next.token() > last);
}

/// Another leader has another clock: so the time of a kept node begins anew when somebody comes, and not before that.
#[testbed::test]
async fn the_time_of_a_minimum_hold_is_not_judged_by_the_clocks_of_two_leaders() {
    const MINIMUM: Duration = Duration::from_millis(2500);
    let (ensemble, leader) = ensemble(10).await;
    let backend = of_all(&ensemble);
    let (hold, ..) = hold_long(&backend, "a").await;
    released(&hold).await;
    let client = observer(&ensemble[followers(leader)[0]]).await;
    // By one that has ended.
    let kept = "/test/a/_c_5a1f0000-0000-0000-0000-000000000000-keep-lock-0000000000";
    create_in_directory(&client, kept, b"\xFFkeep=2500", CreateMode::Persistent).await;
    let made = Instant::now();
    ensemble[leader].kill().unwrap();
    ensemble.leader_after(leader).await.unwrap();
    // It is over by any clock, which the next leader cannot know.
    sleep(MINIMUM.saturating_sub(made.elapsed()) + TICK).await;
    let came = Instant::now();
    let next = RequestOptions::new(name("a"), Terms::new(2 * LONG));
    let (trying, _trying) = next.clone().waits(false).start();
    after_an_election("an answer of the ensemble", async {
        loop {
            match backend.acquire(&trying).await {
                Err(error) if error.is_retryable() => sleep(Duration::from_millis(20)).await,
                attempt => break busy(attempt),
            }
        }
    })
    .await;
    let (_, stat) = after_an_election("an answer of the ensemble", async {
        loop {
            match client.get_data(kept).await {
                Err(DriverError::ConnectionLoss) => sleep(Duration::from_millis(20)).await,
                found => break found.unwrap(),
            }
        }
    })
    .await;
    assert!(stat.mzxid >> 32 > stat.czxid >> 32, "{stat:?}");
    let (request, _control) = next.start();
    acquire(&backend, &request).await;
    assert!(came.elapsed() >= MINIMUM, "granted after {:?}", came.elapsed());
    assert_eq!(client.check_stat(kept).await.unwrap(), None);
}

/// A client of one server, which later is led to another one.
struct Led {
    backend: ZooKeeperBackend,
    first: Line,
    second: Line,
}

impl Led {
    async fn new(first: &Server, second: &Server) -> Self {
        let (first, second) = (Line::to(first.address()), Line::to(second.address()));
        second.cut();
        let config = ZooKeeperConfig::new([&first.address, &second.address]).with_open_acl();
        let config = config.with_root("/test").with_session_timeout(LONG);
        let backend = backend_with(config.with_connect_timeout(GENEROUS));
        // Makes the lock's directory, for which a slow line takes long.
        let (hold, ..) = hold_long(&backend, "a").await;
        assert_eq!(released(&hold).await, ReleaseOutcome::Released);
        Self { backend, first, second }
    }

    fn lead_on(&self) {
        self.first.cut();
        self.second.heal();
    }

    fn start(&self) -> JoinHandle<(Arc<dyn Hold>, RequestControl)> {
        let backend = self.backend.clone();
        let (request, control) = long("a");
        tokio::spawn(async move { (acquire(&backend, &request).await, control) })
    }
}

/// A server creates the node, and its answer is lost with the connection to it.
#[testbed::test]
async fn a_place_whose_answer_is_lost_is_found_at_another_server() {
    let (ensemble, leader) = ensemble(10).await;
    let [one, other] = followers(leader);
    let (led, client) = (
        Led::new(&ensemble[one], &ensemble[other]).await,
        observer(&ensemble[leader]).await,
    );
    led.first.set_answer_delay(GENEROUS / 2);
    let acquiring = led.start();
    let created = children_until(&client, "/test/a", |children| children.len() == 1).await;
    assert!(!acquiring.is_finished(), "the answer was not late");
    led.lead_on();
    let (hold, _control) = in_time(acquiring).await;
    assert_eq!(children_until(&client, "/test/a", |_| true).await, created);
    assert_eq!(released(&hold).await, ReleaseOutcome::Released);
    children_until(&client, "/test/a", <[String]>::is_empty).await;
}

/// The server is cut off from its leader when it gets the request, which its leader gets after the client has moved on.
#[testbed::test]
async fn a_place_that_was_asked_for_at_a_follower_without_its_leader_is_made_once() {
    let (ensemble, leader) = ensemble(TOO_LATE_TO_NOTICE).await;
    let [one, other] = followers(leader);
    let (led, client) = (
        Led::new(&ensemble[one], &ensemble[other]).await,
        observer(&ensemble[leader]).await,
    );
    ensemble.cut(one, leader);
    let acquiring = led.start();
    eventually("the request is under way", async || {
        counter(&ensemble[one], "zk_outstanding_requests").await != 0
    })
    .await;
    assert!(!acquiring.is_finished());
    led.lead_on();
    let (hold, _control) = in_time(acquiring).await;
    let created = children_until(&client, "/test/a", |children| !children.is_empty()).await;
    assert_eq!(created.len(), 1, "{created:?}");
    ensemble.heal();
    ensemble.ready().await.unwrap();
    // It has passed on what it had: it answers what is asked after that.
    let late = observer(&ensemble[one]).await;
    happens("the sync", late.sync("/test/a")).await.unwrap();
    assert_eq!(late.list_children("/test/a").await.unwrap(), created);
    assert_eq!(released(&hold).await, ReleaseOutcome::Released);
    children_until(&client, "/test/a", <[String]>::is_empty).await;
}
