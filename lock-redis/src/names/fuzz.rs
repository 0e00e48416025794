use super::*;

/// A prefix, a line break, and a name; or what may be a key.
#[test]
fn names() {
    let words = &[
        "{",
        "}",
        "{}",
        "%",
        "%7B",
        "%7D",
        "%25",
        ":fence",
        ":queue",
        ":ends",
        ":terms",
        ":lock",
        ":lock:fence",
        ":lock:queue",
        "}member",
        "}member:7",
        "inbox:",
        "polylock:",
        "\n",
        "{a}",
        "\u{e9}",
    ];
    let seeds = &[
        "polylock:\norders/42",
        "\n{a}:fence",
        "a{\nb}",
        "polylock:\na{}b",
        "%\n}",
        "{\n}:lock",
        "p\n}member",
        "\n{%7Ba%7D:fence}:lock",
        "polylock:\n{polylock:a}:queue",
        "}\n{",
        "a\u{b}b",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let (prefix, rest) = text.split_once('\n').unwrap_or(("polylock:", text));
        // The configuration refuses such a prefix.
        if prefix.contains(['{', '}']) {
            return;
        }
        // What stands in the database, whoever wrote it.
        if let Some(name) = name_of(prefix, rest) {
            let [lock, _fence, queue, ..] = Keys::new(prefix, &name).all().map(str::to_owned);
            assert!(rest == lock || rest == queue, "{text:?} is taken for {name:?}");
        }
        let Ok(name) = LockName::new(rest) else { return };
        let keys = Keys::new(prefix, &name);
        let all = keys.all();
        for key in all {
            assert_eq!(slot(key), keys.slot(), "{text:?}: {key:?}");
            assert_ne!(key, mark(prefix, 0), "{text:?}");
            // A name that is like a key of this one has other keys.
            let alike = [Some(key), key.strip_prefix(prefix)].into_iter().flatten();
            for other in alike
                .filter_map(|key| LockName::new(key).ok())
                .filter(|other| *other != name)
            {
                let others = Keys::new(prefix, &other);
                assert!(
                    !others.all().iter().any(|other| all.contains(other)),
                    "{text:?} and {other:?}"
                );
            }
        }
        let names = all.map(|key| name_of(prefix, key));
        assert_eq!(
            names,
            [Some(name.clone()), None, Some(name.clone()), None, None],
            "{text:?}"
        );
        assert_eq!(slot(&keys.channel("a:inbox:1")), keys.slot(), "{text:?}");
        let pattern = as_pattern(rest);
        assert!(
            pattern.len() >= rest.len() && !pattern.contains(char::is_whitespace) || !rest.is_ascii(),
            "{text:?}"
        );
    });
}
