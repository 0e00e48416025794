//! How a Sentinel is run.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::MASTER;
use crate::port::Port;
use crate::recipe::{Recipe, Run};
use crate::redis::command::{call_on, connect};
use crate::redis::tls;
use crate::url::Url;
use crate::{Certificates, Edition, Error, locate};

/// How a Sentinel is run.
#[derive(Debug)]
pub(super) struct Sentinel {
    pub(super) edition: Edition,
    pub(super) master: u16,
    pub(super) password: Option<String>,
    /// With its port without TLS.
    pub(super) tls: Option<(Certificates, Port)>,
}

impl Recipe for Sentinel {
    fn name(&self) -> &'static str {
        "sentinel"
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
    }

    fn default_port(&self) -> u16 {
        26379
    }

    fn url(&self, port: u16) -> Url {
        let password = self.password.as_ref();
        let password = password.map(|password| format!("sentinel_password={password}"));
        let certificates = self.tls.as_ref().map(|(certificates, _)| certificates.parameters());
        let scheme = match &certificates {
            Some(_) => "rediss+sentinel",
            None => "redis+sentinel",
        };
        let parameters: Vec<String> = password.into_iter().chain(certificates).collect();
        let path = match &parameters[..] {
            [] => format!("/{MASTER}"),
            parameters => format!("/{MASTER}?{}", parameters.join("&")),
        };
        Url::new(scheme, None, port, &path)
    }

    fn plain_port(&self) -> Option<u16> {
        self.tls.as_ref().map(|(_, plain)| plain.number())
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        let mut config = format!(
            "bind 127.0.0.1\n\
             port {}\n\
             sentinel monitor {MASTER} 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds {MASTER} 1000\n\
             sentinel failover-timeout {MASTER} 2000\n",
            self.plain_port().unwrap_or(port),
            self.master
        );
        if let Some((certificates, _)) = &self.tls {
            for (directive, argument) in tls::settings(certificates, port) {
                config += &format!("{directive} {argument}\n");
            }
        }
        if let Some(password) = &self.password {
            config += &format!("requirepass {password}\nsentinel sentinel-pass {password}\n");
        }
        fs::write(data.join("sentinel.conf"), config).map_err(Error::io("writing sentinel.conf"))
    }

    fn command(&self, data: &Path, _port: u16) -> Result<Command, Error> {
        let mut command = Command::new(locate::redis(self.edition)?);
        command.arg(data.join("sentinel.conf")).arg("--sentinel");
        command.arg("--dir").arg(data);
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // A Sentinel does not know QUIT, which others are asked with.
        let info = connect(self.plain_port().unwrap_or(run.port)).and_then(|stream| {
            if let Some(password) = &self.password {
                call_on(&stream, &["AUTH", password])?;
            }
            call_on(&stream, &["INFO", "server"])
        });
        info.is_ok_and(|info| info.text().contains(&format!("process_id:{}\r", run.pid)))
    }
}
