//! The end of a process with many holds, as an ensemble sees it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lock_core::Locker;
use lock_core::backend::DistributedLock;
use lock_zookeeper::ZooKeeperBackend;
use testbed::ZooKeeper;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::support::*;

/// Tells the child process where the ensemble is.
const URL: &str = "POLYLOCK_TEST_MANY_HOLDS";
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Whatever a busy machine needs to end the sessions. An ensemble that cannot never serves again.
const AT_MOST: Duration = Duration::from_secs(120);
const HOLDS: usize = 20_000;

/// A name of 100 bytes.
fn lock(number: usize) -> String {
    format!("{number:0>100}")
}

/// The child process: it holds the locks until it is killed, or its parent has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let locks = Locker::new(ZooKeeperBackend::from_url(&url).unwrap());
    let names = stream::iter(0..HOLDS).map(lock);
    let held = names.map(async |name| {
        let lock = locks.lock(&name).ttl(Duration::from_secs(600));
        lock.acquire().await.unwrap()
    });
    let held: Vec<_> = held.buffer_unordered(128).collect().await;
    assert!(held.iter().all(|guard| guard.check().is_ok()));
    println!("\nholding");
    let parent_ends = spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    parent_ends.await.unwrap().unwrap();
    std::process::exit(0);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The transactions that end its sessions name all its nodes. If a follower cannot read one of them, the ensemble never
/// serves again.
#[testbed::test]
async fn an_ensemble_survives_a_process_with_twenty_thousand_holds() {
    let ensemble = ZooKeeper::new().start_ensemble().await.unwrap();
    ensemble.ready().await.unwrap();
    let url = format!(
        "zookeeper://{}/locks?session_timeout={}s&connect_timeout=60s&acl=open",
        ensemble.addresses().join(","),
        SESSION_TIMEOUT.as_secs()
    );
    let mut child = Killed(
        Command::new(std::env::current_exe().unwrap())
            .args(["many_holds::child_process", "--exact", "--nocapture"])
            .env(URL, &url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let output = BufReader::new(child.0.stdout.take().unwrap());
    let is_holding = spawn_blocking(move || output.lines().any(|line| line.is_ok_and(|line| line == "holding")));
    let is_holding = happens("the child holds", is_holding).await.unwrap();
    assert!(is_holding, "the child process ended early");
    let observer = observer(&ensemble[0]).await;
    assert_eq!(observer.list_children("/locks").await.unwrap().len(), HOLDS);

    let killed = Instant::now();
    drop(child);
    // Of each thousand one.
    let backend = ZooKeeperBackend::from_url(&url).unwrap();
    for number in (0..HOLDS).step_by(1000) {
        let (request, _control) = long(&lock(number));
        eventually("an answer of the ensemble", async || {
            match backend.acquire(&request).await {
                Err(error) if error.is_retryable() => Err(error),
                attempt => Ok(granted(attempt)),
            }
        })
        .await;
    }
    let took = killed.elapsed();
    assert!(took < AT_MOST, "after {took:?}");
    println!("all free after {took:?}");
    ensemble.ready().await.unwrap();
}
