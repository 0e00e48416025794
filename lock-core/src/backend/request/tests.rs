use super::*;

fn options(terms: Terms) -> RequestOptions {
    RequestOptions::new(LockName::new("a").unwrap(), terms)
}

#[tokio::test(start_paused = true)]
async fn gives_up_at_the_deadline_as_it_stands() {
    let ttl = Duration::from_secs(10);
    let (request, control) = options(Terms::new(ttl).time_left(Duration::from_secs(1))).start();
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

#[tokio::test]
async fn a_change_is_heard_of_from_the_call_on() {
    let (request, control) = options(Terms::new(Duration::from_secs(10))).start();
    let changes: [fn(&AcquireRequest, &RequestControl); 4] = [
        |_, control| control.set_terms(Terms::new(Duration::from_secs(20))),
        |request, _| request.note_busy(Busy::new()),
        |request, _| request.note_unreachable(Error::new(crate::ErrorKind::Unavailable, "gone")),
        |_, control| control.give_up(),
    ];
    for change in changes {
        let changed = request.changed();
        change(&request, &control);
        changed.await;
    }
    assert!(request.unreachable().is_some());
}

/// Another caller may have begun the request: what the backend read before is then not what was asked for.
#[tokio::test]
async fn a_minimum_that_changes_was_not_read_as_it_stands() {
    let (ttl, minimum) = (Duration::from_secs(10), Duration::from_secs(5));
    let (request, control) = options(Terms::new(ttl)).start();
    let read_others = || (request.ttl(), request.label());
    read_others();
    assert!(request.was_read_as_it_stands(), "a backend need not read it");
    assert_eq!(request.minimum(), None);
    control.set_terms(Terms::new(ttl).minimum(minimum));
    read_others();
    assert!(!request.was_read_as_it_stands());
    assert_eq!(request.minimum(), Some(minimum));
    assert!(request.was_read_as_it_stands());
}
