//! Several attempts to connect: their times, and which of their errors counts.

use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::time::Instant;

/// Attempts that share a time: each has an equal part of what is left.
pub(super) struct Attempts {
    end: Instant,
    left: usize,
    failed: Option<Error>,
    /// The first error of an address that did not answer.
    unanswered: Option<Error>,
}

impl Attempts {
    pub(super) fn new(count: usize, limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            left: count,
            failed: None,
            unanswered: None,
        }
    }

    /// The limit of the next one.
    pub(super) fn next_limit(&mut self) -> Duration {
        let left = u32::try_from(self.left).unwrap_or(u32::MAX).max(1);
        self.left = self.left.saturating_sub(1);
        self.end.saturating_duration_since(Instant::now()) / left
    }

    /// Something answered, and refused.
    pub(super) fn failed(&mut self, error: Error) {
        match &self.failed {
            // One that cannot be reached may be the right one.
            Some(before) if before.kind() == ErrorKind::Unavailable => {}
            _ => self.failed = Some(error),
        }
    }

    /// Another address of the same name may answer, and its answer then counts: a server often listens on some of them alone.
    pub(super) fn got_no_answer(&mut self, error: Error) {
        self.unanswered.get_or_insert(error);
    }

    /// The error of all of them together.
    pub(super) fn error(self) -> Error {
        let none = || Error::new(ErrorKind::Misconfigured, "no host is named").not_executed();
        self.failed.or(self.unanswered).unwrap_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_more_than_silence_and_an_outage_more_than_a_refusal() {
        type Fails = fn(&mut Attempts);
        let refused: Fails = |attempts| attempts.failed(Error::new(ErrorKind::Denied, "refused"));
        let starting: Fails = |attempts| attempts.failed(Error::new(ErrorKind::Unavailable, "starting"));
        let silent: Fails = |attempts| attempts.got_no_answer(Error::new(ErrorKind::Unavailable, "silent"));
        for (fails, text) in [
            (&[refused, silent][..], "refused"),
            (&[silent, refused], "refused"),
            (&[starting, silent], "starting"),
            (&[silent, starting], "starting"),
            (&[starting, refused], "starting"),
            (&[refused, silent, starting], "starting"),
            (&[silent, silent], "silent"),
            (&[], "no host is named"),
        ] {
            let mut attempts = Attempts::new(fails.len(), Duration::ZERO);
            fails.iter().for_each(|fail| fail(&mut attempts));
            assert_eq!(attempts.error().to_string(), text);
        }
    }
}
