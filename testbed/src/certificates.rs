//! Certificates for servers with TLS, made for a test.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use crate::watchdog::Watchdog;
use crate::{Error, data};

/// A private certificate authority, and the certificates that it issued: PEM files that go with the last clone of this.
///
/// All certificates are for `localhost` and `127.0.0.1`.
#[derive(Debug, Clone)]
pub struct Certificates {
    dir: Arc<Watchdog>,
}

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It has expired.
    Expired,
    /// It is for another host.
    OtherHost,
}

const HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

impl Certificates {
    /// Makes an authority, a certificate for a server, and one for a client.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new() -> Result<Self, Error> {
        Self::issue(None)
    }

    /// The same with a flaw in the server's certificate.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn with_flaw(flaw: Flaw) -> Result<Self, Error> {
        Self::issue(Some(flaw))
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The client's certificate and its key.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.path("client.pem"), self.path("client.key"))
    }

    /// The server's certificate and its key.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.path("server.pem"), self.path("server.key"))
    }

    /// The server's key and certificate in one file, as Java reads them.
    pub(crate) fn key_store(&self) -> PathBuf {
        self.path("server.store.pem")
    }

    /// The parameters of a URL that names the authority and the client's certificate.
    pub fn parameters(&self) -> String {
        let (certificate, key) = self.client();
        let [ca, certificate, key] = [self.ca(), certificate, key].map(|file| file.display().to_string());
        format!("ca={ca}&cert={certificate}&key={key}")
    }

    fn issue(flaw: Option<Flaw>) -> Result<Self, Error> {
        let made = Self {
            dir: Arc::new(Watchdog::start(&data::base(), "certificates")?),
        };
        let mut authority = params("polylock's test authority", &[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        made.write("ca.pem", &authority.self_signed(&key).map_err(failed)?.pem())?;
        let authority = Issuer::new(authority, key);

        let mut server = match flaw {
            Some(Flaw::OtherHost) => params("server", &["elsewhere.example"])?,
            _ => params("server", &HOSTS)?,
        };
        if flaw == Some(Flaw::Expired) {
            (server.not_before, server.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        made.write_issued("server", &server, &authority)?;
        let mut client = params("client", &HOSTS)?;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        made.write_issued("client", &client, &authority)?;
        Ok(made)
    }

    fn write_issued(&self, name: &str, params: &CertificateParams, by: &Issuer<'_, KeyPair>) -> Result<(), Error> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, by).map_err(failed)?.pem();
        self.write(&format!("{name}.pem"), &certificate)?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        self.write(&format!("{name}.store.pem"), &(key.serialize_pem() + &certificate))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.path(name), text).map_err(Error::io(format!("writing {name}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.dir().join(name)
    }
}

fn params(name: &str, hosts: &[&str]) -> Result<CertificateParams, Error> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn failed(error: rcgen::Error) -> Error {
    Error::io("making a certificate")(std::io::Error::other(error))
}
