//! TLS of servers that also reach each other.

use crate::Certificates;

/// Directives by which a Redis or a Sentinel serves TLS on this port, and reaches others over TLS.
pub(super) fn settings(certificates: &Certificates, port: u16) -> [(&'static str, String); 7] {
    let (certificate, key) = certificates.server();
    let (client, client_key) = certificates.client();
    [
        ("tls-port", port.to_string()),
        ("tls-cert-file", certificate.display().to_string()),
        ("tls-key-file", key.display().to_string()),
        ("tls-client-cert-file", client.display().to_string()),
        ("tls-client-key-file", client_key.display().to_string()),
        ("tls-ca-cert-file", certificates.ca().display().to_string()),
        // Also of a Sentinel: then it tells clients this port.
        ("tls-replication", "yes".into()),
    ]
}
