//! TLS in a URL, spelled alike for every backend.

use std::path::PathBuf;

use lock_core::{Error, ErrorKind, Result};

use crate::Tls;

/// The parameters `tls`, `ca`, `cert` and `key` of a URL, as they are read one by one.
///
/// ```
/// # fn main() -> Result<(), lock_core::Error> {
/// use lock_tls::{Tls, TlsParameters};
/// let mut parameters = TlsParameters::default();
/// assert!(parameters.read("tls", "true")? && parameters.read("ca", "ca.pem")?);
/// assert!(!parameters.read("prefix", "shop:")?); // not one of TLS
/// assert_eq!(parameters.finish()?, Some(Tls::new().with_ca("ca.pem")));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct TlsParameters {
    is_wanted: Option<bool>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl TlsParameters {
    /// The URL's scheme asks for TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if `tls=false` was read.
    pub fn want(&mut self) -> Result<()> {
        match self.is_wanted {
            Some(false) => Err(misconfigured("the URL asks for TLS and refuses it: choose one")),
            _ => {
                self.is_wanted = Some(true);
                Ok(())
            }
        }
    }

    /// Reads a parameter of the URL, its value decoded. Returns whether it is one of TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for a value that cannot be. The error does not show the value.
    pub fn read(&mut self, name: &str, value: &str) -> Result<bool> {
        match (name, value) {
            ("tls", "true") => self.want()?,
            ("tls", "false") if self.is_wanted == Some(true) => {
                return Err(misconfigured("the URL asks for TLS and refuses it: choose one"));
            }
            ("tls", "false") => self.is_wanted = Some(false),
            ("tls", _) => return Err(misconfigured("the value of tls in the URL must be true or false")),
            ("ca" | "cert" | "key", "") => {
                return Err(misconfigured(format!("{name} in the URL is empty: name a PEM file")));
            }
            ("ca", file) => self.ca = Some(file.into()),
            ("cert", file) => self.certificate = Some(file.into()),
            ("key", file) => self.key = Some(file.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns whether `tls=false` was read.
    pub fn is_refused(&self) -> bool {
        self.is_wanted == Some(false)
    }

    /// Returns the TLS that the parameters ask for: `None` for a connection without TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] for files without TLS, or a certificate without a key.
    pub fn finish(self) -> Result<Option<Tls>> {
        let Self {
            is_wanted,
            ca,
            certificate,
            key,
        } = self;
        if is_wanted != Some(true) {
            return match ca.or(certificate).or(key) {
                Some(_) => Err(misconfigured("ca, cert and key in the URL need TLS: add tls=true")),
                None => Ok(None),
            };
        }
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(misconfigured(
                    "a client certificate needs cert and key in the URL: set both",
                ));
            }
        };
        Ok(Some(Tls { ca, certificate }))
    }
}

fn misconfigured(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &[(&str, &str)]) -> Result<Option<Tls>> {
        let mut read = TlsParameters::default();
        for (name, value) in parameters {
            assert!(read.read(name, value)?, "{name}");
        }
        read.finish()
    }

    #[test]
    fn files_without_tls_and_halves_of_a_certificate_are_refused() {
        for (parameters, said) in [
            (&[("ca", "f")][..], "add tls=true"),
            (&[("tls", "false"), ("cert", "f")], "add tls=true"),
            (&[("tls", "true"), ("cert", "f")], "set both"),
            (&[("tls", "true"), ("key", "f")], "set both"),
            (&[("tls", "maybe")], "must be true or false"),
            (&[("tls", "true"), ("ca", "")], "ca in the URL is empty"),
        ] {
            let error = read(parameters).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!(read(&[("tls", "false")]).unwrap(), None);
        let full = read(&[("tls", "true"), ("key", "k"), ("cert", "c")]).unwrap();
        assert_eq!(full, Some(Tls::new().with_certificate("c", "k")));
    }

    #[test]
    fn a_scheme_and_a_parameter_must_agree() {
        let mut parameters = TlsParameters::default();
        parameters.want().unwrap();
        assert!(parameters.read("tls", "false").is_err());
        let mut parameters = TlsParameters::default();
        parameters.read("tls", "false").unwrap();
        assert!(parameters.want().is_err());
    }
}
