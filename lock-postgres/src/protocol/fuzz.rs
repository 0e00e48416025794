use std::time::{Duration, SystemTime};

use lock_core::ErrorKind;
use lock_core::backend::Mode;
use lock_kit::tables::hexadecimal;
use tokio_postgres::Row;

use super::answers::*;
use super::session_setup;
use super::terms::{Kind, signed};
use super::*;
use crate::config::{Pooler, PostgresConfig};
use crate::connection::TextRows;
use crate::connection::scripted::{Value, int8, is_set, lossy, parts, rows_of};
use crate::error::SqlError;

/// What a connection was given.
const MARK: &str = "0123456789abcdef0123456789abcdef";

/// What answers consist of.
const WORDS: &[&str] = &[
    "polylock|",
    "session|",
    MARK,
    "|",
    "\n",
    "~",
    "t",
    "f",
    "0",
    "1",
    "2",
    "-1",
    "+1",
    "7",
    "1500",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "1700000000000000",
    "4294967295",
    "2147483648",
    "140000",
    "150018",
    "c3b6",
    "C3",
    "+f",
    "\u{1}",
    "\u{e9}",
    "label",
    " ",
];

fn text_rows(text: &str) -> TextRows {
    let owned = |row: Vec<Option<&str>>| row.into_iter().map(|value| value.map(str::to_owned)).collect();
    parts(text).map(owned).collect()
}

/// An answer that makes no sense says so, and what to do. Nobody may take it for a refusal.
pub(crate) fn assert_unexpected(error: SqlError) {
    assert!(matches!(error, SqlError::UnexpectedAnswer(_)), "{error:?}");
    assert!(!error.is_refusal() && !error.is_disconnect(), "{error:?}");
    let error = error.into_lock_error();
    assert!(
        error.kind() == ErrorKind::Unexpected && !error.is_not_executed(),
        "{error:?}"
    );
    assert!(error.to_string().contains("please report it"), "{error}");
}

/// The answers to texts of statements.
#[test]
fn texts() {
    let seeds = &[
        "polylock|7|~|1500|t|~",
        "polylock|~|7|1500|f|c3b6",
        "polylock|~|~|-1|t|C3+f",
        "polylock|~|7|1500|f|c3b",
        "polylock|~|~|1|f|+1",
        "polylock|0",
        "polylock|9223372036854775808",
        "\npolylock|t|f",
        "polylock|7|t",
        "polylock|",
        "session|0123456789abcdef0123456789abcdef|150018|7|1500|2",
        "session|0123456789abcdef0123456789abcdef|140000|2147483648|~|-1",
        "session|0123456789abcdef0123456789abcdef|7|7|~|~",
        "session|label|150018|7|~|~",
        "session|0123456789abcdef0123456789abcdef||7",
    ];
    testbed_fuzz::fuzz!(WORDS, seeds, |text| {
        let rows = text_rows(text);
        check_shared(&rows);
        let row = told(&rows);
        let is_true = |column: usize| row.is_some_and(|row| row.get(column) == Some(&Some("t".to_owned())));
        assert_eq!(flags(&rows), (is_true(0), is_true(1)), "{text:?}");
        match revoked(&rows) {
            Ok(None) => assert!(row.is_none(), "{text:?}"),
            Ok(Some((rest, is_wanted))) => {
                let number: i64 = row.unwrap()[0].as_ref().unwrap().parse().unwrap();
                assert_eq!(
                    (rest.as_micros(), is_wanted),
                    (u128::try_from(number).unwrap_or(0), is_true(1))
                );
            }
            Err(error) => assert_unexpected(error),
        }
        for pooler in [Pooler::None, Pooler::Session] {
            check_session(&rows, &PostgresConfig::new("db", 5432).with_pooler(pooler));
        }
    });
}

