//! The local queue.

use super::support::*;

#[tokio::test(start_paused = true)]
async fn many_tries_at_once_are_busy_and_not_unavailable() {
    let (backend, locks) = hostile();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    backend.next(Request::Acquire, [Answer::DoThenWait(seconds(1)); 20]);
    let tries: Vec<_> = (0..10)
        .map(|_| {
            let lock = locks.lock("a");
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    for tried in tries {
        let tried = tried.await.unwrap();
        assert!(
            matches!(tried, Ok(None)),
            "the server answers within a second: {tried:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_beside_a_waiter_says_unavailable_when_the_server_is_down() {
    let (backend, locks) = hostile();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    let lock = locks.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(seconds(1)).await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    backend.server().set_available(false);
    sleep(seconds(60)).await;
    let tried = locks.lock("a").try_acquire().await;
    assert_eq!(tried.expect_err("the server is down").kind(), ErrorKind::Unavailable);
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn the_second_waiters_time_out_names_the_holder_too() {
    let (backend, locks) = hostile();
    backend.server().hold_elsewhere("a", seconds(600)).unwrap();
    let lock = locks.lock("a");
    let first = tokio::spawn(async move { lock.acquire().await });
    sleep(seconds(1)).await;
    let error = locks.lock("a").acquire_within(seconds(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.holder()), (ErrorKind::TimedOut, Some("elsewhere")));
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_served_in_order_whoever_leaves() {
    let (_, locks) = hostile();
    let first = locks.lock("a").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..50 {
        let (lock, order) = (locks.lock("a"), order.clone());
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            drop(guard);
        }));
        yield_now().await;
    }
    for number in (0..50).step_by(3) {
        waiting[number].abort();
    }
    first.release().await.unwrap();
    for (number, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(waiting.await.is_err(), number % 3 == 0);
    }
    let expected: Vec<_> = (0..50).filter(|number| number % 3 != 0).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}
