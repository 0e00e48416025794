//! What the scripts answer, and what the value of a lock's key says.

use std::sync::Arc;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::{Busy, HolderId, HolderStatus};
use redis::Value;

/// The answer to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
    /// The holder id was ended before.
    Dead,
}

/// The answer to a hand-over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    Granted(FencingToken),
    NotTheGivers,
    /// The next holder id was ended before.
    Dead,
}

/// The answer to a release or an abandon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Whether the hold was the holder's.
    pub(crate) had_it: bool,
    /// Whether somebody may wait behind the places that were looked at.
    pub(crate) more: bool,
}

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) holder: Holder,
    /// `None`: the hold has no end.
    pub(crate) rest: Option<Duration>,
    /// How many places come before the asker's; `None`: it has none.
    pub(crate) ahead: Option<u32>,
}

/// What the value of a lock's key says: `ID TOKEN TERM[ LABEL]`, where the token is 0 as long as the name is only offered
/// to that id, and the id of a name that is kept for a minimum time is `kept` and the moment when that is over. Of a
/// value of somebody else's making it says nothing, since that may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Ours {
        token: Option<FencingToken>,
        label: Option<Arc<str>>,
    },
    Foreign,
}

/// Who has a name, if anybody, and how many wait for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) taken: Option<Taken>,
    pub(crate) waiting: usize,
}

/// `None`: no answer of our script.
pub(crate) fn acquired(answer: &Value) -> Option<Acquired> {
    match answer {
        Value::Array(parts) => Some(Acquired::Taken(taken(parts)?)),
        Value::Int(0) => Some(Acquired::Dead),
        answer => Some(Acquired::Granted(granted(answer)?)),
    }
}

/// `None`: no answer of our script.
pub(crate) fn status(answer: &Value) -> Option<Status> {
    let Value::Array(parts) = answer else { return None };
    let [value, Value::Int(left), Value::Int(waiting)] = &parts[..] else {
        return None;
    };
    let taken = match value {
        Value::Nil => None,
        Value::BulkString(value) => Some(Taken {
            holder: Holder::parse(value),
            rest: rest(*left),
            ahead: None,
        }),
        _ => return None,
    };
    Some(Status {
        taken,
        waiting: usize::try_from(*waiting).ok()?,
    })
}

/// `None`: no answer of our script.
pub(crate) fn handed_over(answer: &Value) -> Option<HandedOver> {
    Some(match answer {
        Value::Nil => HandedOver::NotTheGivers,
        Value::Int(0) => HandedOver::Dead,
        answer => HandedOver::Granted(granted(answer)?),
    })
}

/// `None`: no answer of our script.
pub(crate) fn ended(answer: &Value) -> Option<Ended> {
    let Value::Int(bits @ 0..=3) = *answer else { return None };
    Some(Ended {
        had_it: bits & 1 != 0,
        more: bits & 2 != 0,
    })
}

fn taken(parts: &[Value]) -> Option<Taken> {
    let [Value::BulkString(value), Value::Int(left), Value::Int(ahead)] = parts else {
        return None;
    };
    Some(Taken {
        holder: Holder::parse(value),
        rest: rest(*left),
        ahead: u32::try_from(*ahead).ok(),
    })
}

fn granted(answer: &Value) -> Option<FencingToken> {
    let Value::BulkString(token) = answer else { return None };
    token_of(std::str::from_utf8(token).ok()?)
}

fn rest(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
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
        Self::parse_ours(&String::from_utf8_lossy(value)).unwrap_or(Self::Foreign)
    }

    fn parse_ours(value: &str) -> Option<Self> {
        let mut parts = value.splitn(4, ' ');
        let (id, token, term) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if id.len() != HolderId::HEX_DIGITS || !id.strip_prefix("kept").unwrap_or(id).bytes().all(is_hex) {
            return None;
        }
        term.parse::<u64>().ok()?;
        let token = match token {
            "0" => None,
            token => Some(token_of(token)?),
        };
        let label = parts.next().map(Into::into);
        Some(Self::Ours { token, label })
    }
}

