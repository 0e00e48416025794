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

/// Whoever waits was told the end of the hold that was taken away.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_name_when_a_hold_elsewhere_ends() {
    let server = MemoryBackend::new();
    let (ours, others) = (Locker::new(server.clone()), Locker::new(server.clone()));
    let guard = ours.lock("a").ttl(seconds(30)).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { others.lock("a").acquire().await });
    sleep(seconds(1)).await;
    let began = Instant::now();
    server.hold_elsewhere("a", seconds(1)).unwrap();
    drop(guard);
    let _next = waiting.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), seconds(1));
}

/// The name was free, and it was the turn of one who has left since.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_one_who_left_gets_the_name_when_a_hold_elsewhere_ends() {
    let server = MemoryBackend::new();
    let [ours, first, second] = [(); 3].map(|()| Locker::new(server.clone()));
    let guard = ours.lock("a").acquire().await.unwrap();
    let mut first = Box::pin(async move { first.lock("a").acquire().await });
    assert!((&mut first).now_or_never().is_none());
    // The first one is woken, and not polled: to the second one the name is free, and another one's turn.
    guard.release().await.unwrap();
    let mut second = Box::pin(async move { second.lock("a").acquire().await });
    assert!((&mut second).now_or_never().is_none());
    let began = Instant::now();
    server.hold_elsewhere("a", seconds(1)).unwrap();
    drop(first);
    let _next = timeout(seconds(60), second).await.unwrap().unwrap();
    assert_eq!(began.elapsed(), seconds(1));
}

/// Near the last token there is: a hold that was passed on, and the next one.
#[tokio::test]
async fn the_last_tokens_are_granted_once() {
    let server = MemoryBackend::new();
    let floor = FencingToken::new(i64::MAX.unsigned_abs() - 2).unwrap();
    let locks = Locker::new(server.clone()).with_token_floor(floor);
    let lock = locks.lock("a");
    let first = lock.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    yield_now().await;
    let token = first.token();
    drop(first);
    let next = waiting.await.unwrap().unwrap();
    assert!(token < next.token());
    drop(next);
    let refused = lock.acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unexpected);
    let refused = server.hold_elsewhere("b", seconds(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unexpected);
}
