//! The environment variables that the command reads and sets.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use polylock::{FencingToken, LockName};

use crate::server::URL_VARIABLE;

/// The characters that are escaped in a name: `=`, `,` and `%` among them.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':');

/// Variables to set, and to remove. What an outer `polylock run` has set is not left.
pub(crate) fn variables(
    tokens: Option<&[(LockName, FencingToken)]>,
    ttl: Duration,
    lost_fd: i32,
) -> Vec<(&'static str, Option<String>)> {
    let (name, token, several) = match tokens {
        Some([(name, token)]) => (Some(name.as_str().to_owned()), Some(token.to_string()), None),
        Some(several) => (None, None, Some(encoded(several, ","))),
        None => (None, None, None),
    };
    let held = tokens.is_some();
    vec![
        ("POLYLOCK_HELD", Some(u8::from(held).to_string())),
        ("POLYLOCK_NAME", name),
        ("POLYLOCK_TOKEN", token),
        ("POLYLOCK_TOKENS", several),
        ("POLYLOCK_TTL_MS", held.then(|| ttl.as_millis().to_string())),
        ("POLYLOCK_LOST_FD", held.then(|| lost_fd.to_string())),
        (URL_VARIABLE, None),
    ]
}

/// The content of the file of `--token-file`: the token, or a line `NAME=TOKEN` for each of several locks; nothing
/// without a lock.
pub(crate) fn token_file(tokens: &[(LockName, FencingToken)]) -> String {
    match tokens {
        [] => String::new(),
        [(_, token)] => format!("{token}\n"),
        several => encoded(several, "\n") + "\n",
    }
}

fn encoded(tokens: &[(LockName, FencingToken)], separator: &str) -> String {
    let pair =
        |(name, token): &(LockName, FencingToken)| format!("{}={token}", utf8_percent_encode(name.as_str(), ENCODED));
    tokens.iter().map(pair).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn tokens(names: &[&str]) -> Vec<(LockName, FencingToken)> {
        let token = FencingToken::new(1_795_458_000_123_456).unwrap();
        names.iter().map(|name| (LockName::new(name).unwrap(), token)).collect()
    }

    fn of(tokens: Option<&[(LockName, FencingToken)]>) -> HashMap<&'static str, Option<String>> {
        variables(tokens, Duration::from_millis(1500), 3).into_iter().collect()
    }

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    #[test]
    fn one_lock() {
        let found = of(Some(&tokens(&["orders/42\nx"])));
        assert_eq!(found["POLYLOCK_HELD"], text("1"));
        assert_eq!(found["POLYLOCK_NAME"], text("orders/42\nx"));
        assert_eq!(found["POLYLOCK_TOKEN"], text("1795458000123456"));
        assert_eq!(found["POLYLOCK_TTL_MS"], text("1500"));
        assert_eq!(found["POLYLOCK_LOST_FD"], text("3"));
        assert_eq!((&found["POLYLOCK_TOKENS"], &found["POLYLOCK_URL"]), (&None, &None));
    }

    #[test]
    fn several_locks() {
        let several = tokens(&["orders/42", "a=b,c d%é"]);
        let found = of(Some(&several));
        let pairs = "orders/42=1795458000123456,a%3Db%2Cc%20d%25%C3%A9=1795458000123456";
        assert_eq!(found["POLYLOCK_TOKENS"], text(pairs));
        assert_eq!((&found["POLYLOCK_NAME"], &found["POLYLOCK_TOKEN"]), (&None, &None));
        assert_eq!(token_file(&several), pairs.replace(',', "\n") + "\n");
    }

    #[test]
    fn no_lock() {
        let found = of(None);
        assert_eq!(found["POLYLOCK_HELD"], text("0"));
        assert!(
            found
                .iter()
                .all(|(name, value)| *name == "POLYLOCK_HELD" || value.is_none())
        );
    }
}