impl Taken {
    pub(crate) fn busy(&self) -> Busy {
        match &self.holder {
            Holder::Ours { label: Some(label), .. } => Busy::new().with_holder(label.clone()),
            _ => Busy::new(),
        }
    }
}

impl From<Taken> for HolderStatus {
    fn from(taken: Taken) -> Self {
        let mut status = Self::new();
        status.expires_in = taken.rest;
        if let Holder::Ours { token, label } = taken.holder {
            status.token = token;
            status.label = label;
        }
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
        assert_eq!(holder(format!("{ID} 7 100")), Holder::Ours { token, label: None });
        for label in ["", "worker 3 ", "a b\0c\n", "é"] {
            let ours = |token| Holder::Ours {
                token,
                label: Some(label.into()),
            };
            assert_eq!(holder(format!("{ID} 7 100 {label}")), ours(token));
            assert_eq!(holder(format!("{ID} 0 100 {label}")), ours(None));
            assert_eq!(holder(format!("kept{:028} 7 100 {label}", 1234)), ours(token));
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
            &format!("{ID} 7"),
            &format!("{short} 7 1 x"),
            &format!("{} 7 1 x", ID.to_uppercase()),
        ];
        for value in foreign {
            assert_eq!(holder(value), Holder::Foreign, "{value:?}");
        }
        for rest in ["", "x 1", "-1 1", "9223372036854775808 1", " 7 1", "7 x", "7 "] {
            assert_eq!(holder(format!("{ID} {rest}")), Holder::Foreign, "{rest:?}");
        }
        assert_eq!(holder([0xff, b' ', b'7', b' ', b'1']), Holder::Foreign);
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_to_an_acquire() {
        let largest = FencingToken::new(i64::MAX.unsigned_abs()).expect("the largest token");
        assert_eq!(acquired(&text("9223372036854775807")), Some(Acquired::Granted(largest)));
        assert_eq!(acquired(&text("9223372036854775808")), None);
        let answer = |left, ahead| Value::Array(vec![text("x"), Value::Int(left), Value::Int(ahead)]);
        let taken = |rest, ahead| Taken {
            holder: Holder::Foreign,
            rest,
            ahead,
        };
        let rest = Some(Duration::from_millis(12));
        assert_eq!(acquired(&answer(12, 0)), Some(Acquired::Taken(taken(rest, Some(0)))));
        assert_eq!(acquired(&answer(-1, -1)), Some(Acquired::Taken(taken(None, None))));
        assert_eq!(acquired(&Value::Int(0)), Some(Acquired::Dead));
        for odd in [Value::Nil, Value::Int(1), Value::Okay, Value::Array(vec![])] {
            assert_eq!(acquired(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn other_answers() {
        let yes_or_no = [Value::Int(1), Value::Int(0), Value::Nil].map(|answer| is_yes(&answer));
        assert_eq!(yes_or_no, [Some(true), Some(false), None]);

        let all = [0, 1, 2, 3].map(|bits| ended(&Value::Int(bits)).expect("an answer of ours"));
        assert_eq!(all.each_ref().map(|ended| ended.had_it), [false, true, false, true]);
        assert_eq!(all.map(|ended| ended.more), [false, false, true, true]);
        assert_eq!((ended(&Value::Int(4)), ended(&Value::Nil)), (None, None));

        let token = FencingToken::new(5).expect("a token");
        assert_eq!(handed_over(&text("5")), Some(HandedOver::Granted(token)));
        assert_eq!(handed_over(&Value::Nil), Some(HandedOver::NotTheGivers));
        assert_eq!(handed_over(&Value::Int(0)), Some(HandedOver::Dead));
        assert_eq!(handed_over(&Value::Okay), None);

        let answer = |value| status(&Value::Array(vec![value, Value::Int(-2), Value::Int(3)]));
        let free = answer(Value::Nil).expect("an answer of ours");
        assert_eq!((free.taken, free.waiting), (None, 3));
        let held = answer(text("x")).expect("an answer of ours").taken;
        assert_eq!(held.map(|taken| taken.holder), Some(Holder::Foreign));
        assert_eq!((answer(Value::Int(1)), status(&Value::Nil)), (None, None));
    }
}
