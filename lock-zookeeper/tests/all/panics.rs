//! A panic in the task that keeps the session.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::ErrorKind;
use lock_core::backend::DistributedLock;
use lock_zookeeper::ZooKeeperBackend;
use tokio::time::{Instant, sleep};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::happens;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Panics at whatever the driver has to say.
struct Bomb;

impl Subscriber for Bomb {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("zookeeper_client")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        PANICS.fetch_add(1, Ordering::SeqCst);
        panic!("planted");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_panic_is_an_error_with_its_text_and_not_repeated_without_a_rest() {
    const TIME: Duration = Duration::from_secs(3);
    // The session's tasks run on this thread.
    let _subscribed = testbed::subscribe(Bomb);
    let backend = ZooKeeperBackend::from_url("zookeeper://127.0.0.1:1?acl=open&connect_timeout=60s").unwrap();
    let ask = async || {
        let error = backend.connect().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_retryable()),
            (ErrorKind::Unexpected, false),
            "{error}"
        );
        assert_eq!(error.cause().unwrap().to_string(), "planted");
        sleep(Duration::from_millis(1)).await;
    };
    let started = Instant::now();
    while started.elapsed() < TIME {
        ask().await;
    }
    let panics = PANICS.load(Ordering::SeqCst);
    // After rests of 50, 100, 200, 400, 800, 1600 ms.
    assert!(panics <= 7, "{panics} panics in {TIME:?}");
    // It is tried again, which a busy machine may not have done by now.
    happens("it is tried again", async {
        while PANICS.load(Ordering::SeqCst) < 2 {
            ask().await;
        }
    })
    .await;
}
