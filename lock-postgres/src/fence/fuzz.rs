use super::*;
use crate::connection::scripted::messages;

/// A fence's row decides by the numbers that are in it. Rows are lines, with `|` between the writer and the reader, and `~` for `NULL`.
#[test]
fn rows() {
    let words = &[
        "|",
        "\n",
        "~",
        "0",
        "7",
        "-1",
        "+1",
        "9223372036854775807",
        "18446744073709551616",
        "\u{e9}",
        " ",
    ];
    let seeds = &[
        "",
        "7|0",
        "0|7\n7|7",
        "9223372036854775807|0",
        "-1|0",
        "~|7",
        "7",
        "18446744073709551616|0",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let part = |part| (part != "~").then(|| str::as_bytes(part).to_vec());
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|line| {
                let (writer, reader) = line.split_once('|').unwrap_or((line, "~"));
                vec![part(writer), part(reader)]
            })
            .collect();
        let number = |value: &Option<Vec<u8>>| -> Option<u64> {
            std::str::from_utf8(value.as_deref()?).expect("a text").parse().ok()
        };
        let last = lines.last().map(|row| (number(&row[0]), number(&row[1])));
        match (row(&messages(&["writer", "reader"], &lines)), last) {
            (Ok(None), last) => assert_eq!(last, None, "{text:?}"),
            (Ok(Some(entered)), last) => {
                assert_eq!(last, Some((Some(entered.writer), Some(entered.reader))), "{text:?}");
            }
            (Err(error), last) => {
                assert!(matches!(last, Some((None, _) | (_, None))), "{text:?}");
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text:?}");
                assert!(error.to_string().contains("drop the table"), "{error}");
            }
        }
        // A column that is missing is no number, whatever the others have.
        if !lines.is_empty() {
            assert!(row(&messages(&["writer", "other"], &lines)).is_err(), "{text:?}");
        }
    });
}
