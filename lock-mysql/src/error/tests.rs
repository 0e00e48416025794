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
