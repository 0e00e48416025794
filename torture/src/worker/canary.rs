//! A thread that notices when the process did not run, and what it uses.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::record::{Event, Line};

use super::shared::Shared;

const EVERY: Duration = Duration::from_millis(3);
/// A wake-up as late as this is worth a record.
const LATE: u64 = 15_000_000;
const USAGE_EVERY: u64 = 500_000_000;

/// When the thread that has it ran last.
#[derive(Debug)]
pub(super) struct Pulse(u64);

impl Pulse {
    pub(super) fn new() -> Self {
        Self(clock::now())
    }

    /// Waits for a moment. A record, if it took so long that the process did not run.
    pub(super) fn beat(&mut self) -> Option<Line> {
        std::thread::sleep(EVERY);
        let from = std::mem::replace(&mut self.0, clock::now());
        let event = Event::Starved { from };
        (self.0 - from > LATE).then_some(Line { t: self.0, event })
    }
}

pub(super) fn start(shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let mut pulse = Pulse::new();
        let mut next_usage = pulse.0;
        loop {
            if let Some(starved) = pulse.beat() {
                shared.history.line(&starved);
            }
            look_at_sessions(&shared);
            if pulse.0 >= next_usage {
                next_usage = pulse.0 + USAGE_EVERY;
                shared.history.event(usage());
            }
        }
    });
}

fn look_at_sessions(shared: &Shared) {
    let mut watched = shared.watched.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain_mut(|hold| {
        let Some(end) = clock::at_end_of(|| hold.watch.valid_for()) else {
            return false;
        };
        // Reading two clocks is not exact.
        if end > hold.end + 1_000_000 {
            hold.end = end;
            let (lock, token) = (hold.lock, hold.watch.token().as_u64());
            shared.history.event(Event::Armed { lock, token, end });
        }
        true
    });
}

fn usage() -> Event {
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| {
        let size = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
        size.parse().ok()
    });
    Event::Usage {
        files,
        kilobytes: kilobytes.unwrap_or(0),
    }
}
