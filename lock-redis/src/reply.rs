//! What the scripts answer, and what the value of a lock's key says.

use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::{HolderId, HolderStatus};
use redis::Value;

/// The answer to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
    /// The holder id was ended before.
    Dead,
}

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) holder: Holder,
    /// `None`: the hold has no end.
    pub(crate) rest: Option<Duration>,
}

/// What the value of a lock's key says: `ID TOKEN[ LABEL]`. Of a value of somebody else's making it says nothing,
/// since that may be a secret.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) token: Option<FencingToken>,
    pub(crate) label: Option<Arc<str>>,
}

/// `None`: no answer of our script.
pub(crate) fn acquired(answer: &Value) -> Option<Acquired> {
    match answer {
        Value::BulkString(token) => Some(Acquired::Granted(token_of(std::str::from_utf8(token).ok()?)?)),
        Value::Array(_) => Some(Acquired::Taken(taken(answer)?)),
        Value::Int(0) => Some(Acquired::Dead),
        _ => None,
    }
}

/// `None`: no answer of our script.
pub(crate) fn taken(answer: &Value) -> Option<Taken> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(value), Value::Int(left)] = &parts[..] else {
        return None;
    };
    Some(Taken {
        holder: Holder::parse(value),
        rest: u64::try_from(*left).ok().map(Duration::from_millis),
    })
}

/// The answer of a script that says yes or no.
pub(crate) fn is_yes(answer: &Value) -> Option<bool> {
    match answer {
        Value::Int(1) => Some(true),
        Value::Int(0) => Some(false),
        _ => None,
    }
}

impl Holder {
    fn parse(value: &[u8]) -> Self {
        Self::parse_ours(&String::from_utf8_lossy(value)).unwrap_or_default()
    }

    fn parse_ours(value: &str) -> Option<Self> {
        let (id, rest) = value.split_once(' ')?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if id.len() != HolderId::HEX_DIGITS || !id.bytes().all(is_hex) {
            return None;
        }
        let (token, label) = match rest.split_once(' ') {
            Some((token, label)) => (token, Some(label.into())),
            None => (rest, None),
        };
        Some(Self {
            token: Some(token_of(token)?),
            label,
        })
    }
}

impl From<Taken> for HolderStatus {
    fn from(taken: Taken) -> Self {
        let mut status = Self::new();
        status.label = taken.holder.label;
        status.token = taken.holder.token;
        status.expires_in = taken.rest;
        status
    }
}

fn token_of(digits: &str) -> Option<FencingToken> {
    FencingToken::new(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00ff00ff00ff00ff00ff00ff00ff00ff";

    fn holder(value: impl AsRef<[u8]>) -> Holder {
        Holder::parse(value.as_ref())
    }

    #[test]
    fn a_value_of_ours() {
        let token = FencingToken::new(7);
        assert_eq!(holder(format!("{ID} 7")), Holder { token, label: None });
        for label in ["", "worker 3 ", "a b\0c\n", "é"] {
            let expected = Holder {
                token,
                label: Some(label.into()),
            };
            assert_eq!(holder(format!("{ID} 7 {label}")), expected);
        }
    }

    #[test]
    fn a_value_of_somebody_else_stays_secret() {
        let short = &ID[1..];
        let foreign = [
            "",
            "1",
            "secret",
            ID,
            &format!("{short} 7 x"),
            &format!("{} 7 x", ID.to_uppercase()),
        ];
        for value in foreign {
            assert_eq!(holder(value), Holder::default(), "{value:?}");
        }
        for rest in ["", "x", "-1", "0", "9223372036854775808", " 7"] {
            assert_eq!(holder(format!("{ID} {rest}")), Holder::default(), "{rest:?}");
        }
        assert_eq!(holder([0xff, b' ', b'7']), Holder::default());
    }

    #[test]
    fn answers() {
        let granted = Value::BulkString(b"9223372036854775807".to_vec());
        let largest = FencingToken::new(i64::MAX.unsigned_abs()).expect("the largest token");
        assert_eq!(acquired(&granted), Some(Acquired::Granted(largest)));
        assert_eq!(acquired(&Value::BulkString(b"9223372036854775808".to_vec())), None);
        let taken = |left| Value::Array(vec![Value::BulkString(b"x".to_vec()), Value::Int(left)]);
        let rest = Some(Duration::from_millis(12));
        let holder = Holder::default();
        assert_eq!(acquired(&taken(12)), Some(Acquired::Taken(Taken { holder, rest })));
        let (holder, rest) = (Holder::default(), None);
        assert_eq!(acquired(&taken(-1)), Some(Acquired::Taken(Taken { holder, rest })));
        assert_eq!(acquired(&Value::Int(0)), Some(Acquired::Dead));
        for odd in [Value::Nil, Value::Int(1), Value::Okay, Value::Array(vec![])] {
            assert_eq!(acquired(&odd), None, "{odd:?}");
        }
        assert_eq!(
            (is_yes(&Value::Int(1)), is_yes(&Value::Int(0)), is_yes(&Value::Nil)),
            (Some(true), Some(false), None)
        );
    }
}
