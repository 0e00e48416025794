//! Holds that expire while nobody drives their runtime. On real time: a thread that blocks its runtime is the event itself.

use std::thread::sleep;
use std::time::Duration;

use lock_core::{Locker, MemoryBackend};
use metrics_util::debugging::DebugValue;
use tokio::runtime::{Builder, Runtime};

use super::{measured_by, printed_by};

const TTL: Duration = Duration::from_secs(3);

fn driven_by_hand() -> (Runtime, Locker) {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    (runtime, Locker::new(MemoryBackend::new()).with_ttl(TTL))
}

#[test]
fn a_guard_that_is_dropped_elsewhere_after_its_lease_was_lost() {
    let mut text = String::new();
    let measured = measured_by(|| {
        text = printed_by(|| {
            let (runtime, locks) = driven_by_hand();
            let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
            sleep(TTL);
            drop(guard);
            runtime.block_on(locks.shutdown()).unwrap();
        });
    });
    let told: Vec<_> = text.lines().filter(|line| line.contains("hold lost")).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].contains("nobody drove the tokio runtime"), "{told:?}");
    let losses = measured
        .iter()
        .find(|(key, _)| key.key().name() == "polylock_losses_total");
    assert_eq!(losses.map(|(_, value)| value), Some(&DebugValue::Counter(1)));
}

#[test]
fn a_term_that_is_dropped_elsewhere_after_its_lease_was_lost() {
    let text = printed_by(|| {
        let (runtime, locks) = driven_by_hand();
        let term = runtime.block_on(locks.election("a").campaign()).unwrap();
        sleep(TTL);
        drop(term);
        runtime.block_on(locks.shutdown()).unwrap();
    });
    assert!(text.contains("leadership lost"), "{text}");
    assert!(!text.contains("leader resigned"), "{text}");
}
