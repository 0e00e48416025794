//! One holder at a time, whatever happens.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::backend::{DistributedLock, Lease, ReleaseOptions, ReleaseOutcome};
use testbed::assert_safe;
use tokio::time::sleep;

use crate::support::*;

#[testbed::test]
async fn a_contended_name_excludes() {
    let (server, root) = (shared_server().await, fresh_root());
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let backend = patient(server.address(), &root);
        for _ in 0..10 {
            let (backend, inside) = (backend.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let (hold, _request, _control) = hold(&backend, "a").await;
                    assert_safe!(inside.fetch_add(1, Ordering::SeqCst) == 0, "two have it");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(
                        hold.release(ReleaseOptions::default()).await.unwrap(),
                        ReleaseOutcome::Released
                    );
                }
            }));
        }
    }
    // Of all of them, since each waits for the others.
    for task in tasks {
        happens("the end of all turns", task).await.unwrap();
    }
}

/// The last grant: its token, and the lease of whoever still believes in it.
#[derive(Default)]
struct Believer(Mutex<(u64, Option<Lease>)>);

impl Believer {
    fn enter(&self, token: u64, lease: &Lease) {
        let mut last = self.0.lock().unwrap();
        let other = last.1.as_ref().map(Lease::valid_for).filter(|left| !left.is_zero());
        assert_safe!(other.is_none(), "two believe that they hold it, {} and {token}", last.0);
        assert_safe!(token > last.0, "{} was followed by {token}", last.0);
        *last = (token, Some(lease.clone()));
    }

    fn leave(&self, token: u64) {
        let mut last = self.0.lock().unwrap();
        if last.0 == token {
            last.1 = None;
        }
    }
}

#[testbed::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_believes_at_a_time_while_the_server_comes_and_goes() {
    const ENOUGH: u32 = 100;
    let server = own_server().await;
    let (believer, stop) = (Arc::new(Believer::default()), Arc::new(AtomicBool::new(false)));
    let grants = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        // Of the pauses below, some outlast such a session.
        let config = config(server.address(), "/test").with_session_timeout(Duration::from_secs(2));
        let backend = backend_with(config);
        for _ in 0..3 {
            let (backend, believer, stop) = (backend.clone(), believer.clone(), stop.clone());
            let grants = grants.clone();
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let (request, _control) = waiting("a");
                    let hold = match backend.acquire(&request).await {
                        Err(error) if error.is_retryable() => {
                            while backend.abandon(&request).await.is_err() {}
                            continue;
                        }
                        attempt => granted(attempt),
                    };
                    let token = hold.token().as_u64();
                    believer.enter(token, request.lease());
                    sleep(Duration::from_millis(2)).await;
                    believer.leave(token);
                    grants.fetch_add(1, Ordering::SeqCst);
                    while hold.release(ReleaseOptions::default()).await.is_err() {}
                }
            }));
        }
    }
    for millis in [300, 2500, 900, 1900, 100] {
        sleep(Duration::from_secs(1)).await;
        server.pause().unwrap();
        sleep(Duration::from_millis(millis)).await;
        server.resume().unwrap();
        sleep(Duration::from_secs(1)).await;
        server.restart().await.unwrap();
    }
    eventually("enough grants", async || grants.load(Ordering::SeqCst) > ENOUGH).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        happens("the task ends", task).await.unwrap();
    }
    let client = observer(&server).await;
    children_until(&client, "/test/a", <[String]>::is_empty).await;
}
