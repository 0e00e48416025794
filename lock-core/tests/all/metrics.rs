//! What those who watch are told: every metric, span and event by its public name.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Locker, MemoryBackend};
use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::runtime::{Builder, Runtime};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::fmt::format::FmtSpan;

use self::lives::{a_life_of_trouble, an_eventful_life};

mod contended;
mod docs;
mod ends;
mod json;
mod lives;
mod panics;
mod undriven;

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// What happens meanwhile goes to this subscriber.
///
/// With only one subscriber in the process, tracing asks that of the thread that comes to an event first whether anybody
/// wants such events, and takes the answer for all threads: that thread may be one of another test. With two it asks all.
fn subscribed(subscriber: impl Subscriber + Send + Sync + 'static, life: impl Future<Output = ()>) {
    subscribed_by(subscriber, || runtime().block_on(life));
}

fn subscribed_by(subscriber: impl Subscriber + Send + Sync + 'static, life: impl FnOnce()) {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND);
    tracing::subscriber::with_default(subscriber, life);
}

/// All that was measured meanwhile.
fn measured(life: impl Future<Output = ()>) -> Vec<(CompositeKey, DebugValue)> {
    measured_by(|| runtime().block_on(life))
}

fn measured_by(life: impl FnOnce()) -> Vec<(CompositeKey, DebugValue)> {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, life);
    let measured = recorder.snapshotter().snapshot().into_vec();
    let described = |(key, _, description, value): (CompositeKey, _, Option<_>, _)| {
        assert!(description.is_some(), "{key:?} has no description");
        (key, value)
    };
    measured.into_iter().map(described).collect()
}

#[test]
fn everything_is_counted_when_it_happens() {
    let mut seen = BTreeMap::new();
    for (key, value) in measured(an_eventful_life(str::to_owned)) {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let name = format!("{} {}", key.key().name(), labels.join(" "));
        let times = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            // All has ended: what rose has fallen.
            DebugValue::Gauge(value) => {
                assert_eq!(value.into_inner(), 0.0, "{name}");
                continue;
            }
        };
        seen.insert(name.trim().to_owned(), times);
    }
    let expected = [
        ("polylock_contended_total process", 2),
        ("polylock_contended_total server", 1),
        ("polylock_hold_seconds lost", 1),
        ("polylock_hold_seconds released", 3),
        ("polylock_losses_total not_held", 1),
        ("polylock_renewals_total failed", 1),
        ("polylock_renewals_total renewed", 1),
        ("polylock_requests_total abandon", 1),
        ("polylock_requests_total acquire", 5),
        ("polylock_requests_total renew", 2),
        ("polylock_requests_total status", 1),
        ("polylock_suspicions_total", 1),
        ("polylock_wait_seconds acquired", 4),
        ("polylock_wait_seconds busy", 1),
        ("polylock_wait_seconds timed_out", 1),
    ];
    for (name, times) in expected {
        assert_eq!(seen.remove(name), Some(times), "{name}; all: {seen:?}");
    }
    // How often a lost hold is given back depends on when the server comes back.
    seen.remove("polylock_requests_total release");
    assert_eq!(seen, BTreeMap::new());
}

#[test]
fn gauges_show_what_goes_on() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        runtime().block_on(async {
            let locks = Locker::new(MemoryBackend::new());
            let guard = locks.lock("a").acquire().await.unwrap();
            let lock = locks.lock("a");
            let mut waiter = pin!(lock.acquire());
            assert!(waiter.as_mut().now_or_never().is_none());
            let snapshot = recorder.snapshotter().snapshot().into_vec();
            let gauges = snapshot.iter().filter_map(|(key, _, _, value)| match value {
                DebugValue::Gauge(value) => Some((key.key().name(), value.into_inner())),
                _ => None,
            });
            let gauges: BTreeMap<_, _> = gauges.collect();
            assert_eq!(gauges, [("polylock_acquires", 1.0), ("polylock_holds", 1.0)].into());
            drop(guard);
        });
    });
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a subscriber that prints lines prints meanwhile.
fn printed(life: impl Future<Output = ()>) -> String {
    printed_by(|| runtime().block_on(life))
}

