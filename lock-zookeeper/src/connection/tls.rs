//! The driver's TLS configuration.

use lock_tls::Tls;
use rustls::crypto::{CryptoProvider, ring};
use zookeeper_client::{Error, TlsCa, TlsCerts, TlsIdentity, TlsOptions};

/// The driver's options, from the files as they are now. A file that cannot be used looks like a lost connection here: the
/// probe says more.
pub(super) async fn options(tls: &Tls) -> Result<TlsOptions, Error> {
    install_provider();
    let unusable = |_: lock_core::Error| Error::ConnectionLoss;
    let ca = tls.ca_pem().await.map_err(unusable)?;
    let mut certificates = TlsCerts::builder().with_ca(TlsCa::from_pem(&ca)?);
    if let Some((certificate, key)) = tls.certificate_pem().await.map_err(unusable)? {
        certificates = certificates.with_identity(TlsIdentity::from_pem(&certificate, &key)?);
    }
    Ok(TlsOptions::new().with_certs(certificates.build()?))
}

/// The driver takes the provider of the process, and panics if there is none and two are compiled in.
fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // If another thread was faster, its provider serves as well.
        let _ = ring::default_provider().install_default();
    }
}
