//! A thread that notices when the process did not run, and what it uses.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::record::Event;

use super::shared::Shared;

const EVERY: Duration = Duration::from_millis(3);
/// A wake-up as late as this is worth a record.
const LATE: u64 = 15_000_000;
const USAGE_EVERY: u64 = 500_000_000;

pub(super) fn start(shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let mut last = clock::now();
        let mut next_usage = last;
        loop {
            std::thread::sleep(EVERY);
            let now = clock::now();
            if now - last > LATE {
                shared.history.at(now, Event::Starved { from: last });
            }
            last = now;
            look_at_sessions(&shared);
            if now >= next_usage {
                next_usage = now + USAGE_EVERY;
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
