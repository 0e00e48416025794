//! Locks that redis-py and we share: its `Lock` on the key that is our prefix and name.

use std::process::Stdio;
use std::time::Duration;

use lock_core::backend::{DistributedLock, ReleaseOptions, ReleaseOutcome, Renewal};
use lock_core::{ErrorKind, HoldState, Locker};
use testbed::happens;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::support::{AT_MOST, Fixture, LONG, TTL, eventually, granted, name, request};

/// Much longer than a round trip.
const SHORT: Duration = Duration::from_millis(400);

/// A process with redis-py, which ends with this value.
struct Python {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// `None` where there is no redis-py and need not be.
    async fn start(fixture: &Fixture) -> Option<Self> {
        let mut python = testbed::skip_left_out(testbed::redis_py())?;
        let (host, port) = fixture.server.address().rsplit_once(':').expect("host and port");
        python.args([
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/redis_py.py"),
            host,
            port,
        ]);
        let mut process = tokio::process::Command::from(python)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("Python starts");
        let input = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        Some(Self {
            _process: process,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    async fn tell(&mut self, command: &str) {
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.expect("it listens");
    }

    async fn answer(&mut self) -> String {
        let line = happens("it answers in time", self.output.next_line()).await;
        line.expect("it is text").expect("it goes on")
    }

    async fn ask(&mut self, command: &str) -> String {
        self.tell(command).await;
        self.answer().await
    }
}

#[testbed::test]
async fn what_we_hold_redis_py_does_not_get() {
    let fixture = Fixture::new().await;
    let Some(mut python) = Python::start(&fixture).await else {
        return;
    };
    let key = fixture.lock_key("orders/42");
    let locks = Locker::new(fixture.backend());
    let guard = locks.lock("orders/42").ttl(TTL).acquire().await.expect("it is free");
    assert_eq!(python.ask(&format!("try {key} 60000")).await, "false");
    // One that waits gets it when we release, and not before.
    python.tell(&format!("wait {key} 60000")).await;
    assert!(timeout(SHORT, python.answer()).await.is_err(), "two hold it");
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("it is ours");
    assert_eq!(python.answer().await, "true");
    assert_eq!(python.ask(&format!("drop {key}")).await, "released");
}

#[testbed::test]
async fn what_redis_py_holds_we_do_not_get() {
    let fixture = Fixture::new().await;
    let Some(mut python) = Python::start(&fixture).await else {
        return;
    };
    let key = fixture.lock_key("a");
    let backend = fixture.backend();
    let locks = Locker::new(backend.clone());
    // With a timeout and without one.
    for ttl in ["60000", "forever"] {
        assert_eq!(python.ask(&format!("try {key} {ttl}")).await, "true");
        assert!(locks.lock("a").try_acquire().await.expect("an answer").is_none());
        let status = backend.status(&name("a")).await.expect("an answer");
        assert!(status.is_held());
        assert_eq!(status.holders[0].label, None, "what it wrote is its secret");
        assert_eq!(status.holders[0].token, None);

        let next = locks.lock("a").ttl(TTL);
        let waiting = tokio::spawn(async move { next.acquire_within(LONG).await });
        let mut limit = SHORT;
        loop {
            let error = locks.lock("a").acquire_within(limit).await.expect_err("two hold it");
            if error.kind() == ErrorKind::TimedOut {
                break;
            }
            // A busy machine may not have an answer so soon.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(limit < AT_MOST / 2, "{error:?}");
            limit *= 4;
        }
        assert!(!waiting.is_finished());
        assert_eq!(python.ask(&format!("owned {key}")).await, "true");
        assert_eq!(python.ask(&format!("drop {key}")).await, "released");
        let guard = waiting.await.expect("no panic").expect("it is free");
        guard.release().await.expect("it is ours");
    }
}

#[testbed::test]
async fn a_late_release_of_redis_pys_does_not_end_our_hold() {
    let fixture = Fixture::new().await;
    let Some(mut python) = Python::start(&fixture).await else {
        return;
    };
    let key = fixture.lock_key("a");
    assert_eq!(python.ask(&format!("try {key} 300")).await, "true");
    let locks = Locker::new(fixture.backend());
    let guard = locks
        .lock("a")
        .ttl(TTL)
        .acquire_within(AT_MOST)
        .await
        .expect("it has expired");
    assert_eq!(python.ask(&format!("owned {key}")).await, "false");
    assert_eq!(python.ask(&format!("drop {key}")).await, "LockNotOwnedError");
    assert!(fixture.exists("a").await, "our hold is gone");
    guard.release().await.expect("it was ours all the time");
}

#[testbed::test]
async fn our_late_release_does_not_end_redis_pys_hold() {
    let fixture = Fixture::new().await;
    let Some(mut python) = Python::start(&fixture).await else {
        return;
    };
    let key = fixture.lock_key("a");
    let backend = fixture.backend();
    let (request, _control) = request("a", TTL);
    let hold = granted(&backend, &request).await;
    // Nobody renews it.
    let _: i64 = fixture.raw(&["PEXPIRE", &key, "300"]).await;
    assert_eq!(python.ask(&format!("wait {key} 60000")).await, "true");
    let outcome = hold.release(ReleaseOptions::default()).await.expect("an answer");
    assert_eq!(outcome, ReleaseOutcome::AlreadyLost);
    assert!(matches!(hold.renew(TTL).await, Ok(Renewal::Lost)));
    backend.abandon(&request).await.expect("an answer");
    assert_eq!(python.ask(&format!("owned {key}")).await, "true");
    assert_eq!(python.ask(&format!("drop {key}")).await, "released");
}

#[testbed::test]
async fn no_update_is_lost_between_us() {
    const TIMES: u32 = 100;
    let fixture = Fixture::new().await;
    let Some(mut python) = Python::start(&fixture).await else {
        return;
    };
    let counter = format!("{}counter", fixture.prefix);
    python
        .tell(&format!("add {counter} {} {TIMES}", fixture.lock_key("a")))
        .await;
    let locks = Locker::new(fixture.backend());
    // Both are at it at the same time.
    eventually("redis-py has begun", async || {
        fixture.raw::<bool>(&["EXISTS", &counter]).await
    })
    .await;
    for _ in 0..TIMES {
        let guard = locks.lock("a").ttl(TTL).acquire().await.expect("it becomes free");
        let value: u32 = fixture.raw(&["GET", &counter]).await;
        tokio::task::yield_now().await;
        let _: () = fixture.raw(&["SET", &counter, &(value + 1).to_string()]).await;
        guard.release().await.expect("it is ours");
    }
    assert_eq!(python.answer().await, "done");
    assert_eq!(fixture.raw::<u32>(&["GET", &counter]).await, 2 * TIMES);
}
