//! Lock names.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// The name of a lock: any UTF-8 text of 1 to 512 bytes.
///
/// Names are compared byte by byte: `a` and `A` are two locks. No character is special; every backend encodes
/// names so that distinct ones never meet. Cheap to clone.
///
/// ```
/// # use lock_core::LockName;
/// assert!(LockName::new("orders/42").is_ok());
/// assert!(LockName::new("").is_err());
/// assert!(LockName::new("x".repeat(513)).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] when it is empty or longer than [`LockName::MAX_BYTES`].
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidName,
                "a lock's name is empty: give it at least one byte",
            ));
        }
        if name.len() > Self::MAX_BYTES {
            let message = format!(
                "a lock's name has {} bytes, more than {}: shorten it, or hash its end",
                name.len(),
                Self::MAX_BYTES
            );
            return Err(Error::new(ErrorKind::InvalidName, message));
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_counted_in_bytes() {
        assert!(LockName::new("é".repeat(256)).is_ok());
        let error = LockName::new("é".repeat(257)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        assert!(error.to_string().contains("514 bytes"), "{error}");
    }
}
