use lock_core::backend::{HolderId, Permits};

use super::*;

const WORDS: &[&str] = &[
    "_c_01234567-89ab-cdef-0123-456789abcdef",
    "-lock-",
    "-read-lock-",
    "-p1.2-lock-",
    "-p4294967295.4294967295-lock-",
    "-keep-lock-",
    "-keep",
    "__lock__",
    "__rlock__",
    "lock-",
    "0000000001",
    "0000000002",
    "2147483647",
    "-2147483648",
    "-000000001",
    "0715827882",
    "1431655765",
    "-715827883",
    "\n",
    "\u{e9}",
    "shared",
    "entered",
    "token=",
    "keep=",
    "holder=0123456789abcdef0123456789abcdef",
    "\u{1}",
    "\u{2}",
    " ",
    "4711",
    "18446744073709551616",
];

/// The names of a directory's children, one a line, whoever made them.
#[test]
fn nodes() {
    let seeds = &[
        "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000001\n_c_01234567-89ab-cdef-0123-456789abcdef-keep-lock-0000000001",
        "_c_01234567-89ab-cdef-0123-456789abcdef-read-lock-2147483647\nx__lock__-2147483648\nconfig",
        "_c_01234567-89ab-cdef-0123-456789abcdef-p1.2-lock-0000000001\nlock-0000000001\nlock-",
        "_c_01234567-89ab-cdef-0123-456789abcd\u{e9}-keep-lock-0000000001",
        "_c_01234567-89ab-cdef-0123-456789abcdef-keep-read-lock-0000000001",
    ];
    testbed_fuzz::fuzz!(WORDS, seeds, |text| check_queue(
        &text.lines().map(str::to_owned).collect::<Vec<_>>()
    ));
}

/// Numbers all around the circle of sequences, many at a time: two of them are never in an order that a third one contradicts.
#[test]
fn sequences() {
    let words = &[
        "0000000000",
        "0715827882",
        "1431655765",
        "2147483647",
        "-2147483648",
        "-1431655766",
        "-715827883",
        "-000000001",
        "0000000001",
        "\n",
    ];
    let seeds = &["0000000000\n1431655765\n-1431655766", "-2147483648\n2147483647"];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let numbers: Vec<&str> = text.split('\n').filter(|number| !number.is_empty()).collect();
        let owners = 0..numbers.len() * 4;
        check_queue(
            &owners
                .map(|owner| format!("{owner}-lock-{}", numbers[owner % numbers.len()]))
                .collect::<Vec<_>>(),
        );
    });
}

fn check_queue(children: &[String]) {
    let (held, waiting) = holders(children, None);
    let mut queue: Vec<&str> = held.iter().chain(&waiting).map(|(name, _mode)| *name).collect();
    for (index, own) in queue.iter().enumerate() {
        match position(children, own, None) {
            Position::Admitted { .. } => assert!(index < held.len(), "{own:?} of {queue:?}"),
            Position::Behind { holder, watch } => {
                assert!(
                    index >= held.len() && Some(&holder) == queue.first(),
                    "{own:?} of {queue:?}"
                );
                let (Watch::End(name) | Watch::EndOrDowngrade(name) | Watch::EndOrEntry(name)) = watch else {
                    continue;
                };
                let watched = queue.iter().position(|other| *other == name);
                assert!(
                    watched.is_some_and(|watched| watched < index),
                    "{own:?} of {queue:?} watches {name:?}"
                );
            }
            // Its name may be there twice, in this list alone.
            Position::Tied => {}
            Position::Missing => panic!("{own:?} of {queue:?}"),
        }
        assert!(is_place(own), "{own:?}");
    }
    for kept in left_kept(children) {
        assert!(is_kept(kept) && queue.contains(&kept), "{kept:?}");
    }
    if let (Some(first), Some(last)) = (queue.first(), queue.last()) {
        let in_front = kept_in_front(children, last);
        assert!(
            in_front.is_none_or(|(kept, between)| kept == *first && between + 2 <= queue.len().max(2)),
            "{queue:?}"
        );
    }
    for name in children {
        let Some(kept) = kept_name(name) else { continue };
        assert!(
            is_kept(&kept) && !is_kept(name) && is_place(&kept) == is_place(name),
            "{kept:?}"
        );
    }
    // The order does not depend on that of the list.
    let reversed: Vec<String> = children.iter().rev().cloned().collect();
    let (held, waiting) = holders(&reversed, None);
    let mut other: Vec<&str> = held.iter().chain(&waiting).map(|(name, _mode)| *name).collect();
    // Names that are there twice.
    queue.dedup();
    other.dedup();
    assert_eq!(queue, other);
}

/// The mode of a request is read from the name of its node.
#[test]
fn modes() {
    testbed_fuzz::fuzz!(WORDS, &["1/2", "4294967295/4294967295", "x"], |text| {
        let permits = text
            .split_once('/')
            .and_then(|(take, of)| Permits::new(take.parse().ok()?, of.parse().ok()?).ok());
        let mode = permits.map_or(Mode::Shared, Mode::Permits);
        for mode in [mode, Mode::Exclusive] {
            let name = prefix(HolderId::random(), mode) + "0000000012";
            let children = [name.clone()];
            assert_eq!(holders(&children, None).0, [(name.as_str(), mode)]);
        }
    });
}

/// Data is read back as it was written. `\u{1}` and `\u{2}` stand for bytes that are in no text.
#[test]
fn data() {
    let seeds = &[
        "host:7",
        "\u{1}shared token=4711",
        "a\u{1}keep=1500",
        "\u{1}\u{1}",
        "x\u{1}token=18446744073709551616",
        "\u{2}\u{1}entered",
        "",
    ];
    testbed_fuzz::fuzz!(WORDS, seeds, |text| {
        let of = |c: char| match c {
            '\u{1}' => vec![0xFF],
            '\u{2}' => vec![0xFE],
            c => c.to_string().into_bytes(),
        };
        let bytes: Vec<u8> = text.chars().flat_map(of).collect();
        let data = NodeData::parse(&bytes);
        assert_eq!(NodeData::parse(&data.encode()), data, "{text:?}");
        let labelled = NodeData::labelled(Some(text.into()));
        assert_eq!(NodeData::parse(&labelled.encode()), labelled, "{text:?}");
        let marked = NodeData {
            is_downgraded: true,
            token: Some(7),
            ..labelled.clone()
        };
        assert_eq!(NodeData::parse(&marked.encode()), marked, "{text:?}");
        if let Some(offset) = parse_offset(&bytes) {
            assert!(
                offset >= 0 && parse_offset(&offset_data(offset)) == Some(offset),
                "{text:?}"
            );
        }
    });
}
