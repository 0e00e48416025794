//! What those who watch are told: every metric by its public name, and the events.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Locker, MemoryBackend};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::sleep;

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Everything that is counted happens once, or twice.
async fn an_eventful_life() {
    let server = MemoryBackend::new();
    let locks = Locker::new(server.clone()).with_ttl(seconds(9));
    let elsewhere = Locker::new(server.clone());

    // Acquired, renewed once, handed over, released.
    let first = locks.lock("a").acquire().await.unwrap();
    let lock = locks.lock("a");
    let next = tokio::spawn(async move { lock.acquire().await });
    sleep(seconds(4)).await;
    assert!(locks.lock("a").try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();

    // Taken elsewhere: timed out, and its place abandoned.
    let taken = elsewhere.lock("b").fixed_lease().acquire().await.unwrap();
    let waited = locks.lock("b").acquire_within(seconds(1)).await;
    assert!(waited.unwrap_err().is_timed_out());
    while locks.status("b").await.unwrap().waiting != Some(0) {
        yield_now().await;
    }
    drop(taken);
    elsewhere.shutdown().await.unwrap();

    // A renewal fails, and the next one finds the lock taken away.
    let lost = locks.lock("c").acquire().await.unwrap();
    server.set_available(false);
    sleep(Duration::from_millis(3001)).await;
    server.take_away("c").unwrap();
    lost.lost().await;
    yield_now().await;
    server.set_available(true);
    drop(lost);
    locks.shutdown().await.unwrap();
}

#[test]
fn every_metric_has_its_name() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || runtime().block_on(an_eventful_life()));
    let mut seen = BTreeMap::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        let name = format!("{} {}", key.key().name(), labels.join(" "));
        let times = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => panic!("no gauges: {name}"),
        };
        seen.insert(name.trim().to_owned(), times);
    }
    let expected = [
        ("polylock_contended_total", 1),
        ("polylock_hand_overs_total granted", 1),
        ("polylock_hold_seconds lost", 1),
        ("polylock_hold_seconds released", 3),
        ("polylock_losses_total not_held", 1),
        ("polylock_renewals_total failed", 1),
        ("polylock_renewals_total renewed", 1),
        ("polylock_requests_total abandon", 1),
        ("polylock_requests_total acquire", 4),
        ("polylock_requests_total hand_over", 1),
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

#[test]
fn spans_and_events_have_their_names() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || runtime().block_on(an_eventful_life()));
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for expected in [
        "DEBUG acquire{name=a}: polylock: lock acquired name=a token=1",
        "DEBUG release{name=a token=1}: polylock: lock handed over name=a outcome=Granted",
        "DEBUG acquire{name=b}: polylock: lock is taken name=b",
        "DEBUG acquire{name=b}: polylock: lock not acquired",
        " INFO polylock: hold suspect name=c",
        " WARN polylock: hold lost name=c token=4 cause=the server says that it is not ours any more",
    ] {
        assert!(
            text.lines().any(|line| line.contains(expected)),
            "{expected:?} in\n{text}"
        );
    }
}
