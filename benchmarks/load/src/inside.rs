//! Who is inside at this moment: whether the lock under test keeps its word.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Mode, Result};

/// Those of one name, in a round: writers above, all others below.
#[derive(Debug, Default)]
pub(crate) struct Inside(AtomicU64);

const WRITER: u64 = 1 << 32;

impl Inside {
    /// Somebody has acquired.
    ///
    /// # Errors
    /// If somebody is inside who excludes it.
    pub(crate) fn enter(&self, mode: Mode) -> Result<()> {
        let before = self.0.fetch_add(counted(mode), Ordering::SeqCst);
        let (writers, others) = (before / WRITER, before % WRITER);
        let wrong = match mode {
            Mode::Exclusive => writers + others > 0,
            Mode::Shared => writers > 0,
            Mode::Permit { of } => writers > 0 || others >= of.into(),
        };
        if wrong {
            return Err(format!("{mode:?} was granted beside {writers} writers and {others} others").into());
        }
        Ok(())
    }

    /// Somebody is about to release.
    pub(crate) fn leave(&self, mode: Mode) {
        self.0.fetch_sub(counted(mode), Ordering::SeqCst);
    }
}

fn counted(mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive => WRITER,
        Mode::Shared | Mode::Permit { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_exclude_all_and_readers_writers() {
        let inside = Inside::default();
        inside.enter(Mode::Shared).unwrap();
        inside.enter(Mode::Shared).unwrap();
        assert!(inside.enter(Mode::Exclusive).is_err());
        inside.leave(Mode::Exclusive);
        inside.leave(Mode::Shared);
        inside.leave(Mode::Shared);
        inside.enter(Mode::Exclusive).unwrap();
        assert!(inside.enter(Mode::Shared).is_err());
        assert!(inside.enter(Mode::Exclusive).is_err());
    }

    #[test]
    fn permits_are_counted() {
        let (inside, permit) = (Inside::default(), Mode::Permit { of: 2 });
        inside.enter(permit).unwrap();
        inside.enter(permit).unwrap();
        let error = inside.enter(permit).unwrap_err().to_string();
        assert_eq!(error, "Permit { of: 2 } was granted beside 0 writers and 2 others");
    }
}
