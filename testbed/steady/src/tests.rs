use std::cell::Cell;
use std::future::{pending, ready};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;

use tokio::task::spawn_local;
use tokio::time::{Duration, Instant};

use super::{AT_MOST, LONG_TTL, RUNS, blocking, eventually, happens, in_some_run, stays_below};

/// The message with which this panics.
async fn panics<T: 'static>(future: impl Future<Output = T> + 'static) -> String {
    let local = tokio::task::LocalSet::new();
    let ended = local.run_until(async { spawn_local(future).await }).await;
    let panic = ended.err().expect("it panics").into_panic();
    *panic.downcast::<String>().expect("a text")
}

#[tokio::test(start_paused = true)]
async fn an_event_may_take_its_time_and_a_hang_is_named_with_its_place() {
    assert_eq!(happens("at once", ready(1)).await, 1);
    happens("late", tokio::time::sleep(AT_MOST - Duration::from_secs(1))).await;
    let start = Instant::now();
    let message = panics(happens("the grant", pending::<()>())).await;
    assert_eq!(start.elapsed(), AT_MOST);
    let said = format!("did not happen within {AT_MOST:?}: the grant (at testbed/steady/src/tests.rs");
    assert!(message.contains(&said), "{message}");
    assert!(LONG_TTL > AT_MOST, "a lease outlasts the wait");
}

#[tokio::test(start_paused = true)]
async fn a_state_is_asked_for_until_it_is_so() {
    let asked = Cell::new(0);
    let count = || asked.replace(asked.get() + 1);
    eventually("three looks", async || count() == 2).await;
    assert_eq!(asked.get(), 3);
    assert_eq!(eventually("some", async || Some(5)).await, 5);
    assert_eq!(
        eventually("fine", async || (count() > 5).then_some(6).ok_or("not yet")).await,
        6
    );
    let message = panics(eventually("free", async || Err::<(), _>("held"))).await;
    assert!(
        message.contains("free") && message.ends_with(r#"at last: "held""#),
        "{message}"
    );
    let message = panics(eventually("answered", pending_answer)).await;
    assert!(message.ends_with("at last: no answer"), "{message}");
}

async fn pending_answer() -> bool {
    pending().await
}

#[tokio::test]
async fn a_scenario_is_repeated_until_it_stays_below_or_succeeds() {
    let mut values = [9, 8, 3, 2].into_iter();
    stays_below(5, "too many", async || values.next().expect("one of four")).await;
    assert_eq!(values.next(), Some(2), "the run that stayed below was the last");
    let message = panics(stays_below(5, "too many", async || 5)).await;
    assert!(
        message.starts_with("too many: [5, 5, 5], and never less than 5"),
        "{message}"
    );

    let mut runs = [Err("late"), Ok(7)].into_iter();
    assert_eq!(
        in_some_run("nobody is woken", async || runs.next().expect("one of two")).await,
        7
    );
    let message = panics(in_some_run("nobody is woken", async || false)).await;
    assert!(
        message.starts_with(&format!("nobody is woken, {RUNS} times in a row")),
        "{message}"
    );
}

#[test]
fn a_failure_of_safety_says_so_first() {
    let holders = 2;
    assert_safe!(holders == 2, "{holders} have it");
    let unsafe_one = std::panic::catch_unwind(|| assert_safe!(holders <= 1, "{holders} have {}", "it"));
    let message = unsafe_one.expect_err("it panics");
    assert_eq!(message.downcast_ref::<String>().expect("a text"), "SAFETY: 2 have it");
}

#[test]
fn without_async_a_message_or_a_state_is_waited_for() {
    let mut looks = 0;
    blocking::eventually("three looks", || {
        looks += 1;
        looks == 3
    });
    let (sender, receiver) = mpsc::channel();
    sender.send(1).expect("it is received");
    assert_eq!(blocking::receives("a number", &receiver), 1);
    drop(sender);
    assert_eq!(blocking::next("another number", &receiver), None);
    let gone = std::panic::catch_unwind(AssertUnwindSafe(|| blocking::receives("another number", &receiver)));
    assert!(gone.is_err());
}
