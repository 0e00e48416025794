//! The verdict of the fence's row on a token.

use std::error::Error as StdError;
use std::fmt;

use lock_core::{Error, ErrorKind, FencingToken, Stale};
use lock_kit::fence::{Entered, Role};

/// The step of a holder at the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Enter,
    EnterShared,
    CheckShared,
}

/// The row after the step, read under its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) entered: Entered,
    /// The number of entries of writers. It makes each of their transactions visible in the row, also those of one
    /// token.
    pub(super) entries: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Entered,
    Stale(Stale),
    /// The transaction reads from a snapshot from before the last writer.
    ReadBefore,
}

/// `snapshot` is the row's `entries` as the transaction's plain reads see them after the step. Where they lack the last writer,
/// the step changes nothing: its own change would hide that from a second try.
pub(super) fn judge(step: Step, token: FencingToken, row: Option<Row>, snapshot: Option<u64>) -> Verdict {
    let Some(row) = row else {
        return Verdict::Stale(Stale::new(token, 0));
    };
    let role = match step {
        Step::Enter => Role::Writer,
        Step::EnterShared | Step::CheckShared => Role::Reader,
    };
    let admitted = match step {
        Step::Enter | Step::EnterShared => row.entered.enter(role, token).map(|_| ()),
        Step::CheckShared => row.entered.check(role, token),
    };
    if let Err(stale) = admitted {
        return Verdict::Stale(stale);
    }
    if snapshot != Some(row.entries) {
        return Verdict::ReadBefore;
    }
    row.entered
        .check(role, token)
        .map_or_else(Verdict::Stale, |()| Verdict::Entered)
}

/// Why a transaction cannot enter: it has read before, so its plain reads come from a snapshot that lacks what another holder
/// wrote since. The source of an [`Error`] of the kind [`ErrorKind::Misconfigured`].
///
/// Enter first in the transaction, before any other statement. `START TRANSACTION WITH CONSISTENT SNAPSHOT` counts as a read.
/// A transaction that is run again may succeed, but only until the next holder comes in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBeforeEnter;

impl ReadBeforeEnter {
    pub(super) fn into_error(self, resource: &str) -> Error {
        let message = format!("the fence of {resource:?} rejected the transaction: {self}");
        // The same transaction succeeds if nobody comes in between.
        Error::new(ErrorKind::Misconfigured, message)
            .retryable(true)
            .with_source(self)
    }
}

impl fmt::Display for ReadBeforeEnter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it has read before it entered, and would miss what another holder wrote: roll back, and enter first",
        )
    }
}

impl StdError for ReadBeforeEnter {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn row(writer: u64, reader: u64, entries: u64) -> Option<Row> {
        Some(Row {
            entered: Entered { writer, reader },
            entries,
        })
    }

    fn stale(newest: Option<u64>) -> Verdict {
        Verdict::Stale(Stale::new(token(5), newest.unwrap_or(0)))
    }

    #[test]
    fn a_token_has_entered_if_it_is_the_newest_and_the_row_is_there() {
        assert_eq!(judge(Step::Enter, token(5), row(5, 5, 9), Some(9)), Verdict::Entered);
        assert_eq!(judge(Step::Enter, token(5), row(4, 7, 9), Some(9)), stale(Some(7)));
        for step in [Step::EnterShared, Step::CheckShared] {
            assert_eq!(judge(step, token(5), row(0, 7, 9), Some(9)), Verdict::Entered);
            assert_eq!(judge(step, token(5), row(6, 7, 9), Some(9)), stale(Some(6)));
        }
        for step in [Step::Enter, Step::EnterShared, Step::CheckShared] {
            assert_eq!(judge(step, token(5), None, Some(9)), stale(None));
        }
    }

    #[test]
    fn a_snapshot_without_the_last_writer_is_refused() {
        for step in [Step::Enter, Step::EnterShared, Step::CheckShared] {
            for snapshot in [None, Some(8), Some(10)] {
                assert_eq!(judge(step, token(5), row(5, 5, 9), snapshot), Verdict::ReadBefore);
            }
        }
        // The step has left the row as it was.
        for step in [Step::Enter, Step::EnterShared] {
            assert_eq!(judge(step, token(5), row(4, 3, 9), Some(8)), Verdict::ReadBefore);
        }
        // A stale token is told first: to enter first would not help it.
        assert_eq!(judge(Step::Enter, token(5), row(6, 0, 10), None), stale(Some(6)));
    }
}
