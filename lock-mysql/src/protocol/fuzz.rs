use super::*;
use crate::protocol::{lease_table, row_lock};

/// A number of rows, and a `LAST_INSERT_ID`: what the server answers to a statement that writes.
#[test]
fn answers() {
    let words = &[
        "0",
        "1",
        "18446744073709551615",
        "9223372036854775808",
        "9223372036854775807",
        "4611686018427387904",
        ",",
        "9",
    ];
    let seeds = &[
        "0,0",
        "1,1",
        "1,9223372036854775807",
        "2,18446744073709551615",
        "1,0",
        "1,4611686018427387904",
        "0,9223372036854775808",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let (matched, id) = text.split_once(',').unwrap_or((text, ""));
        let result = || StatementResult {
            rows: Vec::new(),
            matched: matched.parse().unwrap_or_default(),
            last_insert_id: id.parse().unwrap_or_default(),
        };
        let is_matched = result().matched > 0;
        // A token is one that was answered. No other number passes for one.
        if let Ok(lease_table::Acquired::Granted(token)) = lease_table::acquired(&result()) {
            assert_eq!(token.as_u64(), result().last_insert_id, "{text}");
        }
        match lease_table::granted(&result()) {
            Ok(token) => assert_eq!(token.is_some(), is_matched, "{text}"),
            Err(_) => assert!(is_matched, "{text}"),
        }
        assert_eq!(lease_table::released(&result()).0, is_matched, "{text}");
        let answer = Answer {
            sent: SentAt::now(),
            sent_instant: Instant::now(),
            results: vec![result()],
        };
        assert!(matches!(row_lock::acquired(&answer, 1), Ok(None)), "{text}");
        if let Ok(acquired) = row_lock::acquired(&answer, 0) {
            assert_eq!(acquired.is_some(), is_matched, "{text}");
        }
        let _token = row_lock::reader_token(&answer);
    });
}
