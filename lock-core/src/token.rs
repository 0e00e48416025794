//! Fencing tokens.

use std::fmt;
use std::num::NonZeroI64;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// A number that grows with every hold of a name, so that the protected resource can reject an earlier holder.
///
/// A token is a number from 1 to 2^63 - 1: it fits a signed 64-bit column. The tokens of one name grow with each hold.
/// They are not consecutive, and tokens of different names cannot be compared.
///
/// With the feature `serde`, a token is serialized as its number.
///
/// # Examples
/// ```
/// # use lock_core::FencingToken;
/// # fn main() -> Result<(), lock_core::Error> {
/// let token: FencingToken = "42".parse()?; // from a header
/// assert_eq!((i64::from(token), u64::from(token)), (42, 42)); // into a column
/// assert_eq!(FencingToken::try_from(42_i64)?, token); // and back
/// assert!(token > FencingToken::try_from(41_u64)?); // the later hold
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i64", into = "i64"))]
pub struct FencingToken(NonZeroI64);

impl FencingToken {
    /// The token with this number, or `None` if the number is not from 1 to 2^63 - 1.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::FencingToken;
    /// assert!(FencingToken::new(1).is_some());
    /// assert!(FencingToken::new(0).is_none());
    /// ```
    pub fn new(number: u64) -> Option<Self> {
        let number = NonZeroI64::new(i64::try_from(number).ok()?)?;
        Some(Self(number))
    }

    /// The token as an unsigned number.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::FencingToken;
    /// assert_eq!(FencingToken::new(7).unwrap().as_u64(), 7);
    /// ```
    pub fn as_u64(self) -> u64 {
        self.0.get().unsigned_abs()
    }

    /// The token as a signed number, as most databases store it.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::FencingToken;
    /// assert_eq!(FencingToken::new(7).unwrap().as_i64(), 7);
    /// ```
    pub fn as_i64(self) -> i64 {
        self.0.get()
    }
}

impl FencingToken {
    /// The last that there is.
    pub(crate) const LAST: Self = Self(NonZeroI64::MAX);

    /// The token after this one. `None` after the last.
    pub(crate) fn next(self) -> Option<Self> {
        Self::new(self.as_u64().checked_add(1)?)
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

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.as_i64()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the number is not from 1 to 2^63 - 1.
    fn try_from(number: u64) -> Result<Self, Error> {
        Self::new(number).ok_or_else(|| no_token(number))
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the number is not positive.
    fn try_from(number: i64) -> Result<Self, Error> {
        let token = u64::try_from(number).ok().and_then(Self::new);
        token.ok_or_else(|| no_token(number))
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::Misconfigured`] if the text is not a number from 1 to 2^63 - 1.
    fn from_str(text: &str) -> Result<Self, Error> {
        let token = text.parse().ok().and_then(Self::new);
        // The text may come from outside and be long, so the error does not repeat it.
        token.ok_or_else(|| no_token("the text"))
    }
}

fn no_token(what: impl fmt::Display) -> Error {
    let message = format!("{what} is no fencing token: a token is a number from 1 to {}", i64::MAX);
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_signed_numbers() {
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new(1 << 63), None);
        let largest = FencingToken::new((1 << 63) - 1).unwrap();
        assert_eq!((largest.as_u64(), largest.as_i64()), ((1 << 63) - 1, i64::MAX));
        assert!(FencingToken::new(1) < FencingToken::new(2));
    }

    #[test]
    fn conversions_refuse_what_is_no_token() {
        for number in [0, -1, i64::MIN] {
            assert!(FencingToken::try_from(number).is_err(), "{number}");
        }
        for number in [0, 1 << 63, u64::MAX] {
            assert!(FencingToken::try_from(number).is_err(), "{number}");
        }
        for text in ["", "0", "-1", "1.5", " 1", "9223372036854775808", "x"] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert!(error.to_string().contains("from 1 to 9223372036854775807"), "{error}");
        }
        assert_eq!(
            "9223372036854775807".parse::<FencingToken>().unwrap().as_i64(),
            i64::MAX
        );
    }

    #[test]
    #[cfg(feature = "serde")]
    fn is_serialized_as_its_number() {
        let token = FencingToken::new(42).unwrap();
        assert_eq!(serde_json::to_string(&token).unwrap(), "42");
        assert_eq!(serde_json::from_str::<FencingToken>("42").unwrap(), token);
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
    }
}
