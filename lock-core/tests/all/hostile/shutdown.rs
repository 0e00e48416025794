//! Shutdown, and lockers that go first.

use tokio::sync::Notify;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn nobody_gets_a_lock_after_shutdown_began() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone());
    let guard = locks.lock("a").acquire().await.unwrap();
    let lock = locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    yield_now().await;
    let (shut, released) = tokio::join!(locks.shutdown(), guard.release());
    shut.unwrap();
    released.unwrap();
    let late = waiting.await.unwrap();
    assert_eq!(late.expect_err("shut down").kind(), ErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_release_outlives_its_locker() {
    let (backend, locks) = hostile();
    let guard = locks.lock("a").acquire().await.unwrap();
    drop(locks);
    // The pauses between them add up to 3.5 s at least and 7.2 s at most.
    backend.next(Request::Release, [Answer::Fail; 8]);
    let error = timeout(Duration::from_millis(3200), guard.release()).await;
    assert!(error.is_err());
    sleep(seconds(5)).await; // 8.2 s after the grant
    assert!(!backend.is_held("a").await, "before its ttl");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_right_after_its_locker_is_released() {
    let server = MemoryBackend::new();
    for round in 0..3000 {
        let locks = Locker::new(server.clone());
        let guard = locks.lock("a").acquire().await.unwrap();
        let watch = guard.watch();
        drop(locks);
        for _ in 0..(round * 13) % 400 {
            std::hint::spin_loop();
        }
        drop(guard);
        let ended = timeout(seconds(20), watch.ended()).await;
        assert!(ended.is_ok(), "not released in round {round}");
    }
}

/// A backend whose end ends the session of all its holds, as a server's connection does.
#[derive(Debug)]
struct Session {
    server: MemoryBackend,
    leases: Arc<Mutex<Vec<Lease>>>,
    dropped: Arc<Notify>,
}

impl Drop for Session {
    fn drop(&mut self) {
        for lease in self.leases.lock().unwrap().drain(..) {
            lease.lose(LostCause::Disconnected);
        }
        self.dropped.notify_one();
    }
}

#[async_trait]
impl DistributedLock for Session {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }
    async fn connect(&self) -> Result<()> {
        Ok(())
    }
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.leases.lock().unwrap().push(request.lease().clone());
        self.server.acquire(request).await
    }
    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        yield_now().await;
        self.server.abandon(request).await
    }
    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server.status(name).await
    }
}

#[test]
fn a_guard_keeps_its_backend_which_may_lose_its_leases_when_it_is_dropped() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let server = MemoryBackend::new();
            server.hold_elsewhere("b", seconds(600)).unwrap();
            let dropped = Arc::new(Notify::new());
            let locks = Locker::new(Session {
                server: server.clone(),
                leases: Arc::default(),
                dropped: dropped.clone(),
            });
            let guard = locks.lock("a").acquire().await.unwrap();
            drop_after(2, locks.lock("b").acquire()).await; // to be undone in the background
            drop(locks);
            let name = LockName::new("b").unwrap();
            while server.status(&name).await.unwrap().waiting != Some(0) {
                yield_now().await; // until it is undone, and the guard is all that is left
            }
            assert_eq!(guard.state(), HoldState::Held);
            drop(guard);
            dropped.notified().await;
        });
        done.send(()).unwrap();
    });
    // Nothing here takes time: it is a deadlock or it is done.
    receives(
        "that the keeper does not drop the backend under its own lock",
        &finished,
    );
}

/// Notes at each close whether the name `a` is free.
#[derive(Debug)]
struct Closes {
    server: MemoryBackend,
    closes: Arc<Mutex<Vec<bool>>>,
}

#[async_trait]
impl DistributedLock for Closes {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }
    async fn connect(&self) -> Result<()> {
        Ok(())
    }
    async fn close(&self) -> Result<()> {
        let is_free = self.server.status(&LockName::new("a")?).await?.holders.is_empty();
        let count = {
            let mut closes = self.closes.lock().unwrap();
            closes.push(is_free);
            closes.len()
        };
        match count {
            1 => Ok(()),
            2 => Err(Error::new(ErrorKind::Unavailable, "no answer")),
            _ => std::future::pending().await,
        }
    }
    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.server.acquire(request).await
    }
    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.server.abandon(request).await
    }
    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.server.status(name).await
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_the_backend_when_all_is_done() {
    let closes = Arc::default();
    let locks = Locker::new(Closes {
        server: MemoryBackend::new(),
        closes: Arc::clone(&closes),
    });
    drop(locks.lock("a").acquire().await.unwrap());
    locks.shutdown().await.unwrap();
    assert_eq!(*closes.lock().unwrap(), [true]);
    assert_eq!(locks.shutdown().await.unwrap_err().to_string(), "no answer");
    let error = locks.shutdown().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("10s"), "{error}");
}

/// What it blames is what the caller can mend.
#[tokio::test(start_paused = true)]
async fn a_shutdown_names_a_future_that_nobody_polls() {
    let server = MemoryBackend::new();
    let (ours, others) = (Locker::new(server.clone()), Locker::new(server));
    let guard = others.lock("a").acquire().await.unwrap();
    let mut forgotten = pin!(async { ours.lock("a").acquire().await });
    assert!((&mut forgotten).now_or_never().is_none());
    let refused = ours.shutdown().await.unwrap_err().to_string();
    assert!(
        refused.contains("neither polled to the end nor dropped: 1"),
        "{refused}"
    );
    assert!(!refused.contains("locks not released"), "{refused}");
    guard.release().await.unwrap();
}
