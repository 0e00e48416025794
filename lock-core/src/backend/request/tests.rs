use super::*;

fn options(terms: Terms) -> RequestOptions {
    RequestOptions::new(LockName::new("a").unwrap(), terms)
}

#[tokio::test(start_paused = true)]
async fn gives_up_at_the_deadline_as_it_stands() {
    let ttl = Duration::from_secs(10);
    let (request, control) = options(Terms::new(ttl).time_left(Duration::from_secs(1)))
        .wait(Wait::Until)
        .start();
    let started = Instant::now();
    let waiting = tokio::spawn({
        let request = request.clone();
        async move { request.given_up().await }
    });
    tokio::task::yield_now().await;
    control.set_terms(Terms::new(ttl).time_left(Duration::from_secs(3)));
    waiting.await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert_eq!(request.time_left(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn gives_up_when_its_control_is_dropped() {
    let (request, control) = options(Terms::new(Duration::from_secs(10))).start();
    assert!(!request.is_given_up());
    drop(control);
    request.given_up().await;
}

#[tokio::test]
async fn a_deadline_past_the_end_of_time_is_none() {
    let (request, _control) = options(Terms::new(Duration::from_secs(1)).time_left(Duration::MAX)).start();
    assert_eq!(request.time_left(), None);
}
