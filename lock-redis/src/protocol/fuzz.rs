use lock_core::backend::Mode;
use redis::Value;

use super::replies::*;
use super::*;

/// What replies consist of.
const WORDS: &[&str] = &[
    "00ff00ff00ff00ff00ff00ff00ff00ff",
    "kept000000000000000000000000ff00",
    " 7 100",
    " 0 100",
    "shared 7 100 200",
    "permits 0 1 2",
    " 9223372036854775807 1",
    "[",
    "]",
    "|",
    ":",
    "~",
    "+",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "x",
    "s",
    "u",
    "p1/2",
    "p4294967295/4294967295",
    "/x<",
    "/p",
    " ",
    "-1e15",
    "2e15",
    "nan",
    "inf",
    "polylock:inbox:",
    "label \u{e9}",
    "sesame",
];

/// A reply from text: `[` and `]` around a list, `|` between its parts, `:` before a number, `~` for nothing, `+` before a status.
fn value(text: &mut &str) -> Value {
    if let Some(rest) = text.strip_prefix('[') {
        *text = rest;
        let mut parts = Vec::new();
        while !text.is_empty() && !text.starts_with(']') {
            parts.push(value(text));
            *text = text.strip_prefix('|').unwrap_or(text);
        }
        *text = text.strip_prefix(']').unwrap_or(text);
        return Value::Array(parts);
    }
    // A list inside is a part of its own.
    let (part, rest) = text.split_at(text.find(['|', '[', ']']).unwrap_or(text.len()));
    *text = rest;
    match (part.strip_prefix(':').map(str::parse), part.strip_prefix('+'), part) {
        (Some(Ok(number)), _, _) => Value::Int(number),
        (_, Some(status), _) => Value::SimpleString(status.into()),
        (_, _, "~") => Value::Nil,
        _ => Value::BulkString(part.into()),
    }
}

#[test]
fn replies() {
    let seeds = &[
        "7",
        "9223372036854775808",
        ":0",
        ":-1",
        "~",
        "[sesame|:12|:0]",
        "[00ff00ff00ff00ff00ff00ff00ff00ff 7 100 label|:-1|:-1]",
        "[~|:12|:3|[]|[]]",
        "[shared 7 100 200|:12|:1|[00ff00ff00ff00ff00ff00ff00ff00ff|7 100 p1/2 label|:5]|[00ff00ff00ff00ff00ff00ff00ff00ff/x<0 inbox|-1e15]]",
        "[00ff00ff00ff00ff00ff00ff00ff00ff 0 100|:12|:9223372036854775807|[]|[x|nan|y|inf]]",
        "[|:5|:1]",
        "[00ff|:5|:0]",
        "0120",
        "17 1212",
        "[sesame 7 100|:1|:0]",
    ];
    testbed_fuzz::fuzz!(WORDS, seeds, |text| {
        let reply = value(&mut &*text);
        if let Some(Acquired::Taken(taken)) = acquired(&reply) {
            assert_foreign_is_secret(&reply, &format!("{taken:?} {:?}", taken.busy()));
        }
        let (status, all) = (status(&reply), status_with_waiters(&reply));
        if let Some(status) = &status {
            assert_foreign_is_secret(&reply, &format!("{status:?}"));
        }
        if let (Some(without), Some(with)) = (status, all) {
            assert_eq!(
                (without.holders, without.waiting),
                (with.holders, with.waiting),
                "{text:?}"
            );
        }
        assert!(renewed(&reply).is_none() || ended(&reply).is_some(), "{text:?}");
        let _revoked = revoked(&reply);
        for kind in [Kind::Grant, Kind::Renew, Kind::End] {
            assert!(kind.replies(&reply, 4).is_none_or(|all| all.len() == 4), "{text:?}");
        }
        // What a mode is read from, it is read from again as it is written.
        if let Some(mode) = mode::parse(text) {
            let written = match mode {
                Mode::Permits(permits) => format!("p{}/{}", permits.take(), permits.of()),
                _ => text.to_owned(),
            };
            assert_eq!(mode::parse(&written), Some(mode), "{text:?}");
            assert_eq!(mode::parse_asked(&written), Some(mode), "{text:?}");
        }
    });
}

/// A value that no script wrote may be a secret.
fn assert_foreign_is_secret(reply: &Value, shown: &str) {
    let Value::Array(parts) = reply else { return };
    let [Value::BulkString(value), ..] = &parts[..] else {
        return;
    };
    if Holder::parse(value) == Holder::Foreign {
        let others = format!("{:?}", &parts[1..]);
        assert!(!shown.contains("sesame") || others.contains("sesame"), "{shown}");
    }
}

/// A label is read as it was written, whatever it is.
#[test]
fn labels() {
    testbed_fuzz::fuzz!(WORDS, &["", "a b", " ", "7 100 x", "\u{e9}\n"], |text| {
        let id = "00ff00ff00ff00ff00ff00ff00ff00ff";
        let token = FencingToken::new(7);
        let label = Some(text.into());
        let value = format!("{id} 7 100 {text}");
        assert_eq!(
            Holder::parse(value.as_bytes()),
            Holder::Ours {
                token,
                label: label.clone()
            }
        );
        for word in ["shared", "permits"] {
            let value = format!("{word} 7 100 200 {text}");
            assert_eq!(
                Holder::parse(value.as_bytes()),
                Holder::Several { label: label.clone() }
            );
        }
        let sharer = [&format!("7 100 s {text}")].map(|terms| Value::BulkString(terms.as_str().into()));
        let [terms] = sharer;
        let sharers = vec![Value::BulkString(id.into()), terms, Value::Int(1)];
        let parts = vec![
            Value::BulkString("shared 7 100 200".into()),
            Value::Int(1),
            Value::Int(0),
            Value::Array(sharers),
            Value::Array(vec![]),
        ];
        let status = status(&Value::Array(parts)).expect("a reply of ours");
        assert_eq!(status.holders.first().and_then(|holder| holder.label.clone()), label);
    });
}
