//! Ends of holds: each is counted once, and as lost only if somebody still relied on the hold.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Locker, LostCause};
use metrics_util::debugging::DebugValue;

use super::{measured_by, printed, runtime};
use crate::scripted::{Answer, Request, Scripted};

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
