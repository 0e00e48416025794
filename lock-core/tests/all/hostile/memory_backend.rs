//! The memory backend.

use super::support::*;

#[tokio::test(start_paused = true)]
async fn held_elsewhere_for_ever_is_held() {
    let server = MemoryBackend::new();
    server.hold_elsewhere("a", Duration::MAX).unwrap();
    let tried = Locker::new(server).lock("a").try_acquire().await.unwrap();
    assert!(tried.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_elsewhere_tells_whoever_had_it() {
    let server = MemoryBackend::new();
    let stop = Arc::new(AtomicBool::new(false));
    let locks = Locker::new(server.clone());
    let taking = tokio::spawn({
        let (stop, lock) = (stop.clone(), locks.lock("a"));
        async move {
            while !stop.load(Ordering::SeqCst) {
                let Ok(Some(guard)) = lock.try_acquire().await else {
                    yield_now().await;
                    continue;
                };
                let _ = guard.release().await;
            }
        }
    });
    for _ in 0..2000 {
        let foreign = server.hold_elsewhere("a", seconds(600)).unwrap();
        let status = server.status(&LockName::new("a").unwrap()).await.unwrap();
        assert_eq!(status.holders[0].token, Some(foreign), "taken from whoever has it");
        server.take_away("a").unwrap();
        yield_now().await;
    }
    stop.store(true, Ordering::SeqCst);
    taking.await.unwrap();
}
