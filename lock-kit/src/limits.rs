//! Limits of settings that several backends have.

use std::ops::RangeInclusive;
use std::time::Duration;

use lock_core::{Credentials, Result};

use crate::url::misconfigured;

/// A shorter timeout is as good as zero, a longer one as for ever.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// The shortest retention is longer than any statement takes.
const RETENTIONS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(365 * 24 * 3600);

/// Checks the settings `connect_timeout` and `response_timeout`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless both are from 1 ms to 1 h.
pub fn check_timeouts(connect: Duration, response: Duration) -> Result<()> {
    for (name, timeout) in [("connect_timeout", connect), ("response_timeout", response)] {
        if !TIMEOUTS.contains(&timeout) {
            return Err(misconfigured(format!("{name} must be from 1ms to 1h")));
        }
    }
    Ok(())
}

/// Checks the setting `retention`: how long the row of a name outlasts its last use.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) unless it is from 1 min to 365 days.
pub fn check_retention(retention: Duration) -> Result<()> {
    match RETENTIONS.contains(&retention) {
        true => Ok(()),
        false => Err(misconfigured("retention must be from 1min to 365d")),
    }
}

/// Checks texts that the server's protocol ends with a NUL character. Of a text with such a character the server would see a part.
///
/// # Errors
/// [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) if one of them contains such a character. It shows none of them.
pub fn check_no_nul<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
    match texts.into_iter().any(|text| text.contains(&0)) {
        true => Err(misconfigured(
            "host, socket, user, password and database must not contain a NUL character",
        )),
        false => Ok(()),
    }
}

/// Checks the user and the password that a source of credentials gave, as [`check_no_nul`].
///
/// # Errors
/// As [`check_no_nul`].
pub fn check_credentials(credentials: &Credentials) -> Result<()> {
    let texts = [credentials.user(), Some(credentials.password())];
    check_no_nul(texts.into_iter().flatten().map(str::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn timeouts_are_from_a_millisecond_to_an_hour() {
        check_timeouts(MS, HOUR).unwrap();
        for (connect, response, name) in [
            (Duration::ZERO, MS, "connect_timeout"),
            (HOUR + MS, MS, "connect_timeout"),
            (HOUR, MS / 2, "response_timeout"),
        ] {
            let error = check_timeouts(connect, response).unwrap_err().to_string();
            assert_eq!(error, format!("{name} must be from 1ms to 1h"));
        }
    }

    #[test]
    fn a_nul_is_refused_wherever_it_stands() {
        assert!(check_no_nul([&b"db"[..], b""]).is_ok());
        assert!(check_credentials(&Credentials::new("s3cret").with_user("app")).is_ok());
        let found = [
            check_no_nul([&b"db"[..], b"s3\0cret"]),
            check_credentials(&Credentials::new("s3cret\0")),
            check_credentials(&Credentials::new("s3cret").with_user("\0")),
        ];
        for refused in found {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("NUL") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn a_retention_is_from_a_minute_to_a_year() {
        for good in [HOUR / 60, 365 * 24 * HOUR] {
            check_retention(good).unwrap();
        }
        for bad in [HOUR / 60 - MS, 365 * 24 * HOUR + MS] {
            let error = check_retention(bad).unwrap_err().to_string();
            assert_eq!(error, "retention must be from 1min to 365d");
        }
    }
}
