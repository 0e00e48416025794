//! The driver's errors, and what each of them means for a lock.

use std::time::Duration;

use lock_core::{Error, ErrorKind};
use lock_kit::panics::catch;
use zookeeper_client::Error as DriverError;

use crate::connection::MAX_PATH_BYTES;

/// The pause before a request is repeated, so that an odd answer cannot make a busy loop.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The effect of a driver's error on the request that failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server rejected it: it has not taken effect and will not.
    Rejected,
    /// It may have taken effect.
    Ambiguous,
    /// It may have taken effect, and the session that sent it has ended.
    SessionEnded,
}

pub(crate) fn classify(error: &DriverError) -> Failure {
    match error {
        DriverError::NoNode
        | DriverError::NoAuth
        | DriverError::BadVersion
        | DriverError::NoChildrenForEphemerals
        | DriverError::NodeExists
        | DriverError::NotEmpty
        | DriverError::InvalidAcl
        | DriverError::NotReadOnly
        | DriverError::QuotaExceeded
        | DriverError::MarshallingError
        | DriverError::Unimplemented
        | DriverError::BadArguments(_)
        | DriverError::UnexpectedErrorCode(_) => Failure::Rejected,
        DriverError::SessionExpired | DriverError::AuthFailed | DriverError::ClientClosed => Failure::SessionEnded,
        // A throttled request can be sent again like a lost one. And the driver reports a connection's end in many ways,
        // io errors and its own timeouts among them.
        _ => Failure::Ambiguous,
    }
}

/// The error for the caller of a request.
pub(crate) fn lock_error(error: DriverError) -> Error {
    let (kind, message) = match error {
        DriverError::NoAuth => (
            ErrorKind::Denied,
            "ZooKeeper refuses access: check user and password, and that they have READ and CREATE on the root path",
        ),
        DriverError::AuthFailed => (
            ErrorKind::Denied,
            "ZooKeeper refuses the credentials: check user, password and the server's authentication providers, for SASL its \
             section Server of the JAAS configuration as well",
        ),
        DriverError::QuotaExceeded => (
            ErrorKind::Misconfigured,
            "the quota on the root path is used up: raise it",
        ),
        DriverError::NoChildrenForEphemerals => (
            ErrorKind::Misconfigured,
            "an ephemeral node is in the root path: remove it, or use another root path",
        ),
        DriverError::InvalidAcl => (
            ErrorKind::Misconfigured,
            "ZooKeeper does not authenticate by this scheme: enable its provider for digest, or for SASL with a JAAS configuration",
        ),
        DriverError::Unimplemented => (
            ErrorKind::Misconfigured,
            "the server is older than ZooKeeper 3.5.3: container nodes are missing",
        ),
        DriverError::Throttled => (ErrorKind::Unavailable, "ZooKeeper is overloaded and throttles requests"),
        ref other => match classify(other) {
            Failure::Rejected => (
                ErrorKind::Unexpected,
                "ZooKeeper refused a request in an unexpected way",
            ),
            Failure::Ambiguous => (ErrorKind::Unavailable, "the connection to ZooKeeper broke"),
            Failure::SessionEnded => (ErrorKind::Unavailable, "the ZooKeeper session ended"),
        },
    };
    Error::new(kind, message).with_source(error)
}

/// The server does not permit this on the root path.
pub(crate) fn no_permission(permission: &str, root: &str) -> Error {
    let message = format!(
        "ZooKeeper denies {permission} on the root path {root}: check user and password, and grant them READ and CREATE on it"
    );
    Error::new(ErrorKind::Denied, message).with_source(DriverError::NoAuth)
}

/// There is no root path, and we may not create it.
pub(crate) fn no_root(root: &str) -> Error {
    let message = format!(
        "the root path {root} does not exist, and ZooKeeper denies CREATE on its nearest parent: grant it, or create the path and \
         grant READ and CREATE on it"
    );
    Error::new(ErrorKind::Denied, message).with_source(DriverError::NoAuth)
}

/// The error for the caller of a request that was certainly not executed.
pub(crate) fn rejected(error: DriverError) -> Error {
    lock_error(error).not_executed()
}

