//! What a request writes into the row of its name.

use std::time::Duration;

use lock_core::backend::{AcquireRequest, Mode};
use lock_core::{Error, ErrorKind, FencingToken, Result};
use uuid::Uuid;

use crate::names::{id_of, label_bytes, name_bytes};

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
    pub(crate) holder: Uuid,
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
            holder: id_of(request.holder()),
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

#[cfg(test)]
mod tests {
    use lock_core::LockName;
    use lock_core::backend::Permits;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    fn options() -> RequestOptions {
        let terms = Terms::new(Duration::from_millis(1500)).label("me");
        RequestOptions::new(LockName::new("a").unwrap(), terms)
    }

    fn terms(options: RequestOptions) -> LeaseTerms {
        let (request, _control) = options.start();
        LeaseTerms::new(&request).unwrap()
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_mode_is_three_numbers() {
        let permits = Mode::Permits(Permits::new(3, 7).unwrap());
        for (mode, numbers) in [
            (Mode::Exclusive, (0, 1, 1)),
            (Mode::Shared, (1, 1, 1)),
            (permits, (2, 3, 7)),
        ] {
            let Kind { kind, permits, of } = Kind::of(mode).unwrap();
            assert_eq!((kind, permits, of), numbers);
            assert_eq!(Kind::of(mode).unwrap().is_exclusive(), mode == Mode::Exclusive);
        }
        let error = Kind::of(Mode::Upgradable).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_request_says_what_is_written() {
        let plain = terms(options());
        assert_eq!(
            (plain.name.as_slice(), plain.label.as_deref()),
            (&b"a"[..], Some(&b"me"[..]))
        );
        assert_eq!((plain.ttl_micros(), plain.least, plain.at_least), (1_500_000, 1, None));
        assert_eq!(terms(options().token_above(token(9))).least, 10);
        assert_eq!(terms(options().token_above(token(LAST_TOKEN))).least, i64::MAX);
        assert_eq!(terms(options().token_at_least(token(9))).at_least, Some(9));
    }

    #[test]
    fn so_many_tokens_come_with_a_grant() {
        let five = terms(options().reserve(5));
        assert_eq!((five.reserved_after, five.reserved(token(1))), (4, 5));
        assert_eq!(terms(options().reserve(0)).reserved(token(1)), 1);
        assert_eq!(terms(options().reserve(1000)).reserved(token(1)), 17);
        assert_eq!(five.reserved(token(LAST_TOKEN - 2)), 3);
        assert_eq!(five.reserved(token(LAST_TOKEN)), 1);
        // Those who share a name pass it to nobody.
        assert_eq!(terms(options().reserve(5).mode(Mode::Shared)).reserved(token(1)), 1);
    }

    #[test]
    fn what_is_too_large_for_a_column_is_its_largest_number() {
        assert_eq!((as_micros(Duration::MAX), signed(u64::MAX)), (i64::MAX, i64::MAX));
        assert_eq!(signed(7), 7);
    }
}
