use super::*;

/// What a literal says: the bytes that the server reads. `None`: it is no literal.
fn bytes_of(literal: &str) -> Option<Vec<u8>> {
    let digits = literal.strip_prefix("x'")?.strip_suffix('\'')?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Names and labels get to the server as they are, whatever they have.
#[test]
fn names() {
    let words = &[
        "'",
        "\\",
        "`",
        "x'",
        "--",
        "\0",
        "\u{e9}",
        "\u{1f512}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "%",
        "_",
        ";",
        "\u{ff}",
    ];
    let seeds = &["orders/42", "a\0'; DROP", "\u{e9}", "\\'", "x''", "", "Shop_locks$2"];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        if let Ok(name) = LockName::new(text) {
            assert_eq!(bytes_of(&name_literal(&name)).as_deref(), Some(text.as_bytes()));
        }
        let kept = bytes_of(&label_literal(Some(text))).expect("a literal");
        assert!(
            text.as_bytes().starts_with(&kept) && std::str::from_utf8(&kept).is_ok(),
            "{text:?}"
        );
        assert!(
            kept.len() == text.len() || (LABEL_BYTES - 3..=LABEL_BYTES).contains(&kept.len()),
            "{text:?}"
        );
        let padded = bytes_of(&padded_label_literal(Some(text))).expect("a literal");
        assert_eq!(unpadded(&padded), unpadded(&kept), "{text:?}");
        if check_table_prefix(text).is_ok() {
            assert!(
                text.bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"`'\"\\".contains(&byte)),
                "{text:?}"
            );
        }
    });
}