fn check_shared(rows: &TextRows) {
    let column = |number: usize| told(rows)?.get(number)?.as_deref();
    let number = |number| column(number).map(|text| text.parse::<i64>().expect("it was read"));
    let shared = match shared(rows) {
        Ok(shared) => shared,
        Err(error) => return assert_unexpected(error),
    };
    assert_eq!(
        (shared.place, shared.is_wanted),
        (number(1), column(3) == Some("t")),
        "{rows:?}"
    );
    match shared.acquired {
        Acquired::Granted(token) => assert_eq!(Some(signed(token.as_u64())), number(0), "{rows:?}"),
        Acquired::Taken(taken) => {
            assert_eq!(column(0), None, "{rows:?}");
            assert_eq!(taken.is_queued, shared.place.is_some(), "{rows:?}");
            let rest = number(2).and_then(|rest| u64::try_from(rest).ok()).unwrap_or(0);
            assert_eq!(taken.rest, Duration::from_micros(rest), "{rows:?}");
            // A label is the one that was written.
            if let Some(label) = taken.label.filter(|label| !label.contains('\u{fffd}')) {
                let digits = column(4).map(str::to_ascii_lowercase);
                assert_eq!(digits, Some(hexadecimal(label.as_bytes())), "{rows:?}");
            }
        }
        Acquired::Unknown => assert!(told(rows).is_none(), "{rows:?}"),
    }
}

/// A session is the client's own only if the server knows its mark.
fn check_session(rows: &TextRows, config: &PostgresConfig) {
    let row = crate::connection::told(rows, "session");
    let column = |number: usize| row?.get(number)?.as_deref();
    match session_setup::told(rows, MARK, config) {
        Ok(told) => {
            assert_eq!(column(0), Some(MARK), "{rows:?}");
            assert_eq!(
                Some(told.identity.process),
                column(2).and_then(|text| text.parse().ok()),
                "{rows:?}"
            );
            // No other session is ended.
            let find = format!("SELECT true FROM pg_stat_activity WHERE pid={}", told.identity.process);
            assert!(told.identity.find().starts_with(&find), "{rows:?}");
            let is_named = told
                .identity
                .find()
                .contains("application_name='polylock 0123456789abcdef'");
            assert_eq!(is_named, config.pooler == Pooler::Session, "{rows:?}");
        }
        Err(error) => {
            // Nothing but the set-up was sent.
            assert!(error.is_not_executed(), "{error:?}");
            let said = error.to_string();
            let advice = match error.kind() {
                ErrorKind::Misconfigured if column(0) == Some(MARK) => "use strategy=lease",
                ErrorKind::Misconfigured => "a pooler is between",
                _ => "please report it",
            };
            assert!(said.contains(advice), "{rows:?}: {said}");
        }
    }
}

/// The answers to statements, as the driver reads them.
#[test]
fn columns() {
    let seeds = &[
        "",
        "7",
        "0",
        "-1",
        "label",
        "~|label|1500|t|f|f|t",
        "~|\u{1}|-9223372036854775808|f|f|t",
        "~|~|9223372036854775807|f|f|~",
        "~|~|label",
        "t|0123456789abcdef0123456789abcdef|label|1500|1700000000000000|0|1|1|~\nf|~|~|~|~|2|1|2|1500",
        "t|~|~|~|~|1|1|1|~\nt|~|~|-1|9223372036854775807|2|0|0|~",
        "f|~|\u{1}|~|~|7|1|1|9223372036854775807",
        "f|~|~|~|~|2|4294967295|4294967295|-1",
        "t|label|~|~|~|1|1|1|~",
    ];
    testbed_fuzz::fuzz!(WORDS, seeds, |text| {
        let all = [
            Type::INT8,
            Type::BYTEA,
            Type::INT8,
            Type::BOOL,
            Type::BOOL,
            Type::BOOL,
            Type::BOOL,
        ];
        for types in [&all[..], &all[..6]] {
            let (values, rows) = rows_of(text, types);
            check_acquired(&values, &rows);
        }
        let shows = [
            Type::BOOL,
            Type::UUID,
            Type::BYTEA,
            Type::INT8,
            Type::INT8,
            Type::INT2,
            Type::INT8,
            Type::INT8,
            Type::INT8,
        ];
        let (values, shows) = rows_of(text, &shows);
        check_status(&values, &shows);
        // A server of another version may have other columns.
        let texts = [(); 9].map(|()| Type::TEXT);
        let (_, foreign) = rows_of(text, &texts);
        if foreign.is_empty() {
            return;
        }
        assert_unexpected(status(&foreign).unwrap_err());
        assert_unexpected(acquired(&foreign).unwrap_err());
        assert_unexpected(flag(&foreign, 0).unwrap_err());
        assert_unexpected(flag(&foreign, 9).unwrap_err());
    });
}

