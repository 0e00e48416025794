//! TLS for the backends of polylock.
//!
//! [`Tls`] names the certificate files. [`Tls::connect`] makes a handshake, [`fault`] says what an error in one means. The crypto
//! provider is ring, and it is passed to each connection: a provider that the application installed for its process, or the
//! lack of one, changes nothing.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub use fault::{fault, is_no_tls};
pub use parameters::TlsParameters;
pub use stream::{FaultRecord, TlsStream};

mod fault;
mod files;
mod parameters;
mod stream;

/// The certificates of TLS: those that a connection trusts, and the client's own.
///
/// A connection with these settings verifies the server's certificate: its issuer, its dates, and that it is for the host in the
/// configuration, which may be an IP address.
///
/// ```
/// use lock_tls::Tls;
/// let tls = Tls::new().with_ca("/etc/polylock/ca.pem").with_certificate("client.pem", "client.key");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Trusts the authorities of the operating system, and has no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM file, and no others. Defaults to those of the operating system. MySQL's driver also trusts
    /// the public authorities of Mozilla's list, in both cases.
    ///
    /// The file is read for each new connection, so that it may be replaced while the program runs.
    #[must_use]
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Shows the server this client certificate: PEM files of the certificate, with the intermediate ones behind it, and of
    /// its private key, which must not be encrypted. Defaults to none.
    ///
    /// The files are read for each new connection, so that they may be replaced while the program runs.
    #[must_use]
    pub fn with_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The file of the trusted authorities, unless they are those of the operating system.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// The files of the client certificate and of its key.
    pub fn certificate(&self) -> Option<(&Path, &Path)> {
        let (certificate, key) = self.certificate.as_ref()?;
        Some((certificate, key))
    }

    /// Makes a handshake over `stream` with the server of this host name or IP address, which errors call `server`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] or [`ErrorKind::Denied`] for a fault that trying again does not mend: it says which
    /// certificate or file is wrong. [`ErrorKind::Unavailable`] if the connection ended.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn connect<S>(&self, host: &str, stream: S, server: &(dyn Display + Sync)) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = server_name(host)?;
        let config = files::client_config(self).await?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Ok(TlsStream::new(stream)),
            Err(error) => Err(self.fault(&error, server).unwrap_or_else(|| {
                let message = format!("{server} ended the connection during the TLS handshake");
                Error::new(ErrorKind::Unavailable, message).with_source(error)
            })),
        }
    }

    /// Why the server refuses us. Makes a connection of its own, sends nothing after the handshake, and listens for at most
    /// `limit`: a server may check the client certificate after the handshake has ended for the client. `None` if the server
    /// accepts us, or cannot be reached.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn refusal(
        &self,
        host: &str,
        port: u16,
        server: &(dyn Display + Sync),
        limit: Duration,
    ) -> Option<Error> {
        let refusal = async {
            let stream = TcpStream::connect((host, port)).await.ok()?;
            let mut stream = match self.connect(host, stream, server).await {
                Ok(stream) => stream,
                Err(error) => return Some(error).filter(|error| error.kind() != ErrorKind::Unavailable),
            };
            let error = stream.read(&mut [0]).await.err()?;
            self.fault(&error, server)
        };
        timeout(limit, refusal).await.ok().flatten()
    }

    /// Returns the meaning of an I/O error of a connection over TLS: see [`fault`].
    pub fn fault(&self, error: &io::Error, server: &dyn Display) -> Option<Error> {
        let fault = error.get_ref()?.downcast_ref()?;
        Some(fault::fault(fault, self.certificate.is_some(), server))
    }

    /// Reads the files, and makes sure that they can be used.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] names the file.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn check(&self) -> Result<()> {
        files::client_config(self).await.map(drop)
    }

    /// The trusted authorities in PEM.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] names the file.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn ca_pem(&self) -> Result<String> {
        files::ca_pem(self).await
    }

    /// The client certificate and its key in PEM.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] names the file.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn certificate_pem(&self) -> Result<Option<(String, String)>> {
        files::certificate_pem(self).await
    }
}

/// Makes sure that a certificate can be for this host: a name or an IP address, without a scope.
///
/// # Errors
/// [`ErrorKind::Misconfigured`].
pub fn check_host(host: &str) -> Result<()> {
    server_name(host).map(drop)
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|error| {
        let message = "no certificate can be for this host: TLS needs a host name or an IP address";
        Error::new(ErrorKind::Misconfigured, message).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_can_be_for_names_and_addresses() {
        for host in ["cache", "cache.example.com", "my_cache", "127.0.0.1", "::1"] {
            check_host(host).unwrap();
        }
        // A driver would panic.
        for host in ["", "a..b", "fe80::1%eth0", "[::1]", "cache:6379", "ü"] {
            let error = check_host(host).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{host}: {error}");
        }
    }
}
