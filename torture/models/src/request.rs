//! The messages between clients and the server.

use std::fmt;
use std::time::Duration;

use super::id::Id;

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// Takes a free name, confirms an offer, repeats a grant; else enters the queue or refreshes its entry, if it waits.
    Acquire {
        /// Who asks.
        id: Id,
        /// The time for which the client holds the name.
        ttl: Duration,
        /// Whether the request enters the queue.
        waits: bool,
    },
    /// Moves the end forward.
    Renew {
        /// Who asks.
        id: Id,
        /// The time for which the client holds the name from now on.
        ttl: Duration,
    },
    /// Ends a hold. The id is dead from then on.
    Release(Id),
    /// The same, but the name stays taken.
    Keep {
        /// Who asks.
        id: Id,
        /// For how long from now.
        time: Duration,
    },
    /// Undoes whatever the id has. It is dead from then on.
    Abandon(Id),
}

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// The name is the asker's, with this token.
    Granted(u64),
    /// Somebody else has it.
    Busy,
    /// Done: renewed, released, abandoned.
    Done,
    /// The hold is not the asker's; nothing was touched.
    NotYours,
    /// The id is dead.
    Dead,
}

/// A message of the server to a waiter. It may get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wake<T> {
    /// The name is yours if you confirm within the grace.
    Offer(Id),
    /// Look at this time whether the name was taken: after the grace of an offer to somebody else, or at once.
    StandBy(Id, T),
}

impl Request {
    /// Whose it is.
    pub fn id(self) -> Id {
        match self {
            Self::Acquire { id, .. } | Self::Renew { id, .. } | Self::Keep { id, .. } => id,
            Self::Release(id) | Self::Abandon(id) => id,
        }
    }
}

impl<T> Wake<T> {
    /// Who is woken.
    pub fn id(&self) -> Id {
        match self {
            Self::Offer(id) | Self::StandBy(id, _) => *id,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { id, ttl, .. } => write!(f, "acquire({id}, {})", ttl.as_millis()),
            Self::Renew { id, ttl } => write!(f, "renew({id}, {})", ttl.as_millis()),
            Self::Release(id) => write!(f, "release({id})"),
            Self::Keep { id, time } => write!(f, "keep({id}, {})", time.as_millis()),
            Self::Abandon(id) => write!(f, "abandon({id})"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(token) => write!(f, "granted, token {token}"),
            Self::Busy => f.write_str("busy"),
            Self::Done => f.write_str("done"),
            Self::NotYours => f.write_str("not yours"),
            Self::Dead => f.write_str("dead"),
        }
    }
}
