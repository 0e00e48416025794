//! The certificate files.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use lock_core::{Error, ErrorKind, Result};
use pem::Pem;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::Tls;

/// A configuration for one connection, from the files as they are now.
pub(crate) async fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>> {
    let tls = tls.clone();
    blocking(move || {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| misconfigured("TLS cannot be set up").with_source(error))?
            .with_root_certificates(roots(&tls)?);
        let Some((certificate, key)) = tls.certificate() else {
            return Ok(Arc::new(config.with_no_client_auth()));
        };
        let chain = certificates("cert", certificate)?;
        let private = PrivateKeyDer::from_pem_slice(&read("key", key)?).map_err(|error| {
            let message = format!("key={} has no private key in PEM that is not encrypted", key.display());
            misconfigured(message).with_source(error)
        })?;
        let config = config.with_client_auth_cert(chain, private).map_err(|error| {
            let message = format!(
                "key={} is not the private key of cert={}",
                key.display(),
                certificate.display()
            );
            misconfigured(message).with_source(error)
        })?;
        Ok(Arc::new(config))
    })
    .await
}

/// The trusted authorities in PEM.
pub(crate) async fn ca_pem(tls: &Tls) -> Result<String> {
    let ca = tls.ca().map(Path::to_owned);
    blocking(move || match ca {
        Some(file) => read_text("ca", &file),
        None => native_roots().map(|roots| {
            let pem = |root: &CertificateDer<'_>| Pem::new("CERTIFICATE", root.as_ref()).to_string();
            roots.iter().map(pem).collect()
        }),
    })
    .await
}

/// The client certificate and its key in PEM.
pub(crate) async fn certificate_pem(tls: &Tls) -> Result<Option<(String, String)>> {
    let Some((certificate, key)) = tls
        .certificate()
        .map(|(certificate, key)| (certificate.to_owned(), key.to_owned()))
    else {
        return Ok(None);
    };
    blocking(move || Ok(Some((read_text("cert", &certificate)?, read_text("key", &key)?)))).await
}

fn roots(tls: &Tls) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match tls.ca() {
        None => {
            store.add_parsable_certificates(native_roots()?.iter().cloned());
        }
        Some(file) => {
            for certificate in certificates("ca", file)? {
                store.add(certificate).map_err(|error| {
                    let message = format!("ca={} has a certificate that cannot be used", file.display());
                    misconfigured(message).with_source(error)
                })?;
            }
        }
    }
    Ok(store)
}

/// The authorities that the operating system trusts. They are read once: that takes some milliseconds.
fn native_roots() -> Result<&'static [CertificateDer<'static>]> {
    static ROOTS: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let error = misconfigured(
            "the operating system has no trusted certificates: install them (ca-certificates), or name an authority with ca=",
        );
        return Err(match found.errors.into_iter().next() {
            Some(cause) => error.with_source(cause),
            None => error,
        });
    }
    // One that cannot be parsed is of no use, and no reason to refuse the others.
    let is_usable = |root: &CertificateDer<'static>| RootCertStore::empty().add(root.clone()).is_ok();
    Ok(ROOTS.get_or_init(|| found.certs.into_iter().filter(is_usable).collect()))
}

fn certificates(parameter: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(parameter, file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(misconfigured(format!(
            "{parameter}={} has no certificate in PEM",
            file.display()
        ))),
        Err(error) => {
            let message = format!("{parameter}={} is no PEM file", file.display());
            Err(misconfigured(message).with_source(error))
        }
    }
}

fn read(parameter: &str, file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| {
        let message = format!("{parameter}={} cannot be read", file.display());
        misconfigured(message).with_source(error)
    })
}

/// The sections of a PEM file are ASCII. What stands between them means nothing, and may have another encoding.
fn read_text(parameter: &str, file: &Path) -> Result<String> {
    read(parameter, file).map(|text| String::from_utf8_lossy(&text).into_owned())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = "the certificate files were not read: the tokio runtime is shutting down";
        Err(Error::new(ErrorKind::Unavailable, message).with_source(error))
    })
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let error = roots(&Tls::new().with_ca(file.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        error.to_string()
    }

    #[test]
    fn a_file_without_a_usable_authority_is_named() {
        let section = |content: &str| format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n");
        for (text, why) in [
            (String::new(), "has no certificate in PEM"),
            (section("*"), "is no PEM file"),
            (section("AAAA"), "has a certificate that cannot be used"),
        ] {
            let error = refused(&text);
            assert!(error.contains("ca=") && error.contains(why), "{error}");
        }
    }
}
