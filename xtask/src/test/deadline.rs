//! The end of the time that a whole run may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// By when a run is to be over. Its steps go on after that, and one of them says so.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    is_said: AtomicBool,
}

impl Deadline {
    pub(crate) fn new(at: Instant) -> Self {
        Self {
            at,
            is_said: AtomicBool::new(false),
        }
    }

    /// The time that is left. `None` once a step has said that there is none.
    pub(crate) fn left(&self) -> Option<Duration> {
        let is_said = self.is_said.load(Ordering::Relaxed);
        (!is_said).then(|| self.at.saturating_duration_since(Instant::now()))
    }

    /// Whether the caller is the first to say that no time is left.
    pub(crate) fn is_news(&self) -> bool {
        !self.is_said.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps that run side by side find it over at the same time.
    #[test]
    fn one_step_says_that_no_time_is_left() {
        let deadline = Deadline::new(Instant::now());
        assert_eq!([deadline.left(), deadline.left()], [Some(Duration::ZERO); 2]);
        assert_eq!([deadline.is_news(), deadline.is_news()], [true, false]);
        assert_eq!(deadline.left(), None);
    }
}
