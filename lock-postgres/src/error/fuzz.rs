use super::tests::answered_with;
use super::*;
use crate::fence::error::meaning;

/// The fields of an error of the server, which may be a pooler: a letter and a text, one a line.
#[test]
fn errors() {
    let words = &[
        "SERROR\n", "VERROR\n", "VFATAL\n", "VPANIC\n", "VLOG\n", "S", "V", "C", "M", "\n", "42P01", "42501", "40001",
        "40P01", "23505", "26000", "42P05", "08P01", "08006", "25006", "55P03", "57014", "57P", "57P03", "53", "53100",
        "58", "28P01", "0A000", "XX000", "22003", "25P02", "25P03", "25P04", "P", "L", "D", "H", "7", "-1", "\u{e9}",
        "words",
    ];
    let seeds = &[
        "SERROR\nVERROR\nC42P01\nMwords",
        "SFATAL\nVFATAL\nC57P03\nMwords",
        "SFEHLER\nVERROR\nC40001\nMwords\nDwords\nHwords\nP7\nL7",
        "SERROR\nC\nM",
        "SERROR\nVERROR\nCXX000\nMwords\nP-1",
        "SFATAL\nC08P01\nMno such user",
        "SFATAL\nC08P01\nMserver conn crashed?",
        "SFATAL\nC08P01\nMSSL required",
        "SFATAL\nC08P01\nMPQexec disallowed",
        "M",
        "",
    ];
    testbed_fuzz::fuzz!(words, seeds, |text| {
        let fields: String = text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| format!("{}\0", line.replace('\0', "")))
            .collect();
        let error = answered_with(fields.as_bytes());
        let said = error.as_db_error().is_some();
        let code = error.code().map(|code| code.code().to_owned());
        let cause = error.as_db_error().map(Cause::of_error);
        // What speaks the protocol is not taken for another kind of server.
        assert!(!said || !may_be_foreign(&error), "{text:?}: {error}");
        let (kind, advice) = meaning(&error);
        assert!(
            !advice.is_empty() && (said || kind == ErrorKind::Unavailable),
            "{text:?}"
        );
        let is_refused = SqlError::from(error);
        check(&is_refused, code.as_deref());
        let error = is_refused.clone().into_lock_error();
        assert_eq!(error.is_not_executed(), is_refused.is_not_executed(), "{text:?}");
        let refused = connect_error(answered_with(fields.as_bytes()), "db:5432");
        assert!(refused.is_not_executed(), "{text:?}: {refused:?}");
        match cause {
            Some(cause) => assert_eq!((error.kind(), refused.kind()), (cause.kind(), cause.kind()), "{text:?}"),
            None => assert!(
                error.kind() == ErrorKind::Unavailable && refused.to_string().contains("db:5432"),
                "{text:?}: {refused}"
            ),
        }
    });
}

/// What may be done about an error does not contradict itself.
fn check(error: &SqlError, code: Option<&str>) {
    assert_eq!(error.code(), code);
    assert_eq!(error.is_disconnect(), !error.is_refusal(), "{error}");
    assert_eq!(error.is_not_executed(), error.is_refusal(), "{error}");
    assert!(!error.is_refusal() || code.is_some(), "{error}");
    let repeats = [
        error.is_transient(),
        error.is_unprepared(),
        error.is_locked(),
        error.is_missing_table(),
    ];
    assert!(repeats.iter().filter(|is| **is).count() <= 1, "{error}");
    assert!(!(error.is_denied() && error.is_missing_table()), "{error}");
}
