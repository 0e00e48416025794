//! Notices ended connections that carry holds, and a server that has become read-only, by one statement on the control
//! connection for all of a runtime.
//!
//! The statement's answer is only a hint. A connection that the server seems not to have asks the server itself, and so do
//! all when the server is read-only, and when the control connection is busy or broken: only its own connection ends a hold.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::protocol::Identity;

/// The pause between two statements, and how long one may take before all connections ask the server themselves.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The connections of a runtime that carry holds.
#[derive(Debug, Default)]
pub(super) struct HoldRegistry {
    entries: Mutex<Entries>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    added: u64,
    by_number: HashMap<u64, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    identity: Identity,
    since: Instant,
    check: Arc<Notify>,
}

/// An entry of the registry; dropping it removes the entry.
#[derive(Debug)]
pub(super) struct RegisteredHold {
    registry: Arc<HoldRegistry>,
    number: u64,
}

impl HoldRegistry {
    /// `check` is notified when the connection is to ask the server itself.
    pub(super) fn add(self: &Arc<Self>, identity: Identity, check: Arc<Notify>) -> RegisteredHold {
        let mut entries = self.entries.lock();
        entries.added += 1;
        let number = entries.added;
        let entry = Entry {
            identity,
            since: Instant::now(),
            check,
        };
        let is_first = entries.by_number.is_empty();
        entries.by_number.insert(number, entry);
        drop(entries);
        if is_first {
            self.added.notify_one();
        }
        RegisteredHold {
            registry: self.clone(),
            number,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.lock().by_number.is_empty()
    }

    /// Checks the connections for as long as it is polled. `ask` returns for each of some identities whether the server has
    /// its connection and takes writes, or `None` if it cannot tell.
    pub(super) async fn monitor<F>(&self, ask: impl Fn(Vec<Identity>) -> F)
    where
        F: Future<Output = Option<Vec<bool>>>,
    {
        loop {
            while self.is_empty() {
                self.added.notified().await;
            }
            sleep(CHECK_INTERVAL).await;
            let entries = self.due();
            if entries.is_empty() {
                continue;
            }
            let mut asking = pin!(ask(entries.iter().map(|entry| entry.identity).collect()));
            let answer = loop {
                match timeout(CHECK_INTERVAL, &mut asking).await {
                    Ok(answer) => break answer,
                    Err(_elapsed) => self.check_all(),
                }
            };
            match answer {
                Some(alive) if alive.len() == entries.len() => {
                    let missing = entries.iter().zip(alive).filter(|(_, alive)| !alive);
                    missing.for_each(|(entry, _)| entry.check.notify_one());
                }
                _ => self.check_all(),
            }
        }
    }

    /// Those that carry their hold for a while: most holds end before.
    fn due(&self) -> Vec<Entry> {
        let entries = self.entries.lock();
        let is_due = |entry: &&Entry| entry.since.elapsed() >= CHECK_INTERVAL / 2;
        entries.by_number.values().filter(is_due).cloned().collect()
    }

    fn check_all(&self) {
        self.entries
            .lock()
            .by_number
            .values()
            .for_each(|entry| entry.check.notify_one());
    }
}

impl Drop for RegisteredHold {
    fn drop(&mut self) {
        self.registry.entries.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;

    /// True if the monitor was asked to check the server itself since the last call.
    fn was_checked(check: &Notify) -> bool {
        check.notified().now_or_never().is_some()
    }

    /// Three holds, and a monitor for three intervals.
    async fn monitored<F>(ask: impl Fn(Vec<Identity>) -> F) -> [bool; 3]
    where
        F: Future<Output = Option<Vec<bool>>>,
    {
        let registry = Arc::<HoldRegistry>::default();
        let checks = [(); 3].map(|()| Arc::<Notify>::default());
        let held = checks.clone().map(|check| registry.add(Identity::random(), check));
        let watched = timeout(3 * CHECK_INTERVAL + CHECK_INTERVAL / 2, registry.monitor(ask)).await;
        assert!(watched.is_err(), "it never ends");
        drop(held);
        assert!(registry.is_empty());
        checks.map(|check| was_checked(&check))
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_is_for_all_and_those_that_are_there_are_left_alone() {
        let asked = AtomicUsize::new(0);
        let checked = monitored(|identities| {
            asked.fetch_add(1, Ordering::Relaxed);
            async move { Some(vec![true; identities.len()]) }
        })
        .await;
        assert_eq!(checked, [false; 3]);
        assert_eq!(asked.into_inner(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_missing_asks_itself() {
        let missing = Mutex::new(None);
        let checked = monitored(|identities| {
            let missing = *missing.lock().get_or_insert(identities[0]);
            async move { Some(identities.iter().map(|identity| *identity != missing).collect()) }
        })
        .await;
        assert_eq!(checked.iter().filter(|checked| **checked).count(), 1, "{checked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_all_ask_themselves() {
        assert_eq!(monitored(|_| pending()).await, [true; 3]);
        assert_eq!(monitored(|_| async { None }).await, [true; 3]);
        assert_eq!(monitored(|_| async { Some(vec![true]) }).await, [true; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn holds_that_come_and_go_cost_nothing() {
        let registry = Arc::<HoldRegistry>::default();
        let busy = async {
            loop {
                let held = registry.add(Identity::random(), Arc::default());
                sleep(Duration::from_millis(10)).await;
                drop(held);
            }
        };
        tokio::select! {
            () = registry.monitor(|_| async { panic!("no hold is that old") }) => {}
            () = busy => {}
            () = sleep(Duration::from_secs(10)) => {}
        }
    }
}
