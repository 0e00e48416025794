use std::time::SystemTime;

use lock_core::backend::{HolderStatus, LockStatus, Mode, Permits};
use redis::Value;

use super::replies::*;
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
fn a_value_of_several() {
    for word in ["shared", "permits"] {
        let several = |label: Option<&str>| Holder::Several {
            label: label.map(Into::into),
        };
        assert_eq!(holder(format!("{word} 7 100 200")), several(None));
        assert_eq!(holder(format!("{word} 0 100 200 a b ")), several(Some("a b ")));
    }
}

#[test]
fn a_foreign_value_stays_secret() {
    let short = &ID[1..];
    let foreign = [
        "",
        "1",
        "secret",
        ID,
        &format!("{ID} 7"),
        "shared",
        "shared 7 100",
        "shared 7 x 200",
        "shares 7 100 200",
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
fn replies_to_an_acquire() {
    let largest = FencingToken::new(i64::MAX.unsigned_abs()).expect("the largest token");
    assert_eq!(acquired(&text("9223372036854775807")), Some(Acquired::Granted(largest)));
    assert_eq!(acquired(&text("9223372036854775808")), None);
    let reply = |left, ahead| Value::Array(vec![text("x"), Value::Int(left), Value::Int(ahead)]);
    let taken = |rest, ahead| Taken {
        holder: Holder::Foreign,
        expires_in: rest,
        ahead,
    };
    let rest = Some(Duration::from_millis(12));
    assert_eq!(acquired(&reply(12, 0)), Some(Acquired::Taken(taken(rest, Some(0)))));
    assert_eq!(acquired(&reply(-1, -1)), Some(Acquired::Taken(taken(None, None))));
    assert_eq!(acquired(&Value::Int(0)), Some(Acquired::Retired));
    for odd in [Value::Nil, Value::Int(1), Value::Okay, Value::Array(vec![])] {
        assert_eq!(acquired(&odd), None, "{odd:?}");
    }
}

#[test]
fn other_replies() {
    let yes_or_no = [Value::Int(1), Value::Int(0), Value::Nil].map(|reply| renewed(&reply));
    assert_eq!(yes_or_no, [Some(true), Some(false), None]);

    let all = [0, 1, 2, 3].map(|bits| ended(&Value::Int(bits)).expect("a reply of ours"));
    assert_eq!(all.each_ref().map(|ended| ended.was_held), [false, true, false, true]);
    assert_eq!(all.map(|ended| ended.more), [false, false, true, true]);
    assert_eq!((ended(&Value::Int(4)), ended(&Value::Nil)), (None, None));

    assert_eq!(acquired(&Value::Int(-1)), Some(Acquired::BaseEnded));
}

#[test]
fn replies_to_a_revocation() {
    let reply = |holder: &str, left, more| Value::Array(vec![text(holder), Value::Int(left), Value::Int(more)]);
    let hold = |lease_left, more| RevokedHold {
        holder: ID.to_owned(),
        lease_left,
        more,
    };
    let rest = Some(Duration::from_millis(12));
    assert_eq!(revoked(&reply(ID, 12, 0)), Some(Some(hold(rest, false))));
    assert_eq!(revoked(&reply(ID, -1, 1)), Some(Some(hold(None, true))));
    assert_eq!(revoked(&reply("", 0, 0)), Some(None), "no such hold");
    for odd in [Value::Nil, Value::Int(1), Value::Array(vec![]), reply(ID, 12, 2)] {
        assert_eq!(revoked(&odd), None, "{odd:?}");
    }
}

/// Then it is asked for again with the keys of those who share the name.
#[test]
fn a_renewal_may_need_the_keys_of_a_name_that_is_shared() {
    assert!(is_of_shared(&Value::Int(2)));
    for other in [Value::Int(0), Value::Int(1), Value::Nil, text("2")] {
        assert!(!is_of_shared(&other), "{other:?}");
    }
}

#[test]
fn a_request_that_is_refused_learns_the_label_of_the_holder() {
    let busy = |value: &str| {
        let taken = Taken {
            holder: holder(value),
            expires_in: None,
            ahead: None,
        };
        taken.busy().holder
    };
    assert_eq!(busy(&format!("{ID} 7 100 me")).as_deref(), Some("me"));
    assert_eq!(busy("shared 7 100 200 the last").as_deref(), Some("the last"));
    for unknown in [&format!("{ID} 7 100"), "shared 7 100 200", "secret"] {
        assert_eq!(busy(unknown), None, "{unknown}");
    }
}

/// Tokens are made from the server's clock.
#[test]
fn a_status_says_since_when_a_hold_lasts() {
    let micros = 1_700_000_000_123_456;
    let granted = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
    let lists = |value: String, sharers| {
        let parts = vec![
            text(&value),
            Value::Int(12),
            Value::Int(0),
            Value::Array(sharers),
            Value::Array(vec![]),
        ];
        let status = status(&Value::Array(parts)).expect("a reply of ours");
        status.holders.first().and_then(|holder| holder.since)
    };
    let alone = lists(format!("{ID} {micros} 100"), vec![]);
    let terms = text(&format!("{micros} 100 s"));
    let shared = lists("shared 7 100 200".to_owned(), vec![text(ID), terms, Value::Int(12)]);
    assert_eq!((alone, shared), (Some(granted), Some(granted)));
    assert_eq!(lists(format!("{ID} 0 100"), vec![]), None, "it is only offered");
}

#[test]
fn replies_to_a_status() {
    let reply = |value, sharers| {
        status(&Value::Array(vec![
            value,
            Value::Int(12),
            Value::Int(3),
            Value::Array(sharers),
            Value::Array(vec![]),
        ]))
    };
    let rest = Duration::from_millis(12);
    assert_eq!(reply(Value::Nil, vec![]), Some(LockStatus::free().with_waiting(3)));
    let foreign = HolderStatus::new().with_expires_in(rest);
    assert_eq!(
        reply(text("x"), vec![]),
        Some(LockStatus::held(foreign.clone()).with_waiting(3))
    );
    let token = FencingToken::new(7).expect("a token");
    let alone = foreign
        .with_mode(Mode::Exclusive)
        .with_token(token)
        .with_label("a b")
        .with_id(ID);
    assert_eq!(
        reply(text(&format!("{ID} 7 100 a b")), vec![]),
        Some(LockStatus::held(alone).with_waiting(3))
    );
    assert_eq!((reply(Value::Int(1), vec![]), status(&Value::Nil)), (None, None));

    let shared = || text("shared 7 100 200");
    assert_eq!(
        reply(shared(), vec![]),
        Some(LockStatus::free().with_waiting(3)),
        "all have ended"
    );
    let sharer = |mode| HolderStatus::new().with_mode(mode).with_expires_in(rest).with_id(ID);
    let permits = |take, of| Mode::Permits(Permits::new(take, of).expect("no more than there are"));
    for (terms, status) in [
        ("7 100 s", sharer(Mode::Shared).with_token(token)),
        ("0 100 u ", sharer(Mode::Upgradable).with_label("")),
        (
            "7 100 p2/3 a b",
            sharer(permits(2, 3)).with_token(token).with_label("a b"),
        ),
    ] {
        let reply = reply(shared(), vec![text(ID), text(terms), Value::Int(12)]);
        assert_eq!(reply, Some(LockStatus::held(status).with_waiting(3)), "{terms:?}");
    }
    for odd in ["", "7 100", "x 100 s", "7 100 y"] {
        assert_eq!(
            reply(shared(), vec![text(ID), text(odd), Value::Int(12)]),
            None,
            "{odd:?}"
        );
    }
}

/// An upgrade is before all. One that is set aside keeps its place, and its score is lower by the same for each.
#[test]
fn waiters_are_in_the_order_of_their_numbers() {
    let modes = |entries: &[(&str, i64)]| {
        let waiters = entries.iter().flat_map(|(how, score)| {
            let entry = format!("{ID}{how} polylock:inbox:1");
            [text(&entry), text(&score.to_string())]
        });
        let reply = Value::Array(vec![
            Value::Nil,
            Value::Int(-2),
            Value::Int(entries.len().try_into().expect("a few")),
            Value::Array(vec![]),
            Value::Array(waiters.collect()),
        ]);
        assert_eq!(status(&reply).map(|status| status.waiters), Some(None));
        let status = status_with_waiters(&reply).expect("a reply of ours");
        assert_eq!(status.waiting, Some(entries.len()));
        let waiters = status.waiters.expect("it lists them");
        waiters.into_iter().map(|waiter| waiter.mode).collect::<Vec<_>>()
    };
    let first = -1_000_000_000_000_000;
    let aside = 2_000_000_000_000_000;
    let permits = Permits::new(1, 2).expect("no more than there are");
    let upgrade = format!("/x<{ID}");
    assert_eq!(
        modes(&[
            (&upgrade, first - aside - 1),
            ("/s", first + 1 - aside),
            ("", first),
            ("/p1/2", first + 2),
            ("/new", first + 3),
        ]),
        [
            Some(Mode::Exclusive),
            Some(Mode::Exclusive),
            Some(Mode::Shared),
            Some(Mode::Permits(permits)),
            None,
        ]
    );
    assert_eq!(modes(&[]), []);
}

#[test]
fn a_ttl_is_never_shortened() {
    assert_eq!(millis(Duration::from_millis(10)), "10");
    assert_eq!(millis(Duration::from_nanos(10_000_001)), "11");
    assert_eq!(millis(Duration::from_secs(365 * 24 * 3600)), "31536000000");
}

#[test]
fn a_script_has_the_fragments_that_it_includes_in_their_place() {
    let fragments = [("one", "-- include two.lua\nlocal one\n"), ("two", "local two\n")];
    let included = files::include("first\n-- include one.lua\nlast\n", &fragments);
    assert_eq!(included, "first\nlocal two\nlocal one\nlast\n");
    for script in [files::ACQUIRE, files::END, files::STATUS] {
        let whole = files::with_fragments(script);
        assert!(!whole.contains("-- include "), "{whole}");
        let own = script
            .lines()
            .filter(|line| !line.trim_start().starts_with("-- include "));
        for line in own {
            assert!(whole.contains(line), "{line}");
        }
    }
}

#[test]
fn arguments_are_sent_as_they_are() {
    assert_eq!(
        arguments::texts(&["a".into(), "".into(), "b c".into()]),
        ["a", "", "b c"]
    );
}

/// The text of a script says in which order it takes the arguments that a struct names.
#[test]
fn scripts_take_their_arguments_by_the_same_names() {
    let takes = |script: &str, line: &str| {
        let is_it = |text: &str| text.trim_start().starts_with(line);
        assert!(script.lines().any(is_it), "`{line}` is missing in\n{script}");
    };
    for (script, names, in_rest) in arguments::NAMES {
        let names = names.join(", ");
        match in_rest {
            [] => takes(script, &format!("local {names} = unpack(ARGV")),
            [words @ .., _text] => {
                takes(script, &format!("local {names}, rest = unpack(ARGV)"));
                let pattern = "(%S*) ".repeat(words.len());
                takes(script, &format!("local {} =", in_rest.join(", ")));
                takes(script, &format!("string.match(rest, '^{pattern}(.*)$')"));
            }
        }
    }
}
