use super::*;

#[test]
fn kinds_follow_the_numbers() {
    let kinds = [
        (1045, ErrorKind::Denied),
        (1142, ErrorKind::Denied),
        (1049, ErrorKind::Misconfigured),
        (1104, ErrorKind::Misconfigured),
        (1235, ErrorKind::Misconfigured),
        (1665, ErrorKind::Misconfigured),
        (3159, ErrorKind::Misconfigured),
        (1037, ErrorKind::Unavailable),
        (1040, ErrorKind::Unavailable),
        (1129, ErrorKind::Unavailable),
        (1290, ErrorKind::Unavailable),
        (4031, ErrorKind::Unavailable),
        (1047, ErrorKind::Unavailable),
        (3032, ErrorKind::Unavailable),
        (3100, ErrorKind::Unavailable),
        (3101, ErrorKind::Unavailable),
        (6142, ErrorKind::Unavailable),
        (6143, ErrorKind::Unavailable),
        (9999, ErrorKind::Unexpected),
    ];
    for (code, kind) in kinds {
        assert_eq!(meaning_of(code).0, kind, "{code}");
    }
}

#[test]
fn the_source_stays_typed_and_an_unknown_outcome_retryable() {
    let broken = SqlError::Driver(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()));
    assert!(!broken.is_refusal());
    let error = broken.into_lock_error();
    assert!(error.is_retryable());
    assert!(matches!(
        error.cause().unwrap().downcast_ref(),
        Some(sqlx::Error::Io(_))
    ));
    let error = SqlError::TimedOut(Duration::from_secs(5)).into_lock_error();
    assert!(error.is_retryable());
    assert!(error.cause().unwrap().to_string().contains("5s"));
}

#[test]
fn what_was_never_sent_is_known_not_to_be_executed() {
    for unsent in [SqlError::NotConnected, SqlError::HoldEnded, SqlError::RuntimeShutDown] {
        assert!(unsent.into_lock_error().is_not_executed());
    }
    for unknown in [
        SqlError::Disconnected,
        SqlError::RuntimeNotDriven,
        SqlError::TimedOut(Duration::ZERO),
    ] {
        assert!(!unknown.into_lock_error().is_not_executed());
    }
    let refused = || SqlError::Driver(sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()));
    assert!(refused().into_connect_lock_error().is_not_executed());
    assert!(!refused().into_lock_error().is_not_executed());
}

#[test]
fn garbage_in_place_of_a_greeting_is_somebody_elses_server() {
    let garbage = || SqlError::Driver(sqlx::Error::Protocol("?".into()));
    assert_eq!(garbage().into_connect_lock_error().kind(), ErrorKind::Misconfigured);
    assert_eq!(garbage().into_lock_error().kind(), ErrorKind::Unexpected);
}

fn refused(code: u16) -> SqlError {
    SqlError::Refused {
        code,
        message: String::new(),
    }
}

#[test]
fn what_passes_by_itself_is_no_reason_to_dial_no_more() {
    for code in [1047, 3032] {
        let error = refused(code).into_connect_lock_error();
        assert!(
            matches!(ConnectError::from(error), ConnectError::Transient(_)),
            "{code}"
        );
    }
}

#[test]
fn a_transaction_that_the_server_rolled_back_for_another_is_repeated() {
    assert!(refused(1213).is_deadlock() && refused(3101).is_deadlock());
    assert!(!refused(3100).is_deadlock());
}

/// What was under way may have been executed.
#[test]
fn a_server_that_goes_offline_ends_the_connection() {
    for code in [3032, 6142, 6143] {
        assert!(!refused(code).is_refusal() && refused(code).is_disconnect(), "{code}");
    }
    assert!(refused(1047).is_refusal());
}