/// There is no connection, for this reason.
pub(crate) fn connection_lost(why: Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the connection to ZooKeeper broke").with_source(why)
}

pub(crate) fn session_ended(why: Option<Error>) -> Error {
    let error = Error::new(ErrorKind::Unavailable, "the ZooKeeper session ended");
    caused(error, why)
}

pub(crate) fn no_answer(after: Duration, why: Option<Error>) -> Error {
    let message = format!("ZooKeeper gave no answer within {after:?}");
    caused(Error::new(ErrorKind::Unavailable, message), why)
}

/// The request was given up before the server answered.
pub(crate) fn given_up(why: Option<Error>) -> Error {
    let error = Error::new(ErrorKind::Unavailable, "given up before ZooKeeper answered");
    caused(error, why)
}

pub(crate) fn runtime_ends() -> Error {
    let message = "this tokio runtime is shutting down and runs no task that could keep a ZooKeeper session";
    Error::new(ErrorKind::Unavailable, message).not_executed()
}

pub(crate) fn unreachable(servers: &[String], after: Duration, cause: Option<Error>) -> Error {
    let message = format!(
        "no session with ZooKeeper at {} within {after:?}: is it running?",
        servers.join(",")
    );
    caused(Error::new(ErrorKind::Unavailable, message), cause)
}

/// A session could not be closed in time.
pub(crate) fn not_closed(after: Duration) -> Error {
    let message = format!("a ZooKeeper session was not closed within {after:?}; it ends with its timeout");
    Error::new(ErrorKind::Unavailable, message)
}

/// No session has room for another node.
pub(crate) fn sessions_full(sessions: usize) -> Error {
    let message = format!(
        "this process has {} KiB of node paths in each of its {sessions} ZooKeeper sessions, and more could hurt the \
         ensemble when a session ends: raise `sessions`, hold fewer locks at a time, or shorten their names",
        MAX_PATH_BYTES / 1024
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn caused(error: Error, cause: Option<Error>) -> Error {
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

pub(crate) fn ttl_too_short(ttl: Duration, timeout: Duration) -> Error {
    let message = format!(
        "the ttl of {ttl:?} is shorter than the session timeout of {timeout:?} that the server granted, which a dead \
         client's hold survives: raise the ttl, or lower session_timeout and the server's minSessionTimeout"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

/// Runs `work`. If it panics, the panic's text is the error's source.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, Error> {
    let message = "a background task of the ZooKeeper backend panicked: please report it";
    let caught = catch(work).await;
    caught.map_err(|text| Error::new(ErrorKind::Unexpected, message).with_source(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_servers_rejection_is_a_known_outcome() {
        assert_eq!(classify(&DriverError::NoNode), Failure::Rejected);
        assert_eq!(classify(&DriverError::ConnectionLoss), Failure::Ambiguous);
        assert_eq!(classify(&DriverError::SessionMoved), Failure::Ambiguous);
        assert_eq!(classify(&DriverError::Throttled), Failure::Ambiguous);
        assert_eq!(
            classify(&DriverError::UnexpectedError("BUG".to_owned())),
            Failure::Ambiguous
        );
        assert_eq!(classify(&DriverError::SessionExpired), Failure::SessionEnded);
    }

    #[test]
    fn kinds_and_sources() {
        let error = lock_error(DriverError::NoAuth);
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
        let source = error.cause().and_then(|source| source.downcast_ref::<DriverError>());
        assert_eq!(source, Some(&DriverError::NoAuth));
        assert!(lock_error(DriverError::ConnectionLoss).is_retryable());
        assert!(lock_error(DriverError::SessionExpired).is_retryable());
        assert!(lock_error(DriverError::Throttled).is_retryable());
        assert!(!lock_error(DriverError::MarshallingError).is_retryable());
    }

    #[test]
    fn what_an_administrator_has_to_change_is_said() {
        for (error, advice) in [
            (DriverError::QuotaExceeded, "raise it"),
            (DriverError::NoChildrenForEphemerals, "use another root path"),
            (DriverError::InvalidAcl, "enable its provider"),
            (DriverError::Unimplemented, "older than ZooKeeper 3.5.3"),
        ] {
            let error = lock_error(error);
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
