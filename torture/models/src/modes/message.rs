//! The messages between clients and the server.

use std::fmt;

use lock_core::backend::{Mode, Permits};

use crate::id::Id;
use crate::time::Time;

/// A mode that can be written in a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Alone.
    Exclusive,
    /// Beside others.
    Shared,
    /// Beside others, and may become exclusive.
    Upgradable,
    /// So many permits of so many.
    Permits(u8, u8),
}

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// Enters the queue, confirms an offer, or repeats a grant. An upgrade names the hold that it replaces.
    Acquire(Id, Kind, Option<Id>),
    /// Moves the end of a hold forward.
    Renew(Id),
    /// Ends a hold. The id is dead from then on.
    Release(Id),
    /// Undoes whatever the id has. It is dead from then on. An upgrade names the hold that it would replace.
    Abandon(Id, Option<Id>),
    /// Makes an exclusive hold a shared one.
    Downgrade(Id),
}

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// Held, with this token.
    Granted(u64),
    /// Not yet: look again then.
    Busy(Time),
    /// Done.
    Done,
    /// There is no such hold, or none that an upgrade could replace.
    Lost,
}

impl Request {
    /// Whose it is.
    pub fn id(self) -> Id {
        match self {
            Self::Acquire(id, ..)
            | Self::Renew(id)
            | Self::Release(id)
            | Self::Abandon(id, _)
            | Self::Downgrade(id) => id,
        }
    }
}

impl Kind {
    /// As the rules know it.
    pub fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Upgradable => Mode::Upgradable,
            Self::Permits(take, of) => {
                Mode::Permits(Permits::new(take.into(), of.into()).expect("at least 1, and no more than the limit"))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Upgradable => f.write_str("upgradable"),
            Self::Permits(take, of) => write!(f, "{take} of {of} permits"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(id, kind, None) => write!(f, "acquire({id}, {kind})"),
            Self::Acquire(id, _, Some(base)) => write!(f, "upgrade({base} to {id})"),
            Self::Renew(id) => write!(f, "renew({id})"),
            Self::Release(id) => write!(f, "release({id})"),
            Self::Abandon(id, _) => write!(f, "abandon({id})"),
            Self::Downgrade(id) => write!(f, "downgrade({id})"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(token) => write!(f, "granted, token {token}"),
            Self::Busy(_) => f.write_str("busy"),
            Self::Done => f.write_str("done"),
            Self::Lost => f.write_str("lost"),
        }
    }
}
