//! Fencing tokens.

use std::fmt;
use std::num::NonZeroI64;

/// A number that grows with every hold of a name, for the protected resource to tell an old holder from a new one.
///
/// From 1 to 2^63 - 1, so that it fits a signed 64-bit column. Tokens of one name only ever grow; they are not
/// consecutive, and those of two names say nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroI64);

impl FencingToken {
    /// The token of this number, or `None` when it is not from 1 to 2^63 - 1.
    pub fn new(number: u64) -> Option<Self> {
        let number = NonZeroI64::new(i64::try_from(number).ok()?)?;
        Some(Self(number))
    }

    /// The token as a number, to be stored beside what the lock protects.
    pub fn as_u64(self) -> u64 {
        self.0.get().unsigned_abs()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_signed_numbers() {
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new(1 << 63), None);
        assert_eq!(
            FencingToken::new((1 << 63) - 1).map(FencingToken::as_u64),
            Some((1 << 63) - 1)
        );
        assert!(FencingToken::new(1) < FencingToken::new(2));
    }
}
