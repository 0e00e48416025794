//! Errors that keep a run from proving anything.

/// A run that could not be made, or not be judged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

macro_rules! from {
    ($($source:ty),+ $(,)?) => {
        $(impl From<$source> for Error {
            fn from(source: $source) -> Self {
                let mut what = source.to_string();
                let mut cause = std::error::Error::source(&source);
                while let Some(error) = cause {
                    what += &format!(": {error}");
                    cause = error.source();
                }
                Self(what)
            }
        })+
    };
}

from!(
    std::io::Error,
    serde_json::Error,
    lock_core::Error,
    lock_mysql::sqlx::Error,
    lock_postgres::tokio_postgres::Error,
    lock_redis::redis::RedisError,
    testbed::Error,
);
