//! Why a fence rejects a token.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::token::FencingToken;

/// Why a fence rejects a token: a newer one has entered. The [cause](Error::cause) of an [`Error`] of the kind
/// [`ErrorKind::Lost`].
///
/// The fences are in the crates of the backends, for resources that are stored in their servers.
///
/// If the locks moved to another server, its tokens may be smaller than those of the old one, and the fence rejects every
/// holder: set [`Locker::with_token_floor`](crate::Locker::with_token_floor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The token that is rejected.
    pub token: FencingToken,
    /// The newer token that has entered. `None`: the fence does not know this token, since it never entered, or the fence was
    /// deleted or restored from a backup. So do not rely on anything read before.
    pub newest: Option<FencingToken>,
}

impl Stale {
    /// A token that a fence rejects, and the newest one that the fence knows: any number that is not above `token` counts as
    /// none. For fences of your own.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{ErrorKind, FencingToken, Stale};
    /// let token = FencingToken::new(7).unwrap();
    /// assert_eq!(Stale::new(token, 8).newest, FencingToken::new(8));
    /// assert_eq!(Stale::new(token, 0).newest, None);
    ///
    /// let error = Stale::new(token, 8).into_error("stock/42");
    /// assert_eq!(error.kind(), ErrorKind::Lost);
    /// assert_eq!(error.cause().and_then(|cause| cause.downcast_ref()), Some(&Stale::new(token, 8)));
    /// ```
    pub fn new(token: FencingToken, newest: u64) -> Self {
        let newest = FencingToken::new(newest).filter(|newest| *newest > token);
        Self { token, newest }
    }

    /// The error that the fence of this resource returns.
    pub fn into_error(self, resource: &str) -> Error {
        let mut message = format!("the fence of {resource:?} rejected the access: {self}");
        if self.newest.is_some() {
            message +=
                "; if the locks moved to another server, set Locker::with_token_floor (see docs/moving.md of polylock)";
        }
        Error::new(ErrorKind::Lost, message).with_source(self)
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.newest {
            Some(newest) => write!(f, "token {} is stale, {newest} has entered", self.token),
            None => write!(f, "it does not know token {}: enter again, and read again", self.token),
        }
    }
}

impl StdError for Stale {}