fn check_acquired(values: &[Vec<Value>], rows: &[Row]) {
    let first = values.first();
    match acquired(rows) {
        Ok(Acquired::Unknown) => assert!(first.is_none(), "{values:?}"),
        Ok(Acquired::Granted(token)) => {
            assert_eq!(Some(signed(token.as_u64())), int8(&first.unwrap()[0]), "{values:?}");
            assert_eq!(taken(rows).unwrap(), Some(token), "{values:?}");
        }
        Ok(Acquired::Taken(busy)) => {
            let row = first.unwrap();
            assert!(row[0].is_none() && taken(rows).unwrap().is_none(), "{values:?}");
            assert_eq!(busy.label.as_deref(), lossy(&row[1]).as_deref(), "{values:?}");
            let rest = u64::try_from(int8(&row[2]).unwrap()).unwrap_or(0);
            assert_eq!(busy.rest, Duration::from_micros(rest), "{values:?}");
            assert_eq!(
                (busy.is_held, busy.is_too_long, busy.is_queued),
                (is_set(&row[3]), is_set(&row[5]), row.get(6).is_some_and(is_set)),
                "{values:?}"
            );
        }
        Err(error) => assert_unexpected(error),
    }
}

fn check_status(values: &[Vec<Value>], rows: &[Row]) {
    let status = match status(rows) {
        Ok(status) => status,
        Err(error) => return assert_unexpected(error),
    };
    let (held, waiting): (Vec<_>, Vec<_>) = values.iter().partition(|row| is_set(&row[0]));
    assert_eq!(
        (status.holders.len(), status.waiting),
        (held.len(), Some(waiting.len())),
        "{values:?}"
    );
    for (holder, row) in status.holders.iter().zip(held) {
        assert_eq!(holder.label.as_deref(), lossy(&row[2]).as_deref(), "{row:?}");
        assert_eq!(
            holder.token.map(|token| signed(token.as_u64())),
            int8(&row[4]),
            "{row:?}"
        );
        assert_eq!(holder.expires_in.is_some(), row[3].is_some(), "{row:?}");
        assert!(
            holder
                .since
                .is_none_or(|since| since <= SystemTime::now() + Duration::from_secs(60)),
            "{row:?}"
        );
        check_mode(holder.mode, row);
    }
    for (waiter, row) in status.waiters.iter().flatten().zip(waiting) {
        assert_eq!(waiter.label.as_deref(), lossy(&row[2]).as_deref(), "{row:?}");
        check_mode(waiter.mode, row);
    }
}

/// A mode is read from the numbers that are written for it.
fn check_mode(mode: Option<Mode>, row: &[Value]) {
    let Some(mode) = mode else { return };
    let Kind { kind, permits, of } = Kind::of(mode).expect("the tables can keep it");
    assert_eq!(row[5].as_deref(), Some(&kind.to_be_bytes()[..]), "{row:?}");
    if kind == Kind::PERMITS {
        assert_eq!((int8(&row[6]), int8(&row[7])), (Some(permits), Some(of)), "{row:?}");
    }
}
