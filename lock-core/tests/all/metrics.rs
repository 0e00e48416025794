//! What those who watch are told: every metric, span and event by its public name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Error, ErrorKind, Locker, LostCause, MemoryBackend};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use metrics_util::{CompositeKey, MetricKind};
use tokio::runtime::{Builder, Runtime};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use self::lives::{a_life_of_haste, a_life_of_trouble, an_eventful_life, an_operators_life};
use crate::scripted::{Answer, Request, Scripted};

mod contended;
mod docs;
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

/// A hold whose releases the server answers like this: how often its end was measured, by its kind, and the events.
fn ended_by(script: impl FnOnce(&Scripted)) -> (BTreeMap<String, usize>, String) {
    let mut counts = BTreeMap::new();
    let mut text = String::new();
    let life = async {
        let server = Scripted::default();
        let locks = Locker::new(server.clone()).with_ttl(Duration::from_secs(9));
        script(&server);
        drop(locks.lock("a").acquire().await.unwrap());
        tokio::time::sleep(Duration::from_secs(60)).await;
        locks.shutdown().await.unwrap();
    };
    let measured = measured_by(|| text = printed(life));
    for (key, value) in measured {
        let label = key.key().labels().next().map(|label| label.value().to_owned());
        match (key.key().name(), value) {
            ("polylock_hold_seconds", DebugValue::Histogram(values)) => counts.extend([(label.unwrap(), values.len())]),
            ("polylock_losses_total", DebugValue::Counter(losses)) => {
                counts.extend([(format!("loss {}", label.unwrap()), usize::try_from(losses).unwrap())]);
            }
            ("polylock_holds", DebugValue::Gauge(holds)) => assert_eq!(holds.into_inner(), 0.0),
            _ => {}
        }
    }
    (counts, text)
}

#[test]
fn a_loss_that_the_release_finds_is_told_and_counted() {
    let (counts, text) = ended_by(|server| server.next(Request::Release, [Answer::NotHeld]));
    let expected = [("lost".to_owned(), 1), ("loss not_held".to_owned(), 1)];
    assert_eq!(counts, expected.into());
    let told: Vec<_> = text.lines().filter(|line| line.contains("hold lost")).collect();
    assert_eq!(told.len(), 1, "{text}");
}

/// It ended by that release, or by its lease after it: nobody relied on it any more.
#[test]
fn a_hold_that_is_gone_after_an_unanswered_release_is_not_counted_as_lost() {
    let late = Duration::from_secs(10);
    for answer in [Answer::DoThenFail, Answer::DoThenFailAfter(late), Answer::Deny] {
        let (counts, text) = ended_by(|server| server.next(Request::Release, [answer]));
        assert_eq!(counts, [("released".to_owned(), 1)].into(), "{answer:?}");
        assert!(!text.contains("hold lost"), "{text}");
    }
}

/// The server is away until the lease has ended, and finds no hold then. The backend reports a loss when so much of that
/// time is over.
fn ended_in_an_outage(lost_after: Option<Duration>) -> (BTreeMap<String, usize>, String) {
    ended_by(|server| {
        server.before(Request::Release, "a", async move |lease| {
            let outage = Duration::from_secs(10);
            if let Some(lost_after) = lost_after {
                tokio::time::sleep(lost_after).await;
                lease.lose(LostCause::Disconnected);
            }
            tokio::time::sleep(outage - lost_after.unwrap_or_default()).await;
            Err(Error::new(ErrorKind::Unavailable, "not reached").not_executed())
        });
        server.next(Request::Release, [Answer::NotHeld]);
    })
}

/// Its guard was dropped in time, and nobody relied on it any more.
#[test]
fn a_hold_that_ends_in_an_outage_after_its_guard_is_not_counted_as_lost() {
    for lost_after in [None, Some(Duration::from_secs(10))] {
        let (counts, text) = ended_in_an_outage(lost_after);
        assert_eq!(counts, [("released".to_owned(), 1)].into(), "{lost_after:?}");
        assert!(!text.contains("hold lost"), "{text}");
    }
}

#[test]
fn a_hold_that_is_lost_after_its_runtime_is_not_counted_as_held() {
    let measured = measured_by(|| {
        let server = Scripted::default();
        let locks = Locker::new(server.clone());
        let guard = runtime().block_on(locks.lock("a").acquire()).unwrap();
        server.last_request().lease().lose(LostCause::Disconnected);
        guard.check().unwrap_err();
    });
    let holds = measured
        .into_iter()
        .find(|(key, _)| key.key().name() == "polylock_holds");
    assert_eq!(holds.unwrap().1, DebugValue::Gauge(0.0.into()));
}

#[test]
fn a_loss_that_the_backend_reports_in_time_is_counted_after_an_outage() {
    let (counts, text) = ended_in_an_outage(Some(Duration::from_secs(1)));
    let expected = [("lost".to_owned(), 1), ("loss disconnected".to_owned(), 1)];
    assert_eq!(counts, expected.into());
    assert!(text.contains("hold lost"), "{text}");
}

#[test]
fn every_metric_and_label_has_its_name_in_the_docs() {
    let named = |(key, _): (CompositeKey, DebugValue)| {
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = key.key().labels().map(|label| match label.key() {
            "election" => " election=NAME".to_owned(),
            key => format!(" {key}={}", label.value()),
        });
        format!("{kind} {}{}", key.key().name(), labels.collect::<String>())
    };
    let lives = async {
        an_eventful_life(str::to_owned).await;
        a_life_of_trouble(str::to_owned).await;
        a_life_of_haste().await;
        an_operators_life(str::to_owned).await;
    };
    let seen: BTreeSet<_> = measured(lives).into_iter().map(named).collect();
    assert_same(&seen, &docs::metrics());
}

/// Which spans and events there were, each as a row of the docs' table.
#[derive(Clone, Default)]
struct Rows(Arc<Mutex<BTreeSet<String>>>);

impl Rows {
    fn add(&self, name: &str, metadata: &Metadata<'_>) {
        assert_eq!(metadata.target(), "polylock", "{name}");
        let fields = metadata.fields().iter().map(|field| field.name());
        let fields: Vec<_> = fields
            .filter(|name| *name != "message")
            .map(|name| format!("`{name}`"))
            .collect();
        let row = format!("| {name} | `{}` | {} |", metadata.level(), fields.join(", "));
        self.0.lock().unwrap().insert(row.replace("|  |", "| |"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Rows {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        self.add(&format!("span `{}`", metadata.name()), metadata);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.add(&format!("`{}`", message.0), event.metadata());
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[test]
fn every_span_and_event_has_its_name_in_the_docs() {
    let seen = Rows::default();
    let subscriber = tracing_subscriber::registry().with(seen.clone());
    subscribed(subscriber, async {
        an_eventful_life(str::to_owned).await;
        a_life_of_trouble(str::to_owned).await;
        a_life_of_haste().await;
        an_operators_life(str::to_owned).await;
    });
    let mut documented = docs::spans_and_events();
    // These come from threads of the API without async, which have their own subscriber: a unit test of that looks for the first.
    documented.retain(|row| !row.contains("a callback of a lost lock"));
    assert_same(&seen.0.lock().unwrap(), &documented);
}

fn assert_same(seen: &BTreeSet<String>, documented: &BTreeSet<String>) {
    let undocumented: Vec<_> = seen.difference(documented).collect();
    let unseen: Vec<_> = documented.difference(seen).collect();
    assert!(
        undocumented.is_empty() && unseen.is_empty(),
        "not in the docs: {undocumented:#?}; in the docs alone: {unseen:#?}"
    );
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