fn printed_by(life: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::NEW)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    subscribed_by(subscriber, life);
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn spans_and_events_say_which_lock() {
    let text = printed(an_eventful_life(str::to_owned));
    for expected in [
        "DEBUG acquire{lock=\"a\" label=\"worker 7\"}: polylock: lock acquired lock=\"a\" token=1",
        "DEBUG renew{lock=\"a\" token=1}: polylock: new",
        "DEBUG release{lock=\"a\" token=1}: polylock: lock released lock=\"a\" token=1",
        "DEBUG acquire{lock=\"b\"}: polylock: lock is taken lock=\"b\" holder=\"elsewhere\"",
        "DEBUG acquire{lock=\"b\"}: polylock: lock not acquired lock=\"b\" error=",
        "DEBUG abandon{lock=\"b\"}: polylock: new",
        " INFO polylock: hold suspect lock=\"c\"",
        " WARN polylock: hold lost lock=\"c\" token=36 cause=the server says that it is not ours any more",
    ] {
        assert!(
            text.lines().any(|line| line.contains(expected)),
            "{expected:?} in\n{text}"
        );
    }
}

/// Each pair of limits of a name once, whoever stated which of them first, and however often.
#[test]
fn limits_that_differ_are_told_once() {
    let text = printed(async {
        let locks = Locker::new(MemoryBackend::new()).without_label();
        for name in ["a", "b"] {
            let semaphore = |limit| locks.semaphore(name, limit);
            let held = semaphore(5).permits(1).acquire().await.unwrap();
            semaphore(5)
                .permits(1)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            for _ in 0..3 {
                semaphore(10)
                    .permits(1)
                    .acquire()
                    .await
                    .unwrap()
                    .release()
                    .await
                    .unwrap();
                semaphore(5)
                    .permits(1)
                    .acquire()
                    .await
                    .unwrap()
                    .release()
                    .await
                    .unwrap();
            }
            assert!(semaphore(7).permits(7).acquire_within(Duration::ZERO).await.is_err());
            held.release().await.unwrap();
            // Nobody has the name, and what was stated before is over.
            semaphore(20)
                .permits(1)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    });
    let told: Vec<&str> = text.lines().filter(|line| line.contains("limits differ")).collect();
    let expected = ["a", "b"].map(|name| {
        let prefix = "acquire{lock=\"NAME\"}: polylock: semaphore limits differ lock=\"NAME\"".replace("NAME", name);
        [
            format!("{prefix} limit=10 other=5"),
            format!("{prefix} limit=7 other=5"),
        ]
    });
    let expected: Vec<String> = expected.into_iter().flatten().collect();
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (line, expected) in told.into_iter().zip(&expected) {
        assert!(line.ends_with(expected), "{expected:?} in {line:?}");
    }
}

/// Whatever stands in a name or a label, the lines are the same but for that, and it is escaped.
#[test]
fn names_and_labels_forge_no_line() {
    const FORGED: &str = "\" token=7\r\n WARN polylock: hold lost lock=\"payments\" token=7\n";
    let lives = |called| async move {
        an_eventful_life(called).await;
        a_life_of_trouble(called).await;
    };
    let honest = printed(lives(str::to_owned));
    let hostile = printed(lives(|called| format!("{called}{FORGED}")));
    assert!(hostile.len() > honest.len());
    let hostile = hostile.replace(&FORGED.escape_debug().to_string(), "");
    assert_eq!(without_times(&honest), without_times(&hostile));
}

/// The pauses between the tries of a release are random, and so is how long ago its hold was confirmed when it gives up.
fn without_times(lines: &str) -> String {
    const BEFORE: &str = "(last confirmed ";
    let without = |line: &str| match line.split_once(BEFORE) {
        Some((start, rest)) => format!("{start}{BEFORE}{}", rest.split_once(' ').expect("a time, and more").1),
        None => line.to_owned(),
    };
    lines.lines().map(without).collect::<Vec<_>>().join("\n")
}

/// On real time: a thread that blocks its runtime is the event itself.
#[test]
fn a_hold_whose_runtime_nobody_drives_is_told_as_that() {
    let text = printed_by(|| {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let locks = Locker::new(MemoryBackend::new()).with_ttl(Duration::from_secs(2));
        let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let error = runtime.block_on(guard.release()).unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(
            error.to_string().contains("nobody drove the tokio runtime for "),
            "{error}"
        );
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
    });
    let told: Vec<_> = text.lines().filter(|line| line.contains("hold lost")).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(
        told[0].contains("WARN") && told[0].contains("nobody drove the tokio runtime"),
        "{told:?}"
    );
}
