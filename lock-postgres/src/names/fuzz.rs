use super::*;
use crate::protocol::session::SessionStatements;

/// What a literal says: the bytes that the server reads. `None`: it is no literal.
fn bytes_of(literal: &str) -> Option<Vec<u8>> {
    let digits = literal.strip_prefix("decode('")?.strip_suffix("','hex')")?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// The identifier between quotation marks with which this SQL begins, and what follows. `None`: it begins with none.
fn identifier(sql: &str) -> Option<(String, &str)> {
    let mut rest = sql.strip_prefix('"')?;
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        let Some(more) = behind.strip_prefix('"') else {
            return Some((name, behind));
        };
        name.push('"');
        rest = more;
    }
}

/// Names, labels, tables and schemas get to the server as they are, whatever they have.
#[test]
fn names() {
    let words = &[
        "'",
        "\\",
        "\"",
        "\"\"",
        ".",
        "decode('",
        "','hex')",
        "--",
        "$1",
        "\0",
        "\u{e9}",
        "\u{1f512}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "%",
        "_",
        ";",
        "\u{ff}",
    ];
    let seeds = &[
        "orders/42",
        "a\0'; DROP",
        "\u{e9}",
        "\\'",
        "decode('61','hex')",
        "",
        "Shop_locks$2",
        "a\".\"b",
        "\"",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        if let Ok(name) = LockName::new(text) {
            assert_eq!(bytes_of(&literal(name_bytes(&name))).as_deref(), Some(text.as_bytes()));
        }
        let label = label_bytes(Some(text)).expect("a label");
        assert!(
            text.as_bytes().starts_with(label) && std::str::from_utf8(label).is_ok(),
            "{text:?}"
        );
        assert!(
            label.len() == text.len() || (tables::LABEL_BYTES - 3..=tables::LABEL_BYTES).contains(&label.len()),
            "{text:?}"
        );
        assert_eq!(bytes_of(&literal_or_null(Some(label))).as_deref(), Some(label));
        // What the configuration allows needs no escape, and is not cut by the server.
        match check_identifiers(Some(text), text) {
            Ok(()) => {
                let quoted = quoted(Some(text), text);
                let (schema, rest) = identifier(&quoted).expect("a schema");
                let (table, rest) = rest.strip_prefix('.').and_then(identifier).expect("a table");
                assert_eq!((schema.as_str(), table.as_str(), rest), (text, text, ""));
                assert!(
                    text.len() + "_holders".len() <= LONGEST_IDENTIFIER && !text.contains('"'),
                    "{text:?}"
                );
            }
            Err(error) => {
                assert_eq!(error.kind(), lock_core::ErrorKind::Misconfigured, "{text:?}");
                assert!(error.to_string().contains("use 1 to"), "{error}");
            }
        }
        // The server names the schema in which it found the tables of sessions: any schema.
        if !text.contains('\0') {
            let sql = SessionStatements::new(text, "t").make_durable("n");
            let names = sql.strip_prefix("UPDATE ").expect("an update");
            let (schema, rest) = identifier(names).expect("a schema");
            assert_eq!(
                (schema.as_str(), rest),
                (text, ".\"t_tokens\" SET token=token WHERE name=n")
            );
        }
    });
}
