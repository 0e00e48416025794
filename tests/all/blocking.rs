//! The API without async on real servers, called inside async code: nothing here but polylock's own thread drives a locker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polylock::blocking::{self, Locker, acquire_all};
use polylock::{HoldState, Release};

/// The limit of a wait whose end the test needs.
const PATIENCE: Duration = testbed::steady::AT_MOST;
const THREADS: usize = 8;
const TURNS: usize = 5;

#[cfg(feature = "redis")]
#[testbed::test]
async fn on_redis() {
    let server = testbed::Redis::new().start().await.expect("a server");
    works(&server.url());
    works_from_async(polylock::connect(&server.url()).await.expect("it answers")).await;
}

/// With workers: the connection to which a hold is bound stays on this runtime.
#[cfg(feature = "mysql")]
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mysql() {
    let server = testbed::MariaDb::new().start().await.expect("a server");
    works(&server.url());
    works_from_async(polylock::connect(&server.url()).await.expect("it answers")).await;
}

#[cfg(feature = "postgres")]
#[testbed::test]
async fn on_postgres() {
    let server = testbed::Postgres::new().start().await.expect("a server");
    works(&server.url());
    works_from_async(polylock::connect(&server.url()).await.expect("it answers")).await;
}

/// With workers: the session to which a hold is bound stays on this runtime.
#[cfg(feature = "zookeeper")]
#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    let server = testbed::ZooKeeper::new().start().await.expect("a server");
    works(&server.url());
    works_from_async(polylock::connect(&server.url()).await.expect("it answers")).await;
}

fn works(url: &str) {
    let (locks, elsewhere) = (connect(url), connect(url));
    one_at_a_time([&locks, &elsewhere]);
    let lock = locks.lock("held");
    let guard = lock.acquire_within(PATIENCE).expect("it is free");
    assert!(lock.try_acquire().expect("the server answers").is_none());
    assert!(
        elsewhere
            .lock("held")
            .try_acquire()
            .expect("the server answers")
            .is_none()
    );
    assert!(elsewhere.status("held").expect("the server answers").is_held());
    assert_eq!(guard.state(), HoldState::Held);
    let token = guard.token();
    // Its release is posted, and sent whatever this thread does.
    drop(guard);
    let guard = elsewhere.lock("held").acquire_within(PATIENCE).expect("it was dropped");
    assert!(guard.token() > token);
    assert_eq!(guard.release().expect("it is ours"), Release::Released);
    let both = acquire_all([locks.lock("one"), locks.lock("two")]).expect("they are free");
    both.check().expect("nobody takes them");
    drop(both);
    locks.shutdown().expect("the releases are answered");
    assert!(!elsewhere.status("one").expect("the server answers").is_held());
    elsewhere.shutdown().expect("nothing is left");
}

fn connect(url: &str) -> Locker {
    blocking::connect(url).expect("the server answers")
}

fn one_at_a_time(lockers: [&Locker; 2]) {
    let in_use = AtomicBool::new(false);
    let turn = |locks: &Locker| {
        let lock = locks.lock("contended");
        for _ in 0..TURNS {
            let worked = lock.with_within(PATIENCE, |held| {
                assert!(!in_use.swap(true, Ordering::SeqCst), "two at a time");
                thread::yield_now();
                in_use.store(false, Ordering::SeqCst);
                held.check()
            });
            worked.expect("each has its turn").expect("nobody takes it away");
        }
    };
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (turn, locks) = (&turn, lockers[number % 2]);
            scope.spawn(move || turn(locks));
        }
    });
}

/// A locker whose connection was made on this test's runtime. On a current-thread one, each call stops that.
async fn works_from_async(locks: polylock::Locker) {
    let guard = locks.lock("turned").acquire().await.expect("it is free");
    let guard = guard.into_blocking().expect("polylock has its thread");
    let turned = locks.blocking();
    let other = turned.lock("another").acquire_within(PATIENCE).expect("it is free");
    other.release().expect("it is ours");
    guard.check().expect("it is held");
    assert_eq!(guard.release().expect("it is ours"), Release::Released);
    turned.shutdown().expect("nothing is left");
}
