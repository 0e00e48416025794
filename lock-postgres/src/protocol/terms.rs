//! What a request writes into the row of its name.

use std::time::Duration;

use lock_core::backend::{AcquireRequest, Mode};
use lock_core::{Error, ErrorKind, FencingToken, Result};

use crate::names::{Id, label_bytes, name_bytes};

/// How many tokens a grant may reserve after its own.
const MOST_RESERVED: u32 = 16;
/// The largest token there can be.
const LAST_TOKEN: u64 = (1 << 63) - 1;

/// How a hold shares its name: the numbers of the columns `kind`, `permits` and `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) kind: i16,
    pub(crate) permits: i64,
    pub(crate) of: i64,
}

impl Kind {
    pub(crate) const EXCLUSIVE: i16 = 0;
    pub(crate) const SHARED: i16 = 1;
    pub(crate) const PERMITS: i16 = 2;

    /// # Errors
    /// [`ErrorKind::Unsupported`] for other modes.
    pub(crate) fn of(mode: Mode) -> Result<Self> {
        let (kind, permits, of) = match mode {
            Mode::Exclusive => (Self::EXCLUSIVE, 1, 1),
            Mode::Shared => (Self::SHARED, 1, 1),
            Mode::Permits(permits) => (Self::PERMITS, i64::from(permits.take()), i64::from(permits.of())),
            other => {
                let what = format!("the lease table cannot hold a lock in the mode {other:?}");
                return Err(Error::new(ErrorKind::Unsupported, what).not_executed());
            }
        };
        Ok(Self { kind, permits, of })
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self.kind == Self::EXCLUSIVE
    }
}

/// What a request writes. Read from the request just before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerms {
    pub(crate) name: Vec<u8>,
    pub(crate) holder: Id,
    pub(crate) label: Option<Vec<u8>>,
    pub(crate) ttl: Duration,
    /// The least token that the grant may have.
    pub(crate) least: i64,
    /// What stands for the server's clock, if anything does.
    pub(crate) at_least: Option<i64>,
    /// How many tokens are reserved after the grant's own.
    pub(crate) reserved_after: i64,
    pub(crate) kind: Kind,
}

impl LeaseTerms {
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a mode that the tables cannot keep.
    pub(crate) fn new(request: &AcquireRequest) -> Result<Self> {
        let kind = Kind::of(request.mode())?;
        let floor = request.token_floor().map_or(0, FencingToken::as_u64);
        let reserved_after = match kind.is_exclusive() {
            true => i64::from(request.reserve().saturating_sub(1).min(MOST_RESERVED)),
            false => 0,
        };
        Ok(Self {
            name: name_bytes(request.name()).to_vec(),
            holder: request.holder().into(),
            label: label_bytes(request.label().as_deref()).map(<[u8]>::to_vec),
            ttl: request.ttl(),
            least: signed(floor.saturating_add(1)),
            at_least: request.token_at_least().map(|token| signed(token.as_u64())),
            reserved_after,
            kind,
        })
    }

    /// How many tokens come with this one, its own included.
    pub(crate) fn reserved(&self, token: FencingToken) -> u32 {
        let left = LAST_TOKEN - token.as_u64();
        let after = u64::try_from(self.reserved_after).unwrap_or(0).min(left);
        1 + u32::try_from(after).unwrap_or(0)
    }

    pub(crate) fn ttl_micros(&self) -> i64 {
        as_micros(self.ttl)
    }
}

/// As a parameter.
pub(crate) fn as_micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The same for a token.
pub(crate) fn signed(token: u64) -> i64 {
    i64::try_from(token).unwrap_or(i64::MAX)
}
