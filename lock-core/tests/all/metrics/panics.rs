//! Recorders and subscribers that panic: they are the application's, and no hold depends on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{HoldState, Locker, LostCause};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::time::sleep;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::{runtime, subscribed_by};
use crate::scripted::{Request, Scripted};

const TTL: Duration = Duration::from_secs(9);

/// Panics whenever anything is measured.
struct PanickingRecorder;

impl Recorder for PanickingRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        panic!("planned, in a counter")
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("planned, in a gauge")
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("planned, in a histogram")
    }
}

/// Panics on events and new spans, and when it enters one of the next spans.
#[derive(Clone, Default)]
struct PanickingLayer {
    enters: Arc<AtomicUsize>,
}

impl<S: Subscriber> Layer<S> for PanickingLayer {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        panic!("planned, in an event");
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        assert_eq!(attributes.metadata().name(), "renew", "planned, in a new span");
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        let one_less = |left: usize| left.checked_sub(1);
        let left = self.enters.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        assert!(left.is_err(), "planned, on entering a span");
    }
}

/// Renewed, lost, dropped, released and passed on, whoever panics.
async fn a_life(before_renewals: impl FnOnce()) {
    let server = Scripted::default();
    let locks = Locker::new(server.clone()).with_ttl(TTL);
    let [kept, taken, dropped, last] = ["kept", "taken", "dropped", "last"].map(|name| locks.lock(name));
    let kept = kept.acquire().await.unwrap();
    let taken = taken.acquire().await.unwrap();
    let watch = last.acquire().await.unwrap().watch();
    assert!(watch.check().is_ok());
    before_renewals();
    sleep(TTL / 2).await;
    server.server().take_away("taken").unwrap();
    sleep(TTL * 3).await;
    assert_eq!(taken.lost().await.cause(), LostCause::NotHeld);
    assert_eq!(kept.state(), HoldState::Held);

    drop(dropped.acquire().await.unwrap());
    sleep(Duration::from_secs(1)).await;
    assert!(!server.is_held("dropped").await && !server.is_held("last").await);
    kept.release().await.unwrap();
    locks.shutdown().await.unwrap();
    assert!(server.count(Request::Renew) > 3);
}

#[test]
fn a_recorder_that_panics_ends_no_renewal_and_no_release() {
    metrics::with_local_recorder(&PanickingRecorder, || {
        runtime().block_on(a_life(|| {}));
    });
}

#[test]
fn a_subscriber_that_panics_ends_no_renewal_and_no_release() {
    let layer = PanickingLayer::default();
    let enters = layer.enters.clone();
    let subscriber = tracing_subscriber::registry().with(layer);
    subscribed_by(subscriber, || {
        runtime().block_on(a_life(|| enters.store(2, Ordering::SeqCst)));
    });
    assert_eq!(enters.load(Ordering::SeqCst), 0);
}
