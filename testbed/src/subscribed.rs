use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Sends what this thread logs to `subscriber`, until the guard is dropped.
///
/// With only one subscriber in the process, tracing asks the thread that comes to an event first whether anybody wants such
/// events, and takes its answer for all threads. That thread may run another test, which wants none. With two subscribers
/// tracing asks both, so a second one stays registered here.
#[must_use]
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Warnings::default()));
    LazyLock::force(&SECOND);
    tracing::subscriber::set_default(subscriber)
}

/// The warnings of polylock, as a subscriber: their fields, one line for each warning.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Those that came since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "polylock" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn warn() {
        tracing::warn!(target: "polylock", "it rains");
    }

    /// Without the second subscriber the thread that warns first would switch the warning off for all.
    #[test]
    fn a_thread_without_a_subscriber_switches_nothing_off() {
        let warnings = Warnings::default();
        let _subscribed = subscribe(warnings.clone());
        thread::spawn(warn).join().expect("no panic");
        assert_eq!(warnings.take(), [""; 0], "of another thread");
        warn();
        assert_eq!(warnings.take(), ["message=it rains "]);
    }
}
