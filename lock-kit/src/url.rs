//! Parts of URLs that all backends have in common, and their errors. None shows a value, which may be a part of a password that
//! was not percent-encoded.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use lock_core::backend::parse_duration;
use lock_core::{Error, ErrorKind, Result};

mod credentials;
mod parameters;

pub use credentials::{PasswordParameters, two_passwords};
pub use parameters::unknown_parameter;

/// Advice on special characters: the end of most errors for a URL.
pub const ENCODE: &str =
    "in user, password and path, write / as %2F, ? as %3F, # as %23, & as %26, @ as %40 and % as %25";

/// An error of the configuration: [`ErrorKind::Misconfigured`].
pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

/// The error for a URL in which a special character stands as it is.
pub fn not_encoded() -> Error {
    misconfigured(format!(
        "a special character in the URL is not percent-encoded: {ENCODE}"
    ))
}

/// Refuses a URL whose host may be a part of a password instead. A `/`, `?` or `#` ends the part of a URL that holds the password,
/// so if one in the password is not encoded, the `@` before the real host comes after it.
///
/// # Errors
/// [`not_encoded`].
///
/// # Examples
/// ```
/// # use lock_kit::url::check_encoded;
/// assert!(check_encoded("redis://user:pa%2Fss@host/1").is_ok());
/// assert!(check_encoded("redis://user:pa/ss@host/1").is_err());
/// ```
pub fn check_encoded(url: &str) -> Result<()> {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    match rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@')) {
        true => Err(not_encoded()),
        false => Ok(()),
    }
}

/// The value of a parameter that is a time with its unit, such as `3s` or `500ms`.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for anything else.
pub fn duration(name: &str, value: &str) -> Result<Duration> {
    parse_duration(value)
        .ok_or_else(|| misconfigured(format!("{name} in the URL is no duration: write 3s or 500ms; {ENCODE}")))
}

/// The value of a parameter that is a number.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for anything else.
pub fn number<N: FromStr>(name: &str, value: &str) -> Result<N> {
    let number = value.parse();
    number.map_err(|_| {
        misconfigured(format!(
            "{name} in the URL is no number: write a number such as 2; {ENCODE}"
        ))
    })
}

/// The value of a parameter that is one of some words.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for anything else, with the words.
///
/// # Examples
/// ```
/// # use lock_kit::url::choice;
/// let choices = [("on", true), ("off", false)];
/// assert!(choice("checks", "on", &choices)?);
/// let error = choice("checks", "yes", &choices).unwrap_err();
/// assert!(error.to_string().starts_with("the value of checks in the URL must be on or off; "));
/// # Ok::<(), lock_core::Error>(())
/// ```
pub fn choice<T: Copy>(name: &str, value: &str, choices: &[(&str, T)]) -> Result<T> {
    let chosen = choices.iter().find(|(word, _)| *word == value);
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let words = alternatives(&words);
        misconfigured(format!("the value of {name} in the URL must be {words}; {ENCODE}"))
    })
}

/// Such as "a, b or c".
fn alternatives(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_choice_are_named_however_many_there_are() {
        for (words, named) in [
            (&["a"][..], "must be a; "),
            (&["a", "b"], "must be a or b; "),
            (&["a", "b", "c"], "must be a, b or c; "),
        ] {
            let choices: Vec<_> = words.iter().map(|word| (*word, ())).collect();
            let error = choice("strategy", "x", &choices).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        error.to_string()
    }

    #[test]
    fn a_special_character_that_is_not_encoded_is_refused() {
        for url in [
            "redis://h",
            "redis://u:p@h/1?a=b",
            "redis://u:p%2Fw@h",
            "u/p@h",
            "redis://h/1?ca=%40",
        ] {
            assert!(check_encoded(url).is_ok(), "{url}");
        }
        for url in ["redis://u:p/w@h", "redis://u:p?w@h", "redis://u:p#w@h"] {
            let said = refused(check_encoded(url));
            assert!(said.contains("not percent-encoded") && said.ends_with(ENCODE), "{said}");
        }
    }

    #[test]
    fn values_are_read_or_the_error_says_what_to_write() {
        assert_eq!(duration("ttl", "500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(number::<u16>("db", "2").unwrap(), 2);
        assert_eq!(choice("checks", "b", &[("a", 1), ("b", 2)]).unwrap(), 2);
        assert!(refused(duration("ttl", "5")).starts_with("ttl in the URL is no duration: write 3s"));
        assert!(refused(number::<u16>("db", "-2")).starts_with("db in the URL is no number"));
        let said = refused(choice("checks", "c", &[("a", 1), ("b", 2)]));
        assert!(
            said.starts_with("the value of checks in the URL must be a or b; "),
            "{said}"
        );
    }
}
