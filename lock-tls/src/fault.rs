//! The meaning of a failed handshake. No I/O.

use std::fmt::Display;

use lock_core::{Error, ErrorKind};
use rustls::{AlertDescription, CertificateError, Error as Fault};

/// Returns the error for a fault in a connection over TLS. It names the certificate that is wrong. Trying again cures
/// none of these errors. `has_certificate` is true if we have a client certificate.
pub fn fault(fault: &Fault, has_certificate: bool, server: &dyn Display) -> Error {
    use ErrorKind::{Denied, Misconfigured};
    let (kind, message) = match fault {
        Fault::InvalidCertificate(error) => (Misconfigured, of_server(error, server)),
        Fault::AlertReceived(alert) if is_about_client(*alert) && has_certificate => {
            let message = format!(
                "{server} rejects our client certificate: check cert= and the authority that the server trusts"
            );
            (Denied, message)
        }
        Fault::AlertReceived(alert) if is_about_client(*alert) || *alert == AlertDescription::HandshakeFailure => (
            Denied,
            format!("{server} wants a client certificate: set cert= and key="),
        ),
        Fault::InvalidMessage(_) => (
            Misconfigured,
            format!("{server} does not speak TLS: use its TLS port, or a URL without TLS"),
        ),
        _ => (
            Misconfigured,
            format!("TLS with {server} fails: it may have no TLS 1.2 or newer, or need other settings"),
        ),
    };
    Error::new(kind, message).with_source(fault.clone())
}

/// Returns whether this error of a handshake means that the server does not speak TLS.
pub fn is_no_tls(error: &Error) -> bool {
    let fault = error.cause().and_then(|cause| cause.downcast_ref());
    matches!(fault, Some(Fault::InvalidMessage(_)))
}

/// True for the alerts that a server sends about our certificate, or the lack of one. Java servers send
/// `bad_certificate` for both.
fn is_about_client(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

fn of_server(error: &CertificateError, server: &dyn Display) -> String {
    use CertificateError as E;
    let what = match error {
        // The second: of an authority of the same name with another key, as one made anew has.
        E::UnknownIssuer | E::BadSignature => {
            "was not issued by a trusted authority: name the authority's certificate with ca="
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "is for another host: use a host name or an address that it names"
        }
        E::Expired | E::ExpiredContext { .. } => "has expired: renew it",
        E::NotValidYet | E::NotValidYetContext { .. } => "is not valid yet: check the clocks and its dates",
        E::Revoked => "was revoked: renew it",
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "is not for a server: issue one with the usage serverAuth"
        }
        _ => "cannot be verified: issue another one",
    };
    format!("the certificate of {server} {what}")
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    fn told(of: Fault, has_certificate: bool) -> (ErrorKind, String) {
        let error = fault(&of, has_certificate, &"Redis at cache:6380");
        assert!(!error.is_retryable(), "{error}");
        (error.kind(), error.to_string())
    }

    #[test]
    fn it_is_said_which_certificate_is_wrong() {
        use ErrorKind::{Denied, Misconfigured};
        let alert = Fault::AlertReceived;
        let server = Fault::InvalidCertificate;
        for (of, has_certificate, kind, said) in [
            (
                server(CertificateError::UnknownIssuer),
                false,
                Misconfigured,
                "the certificate of Redis at cache:6380 was not issued",
            ),
            (server(CertificateError::Expired), true, Misconfigured, "has expired"),
            (
                server(CertificateError::NotValidForName),
                true,
                Misconfigured,
                "for another host",
            ),
            (
                alert(AlertDescription::CertificateRequired),
                false,
                Denied,
                "wants a client certificate",
            ),
            (
                alert(AlertDescription::BadCertificate),
                false,
                Denied,
                "wants a client certificate",
            ),
            (
                alert(AlertDescription::HandshakeFailure),
                false,
                Denied,
                "wants a client certificate",
            ),
            (
                alert(AlertDescription::UnknownCA),
                true,
                Denied,
                "rejects our client certificate",
            ),
            (
                alert(AlertDescription::CertificateExpired),
                true,
                Denied,
                "rejects our client certificate",
            ),
            (
                alert(AlertDescription::ProtocolVersion),
                true,
                Misconfigured,
                "no TLS 1.2",
            ),
            (
                Fault::InvalidMessage(InvalidMessage::InvalidContentType),
                false,
                Misconfigured,
                "does not speak TLS",
            ),
        ] {
            let (told, message) = told(of, has_certificate);
            assert!(told == kind && message.contains(said), "{told:?} {message}");
        }
    }
}
