//! What the server's codes mean.

use lock_core::ErrorKind;

/// Why the server refused a statement or ended a connection, by its code. What a caller should do about it depends on whose statement it
/// was: [`lock_error`](super::SqlError::into_lock_error) says it of a lock, [`fence::error`](crate::fence::error) of a user's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Login,
    Denied,
    NoDatabase,
    NoSchema,
    NoTable,
    OtherColumns,
    /// A trigger or a constraint says no.
    Forbidden,
    TokensUsedUp,
    /// The connection is not the one that it was.
    Pooler,
    NoConnectionLeft,
    ReadOnly,
    /// Somebody else has locked a row for longer than `lock_timeout`.
    Locked,
    /// `statement_timeout` was over, or somebody ended the statement.
    Cancelled,
    Deadlock,
    /// The row has changed since the snapshot of the transaction.
    OldSnapshot,
    /// An earlier statement of the transaction failed.
    FailedBefore,
    /// Shared memory, which also keeps the server's locks.
    NoMemory,
    /// No memory or no disk.
    NoRoom,
    Starting,
    Ended,
    Broken,
    Other,
}

impl Cause {
    pub(crate) fn of(code: &str) -> Self {
        match code {
            "28P01" | "28000" => Self::Login,
            "42501" => Self::Denied,
            "3D000" => Self::NoDatabase,
            "3F000" => Self::NoSchema,
            "42P01" => Self::NoTable,
            "42703" | "42804" | "42883" | "23502" | "42809" | "42P10" => Self::OtherColumns,
            "23514" | "P0001" => Self::Forbidden,
            "22003" => Self::TokensUsedUp,
            "0A000" | "26000" | "42P05" | "08P01" => Self::Pooler,
            "53300" => Self::NoConnectionLeft,
            "25006" => Self::ReadOnly,
            "55P03" => Self::Locked,
            "57014" => Self::Cancelled,
            "40P01" => Self::Deadlock,
            "40001" => Self::OldSnapshot,
            "25P02" => Self::FailedBefore,
            "53200" => Self::NoMemory,
            "57P03" => Self::Starting,
            code if code.starts_with("57P") => Self::Ended,
            code if code.starts_with("53") || code.starts_with("58") => Self::NoRoom,
            code if code.starts_with("08") => Self::Broken,
            _ => Self::Other,
        }
    }

    /// The kind of the error for the caller of a lock.
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::Login | Self::Denied => ErrorKind::Denied,
            Self::NoDatabase | Self::NoSchema | Self::NoTable | Self::OtherColumns | Self::Forbidden | Self::Pooler => {
                ErrorKind::Misconfigured
            }
            Self::TokensUsedUp | Self::FailedBefore | Self::Other => ErrorKind::Unexpected,
            Self::NoConnectionLeft
            | Self::ReadOnly
            | Self::Locked
            | Self::Cancelled
            | Self::Deadlock
            | Self::OldSnapshot
            | Self::NoMemory
            | Self::NoRoom
            | Self::Starting
            | Self::Ended
            | Self::Broken => ErrorKind::Unavailable,
        }
    }
}
