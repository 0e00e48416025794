use tokio_postgres::types::Type;

use super::*;
use crate::connection::scripted::{int8, is_set, lossy, rows_of};
use crate::protocol::terms::signed;

/// The server's decision: whether the lock was taken, the token, whether a crash might bring it back, and who has the name.
#[test]
fn decisions() {
    let words = &[
        "|",
        "\n",
        "~",
        "t",
        "f",
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "label",
        "\u{1}",
        "\u{e9}",
    ];
    let seeds = &[
        "t|7|f|~",
        "t|7|~|label",
        "t|~|~|~",
        "t|0|f|~",
        "t|-1|f|~",
        "f|~|~|label",
        "f|~|~|\u{1}",
        "f|~|~|~",
        "~|7|t|~",
        "label|7|f|~",
        "t|label|f|~",
        "",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let (values, rows) = rows_of(text, &[Type::BOOL, Type::INT8, Type::BOOL, Type::BYTEA]);
        let first = || values.first().expect("a row was read");
        match decided(rows.first()) {
            Ok(Decided::Granted { token, is_ahead }) => {
                assert!(is_set(&first()[0]), "{text:?}");
                assert_eq!(Some(signed(token.as_u64())), int8(&first()[1]), "{text:?}");
                // Unless the server denies it, a crash might bring the token back.
                assert_eq!(is_ahead, first()[2].is_none() || is_set(&first()[2]), "{text:?}");
            }
            Ok(Decided::Busy(busy)) => {
                assert!(first()[0].is_some() && !is_set(&first()[0]), "{text:?}");
                let label = lossy(&first()[3]);
                assert_eq!(format!("{busy:?}"), format!("{:?}", busy_with(label)), "{text:?}");
            }
            Ok(Decided::Foreign) => assert!(first()[0].is_none(), "{text:?}"),
            Err(error) => {
                assert!(matches!(error, SqlError::UnexpectedAnswer(_)), "{error:?}");
                // The name may be locked: this is no refusal.
                let error = error.into_lock_error();
                assert!(
                    error.kind() == ErrorKind::Unexpected && !error.is_not_executed(),
                    "{error:?}"
                );
            }
        }
    });
}

fn busy_with(label: Option<String>) -> Busy {
    match label {
        Some(label) => Busy::new().with_holder(label),
        None => Busy::new(),
    }
}
