use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{ErrorKind, Guarantee, Verdict};
use lock_kit::backoff::DIAL_SPACING;
use parking_lot::Mutex;
use testbed::steady::blocking::receives;
use tokio::time::sleep;

use super::dial::Dialed;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// A server to which no connection can be made, in one way or another.
#[derive(Clone, Default)]
struct Unreachable {
    takes: Duration,
    panics: bool,
    /// The moments when dials began.
    dials: Arc<Mutex<Vec<Instant>>>,
    is_dialing: Arc<AtomicBool>,
}

#[async_trait]
impl Dial for Unreachable {
    async fn dial(&self) -> Result<Dialed> {
        assert!(!self.is_dialing.swap(true, Ordering::SeqCst), "one dial at a time");
        self.dials.lock().push(Instant::now());
        sleep(self.takes).await;
        self.is_dialing.store(false, Ordering::SeqCst);
        if self.panics {
            panic!("no {} provider", "crypto");
        }
        Err(Error::new(ErrorKind::Unavailable, "refused"))
    }

    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn keeps(&self, _: Guarantee) -> Verdict {
        Verdict::unknown("it was never reached", "connect")
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cache:6379")
    }
}

impl Unreachable {
    fn connection(&self) -> Connection {
        let config = RedisConfig::new("cache", 6379);
        let inbox = Arc::new(Inbox::new(config.prefix()));
        Connection::with_dialer(
            Box::new(self.clone()),
            &config,
            inbox,
            Arc::default(),
            Leases::default(),
            Role::Alone,
        )
    }

    /// One that was there once.
    fn lost_connection(&self) -> Connection {
        let connection = self.connection();
        let long_ago = Some(Instant::now());
        connection.0.state.send_modify(|state| state.connected = long_ago);
        connection
    }

    fn dials(&self) -> usize {
        self.dials.lock().len()
    }

    /// The times between dials.
    fn pauses(&self) -> Vec<Duration> {
        let dials = self.dials.lock();
        dials.windows(2).map(|two| two[1] - two[0]).collect()
    }
}

async fn failure(connection: &Connection) -> Error {
    match connection.session(std::future::pending()).await {
        Err(error) => error,
        Ok(_) => panic!("there is nothing to connect to"),
    }
}

/// A release is polled like this when a runtime drops it at its end: once, and outside tokio's cooperative budget.
#[test]
fn a_supervisor_that_a_dying_runtime_refuses_is_an_error_at_once() {
    let (answered, answer) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let _within = handle.enter();
        let server = Unreachable::default();
        let connection = server.lost_connection();
        let failing = pin!(failure(&connection));
        let Poll::Ready(error) = failing.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits for a supervisor that there will never be");
        };
        answered.send((error, server.dials())).expect("somebody waits");
    });
    let (error, dials) = receives("the answer, unless it spins", &answer);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("runtime is ending"), "{error}");
    assert_eq!(dials, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_connecting_is_an_error_that_quotes_it_and_is_not_repeated_without_a_pause() {
    let server = Unreachable {
        panics: true,
        ..Unreachable::default()
    };
    // Before the first contact it is final.
    let error = failure(&server.connection()).await;
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(!error.is_retryable() && error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("cache:6379 panicked"), "{error}");
    let source = error.cause().expect("what it said").to_string();
    assert_eq!(source, "no crypto provider");
    sleep(60 * 1000 * MS).await;
    assert_eq!(server.dials(), 1);

    // After it, the supervisor tries for ever, less and less often.
    let connection = server.lost_connection();
    assert_eq!(failure(&connection).await.kind(), ErrorKind::Unexpected);
    sleep(60 * 1000 * MS).await;
    assert!((60..200).contains(&server.dials()), "{} dials", server.dials());
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_a_connection_cuts_the_pause_short() {
    let server = Unreachable::default();
    let connection = server.lost_connection();
    failure(&connection).await;
    // By now the pauses are the longest.
    sleep(60 * 1000 * MS).await;
    for _ in 0..20 {
        sleep(333 * MS).await;
        let (asked, dials) = (Instant::now(), server.dials());
        failure(&connection).await;
        let waited = asked.elapsed();
        assert!(waited <= DIAL_SPACING, "{waited:?}");
        assert_eq!(server.dials(), dials + 1, "it failed without a try, or after several");
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_want_a_connection_have_one_dial_at_a_time_and_not_too_many() {
    let server = Unreachable {
        takes: 5 * MS,
        ..Unreachable::default()
    };
    let connection = Arc::new(server.lost_connection());
    let start = Instant::now();
    let callers: Vec<_> = (0..100)
        .map(|caller| {
            let (connection, server) = (connection.clone(), server.clone());
            tokio::spawn(async move {
                while start.elapsed() < 10 * 1000 * MS {
                    let (asked, dials) = (Instant::now(), server.dials());
                    failure(&connection).await;
                    assert!(server.dials() > dials, "it failed without a try of its own");
                    assert!(asked.elapsed() <= 2 * (DIAL_SPACING + server.takes));
                    sleep(caller * MS).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let pauses = server.pauses();
    assert!(pauses.len() > 100, "{} dials in 10 s", pauses.len());
    let shortest = pauses.iter().min().expect("several");
    assert!(*shortest >= DIAL_SPACING, "{shortest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_contact_is_tried_for_as_long_as_anybody_waits() {
    let server = Unreachable::default();
    let connection = server.connection();
    let start = Instant::now();
    let error = failure(&connection).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(start.elapsed(), RedisConfig::DEFAULT_CONNECT_TIMEOUT);
    let cause = error.cause().expect("why it was not reached").to_string();
    assert_eq!(cause, "refused");
    sleep(60 * 1000 * MS).await;
    let dials = server.dials();
    assert!((8..30).contains(&dials), "{dials} dials");
}
