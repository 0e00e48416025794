//! The end of a process with many holds, as an ensemble sees it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::ready;
use futures_util::stream::{self, StreamExt};
use lock_core::backend::DistributedLock;
use lock_core::{ErrorKind, Locker};
use lock_zookeeper::ZooKeeperBackend;
use testbed::ZooKeeper;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::support::*;

/// Tells the child process where the ensemble is.
const URL: &str = "POLYLOCK_TEST_MANY_HOLDS";
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Whatever a busy machine needs to fill or to end the sessions. An ensemble that cannot end them never serves again.
const AT_MOST: Duration = Duration::from_secs(120);
/// Their paths have 3 MB. A follower cannot read a transaction of more than 2 MiB.
const NAMES: usize = 6000;

/// A name of 450 bytes.
fn lock(number: usize) -> String {
    format!("{number:0>450}")
}

/// The child process: it holds the locks for which its only session has room, until it is killed, or its parent has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let locks = Locker::new(ZooKeeperBackend::from_url(&url).unwrap());
    let mut is_first = true;
    let held = loop {
        let attempts = stream::iter(0..NAMES).map(async |number| {
            let lock = locks.lock(lock(number)).ttl(Duration::from_secs(600));
            match lock.try_acquire().await {
                Ok(guard) => {
                    assert!(guard.is_some() || !is_first, "{number} is taken");
                    guard
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    None
                }
            }
        });
        let held: Vec<_> = attempts.buffer_unordered(128).filter_map(ready).collect().await;
        if !held.is_empty() && held.iter().all(|guard| guard.check().is_ok()) {
            break held;
        }
        // On a busy machine the session may have ended, and its nodes are there until the server ends it, too.
        is_first = false;
    };
    println!("\nholding {}", held.len());
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

/// The transaction that ends its session names all its nodes. If the followers cannot read it, the ensemble never serves again.
#[testbed::test]
async fn an_ensemble_survives_a_process_that_wants_too_many_holds() {
    in_some_run("the process did not keep its holds", survives_a_process_with_many_holds).await;
}

/// An error if a busy machine lost the session of the process.
async fn survives_a_process_with_many_holds() -> Result<(), String> {
    let ensemble = ZooKeeper::new().start_ensemble().await.unwrap();
    ensemble.ready().await.unwrap();
    let url = format!(
        "zookeeper://{}/locks?session_timeout={}s&connect_timeout=60s&sessions=1&acl=open",
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
    let holding = spawn_blocking(move || {
        output
            .lines()
            .find_map(|line| line.ok()?.strip_prefix("holding ")?.parse().ok())
    });
    // Six thousand requests, each on the disks of two servers, and more than once if a busy machine loses the session.
    let holds: Option<usize> = timeout(4 * AT_MOST, holding).await.expect("the child holds").unwrap();
    let holds = holds.expect("the child process ended early");
    assert!(holds > 0 && holds < NAMES, "{holds}");
    let observer = observer(&ensemble[0]).await;
    // A name whose request failed may have a directory, too. What such a request has made goes in the background.
    let nodes = eventually("a node for each hold, or none", async || {
        let mut nodes = 0;
        for name in children_of(&observer, "/locks").await {
            nodes += children_of(&observer, &format!("/locks/{name}")).await.len();
        }
        if nodes == holds || nodes == 0 {
            Ok(nodes)
        } else {
            Err(nodes)
        }
    })
    .await;
    if nodes == 0 {
        return Err(format!("{holds} holds ended by themselves"));
    }

    let killed = Instant::now();
    drop(child);
    // Twenty of them.
    let backend = ZooKeeperBackend::from_url(&url).unwrap();
    for number in (0..NAMES).step_by(300) {
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
    Ok(())
}
