//! The checks of a configuration, and its limits.

use std::time::Duration;

use lock_core::Result;
use lock_kit::limits::{check_no_nul, check_retention, check_timeouts};
use lock_kit::url::misconfigured;
use sqlx::mysql::MySqlSslMode;

use super::{MySqlConfig, Strategy};
use crate::names::check_table_prefix;

impl MySqlConfig {
    /// Checks what the builder methods could not refuse, for the backend of this strategy.
    pub(crate) fn check_for(&self, strategy: Strategy) -> Result<()> {
        if self.strategy != strategy {
            return Err(misconfigured(match strategy {
                Strategy::Row => "RowLockBackend keeps row locks: leave strategy=lease out, or use LeaseTableBackend",
                Strategy::Lease => "LeaseTableBackend keeps leases: set strategy=lease, or use RowLockBackend",
            }));
        }
        self.check()
    }

    /// Checks what the builder methods could not refuse. No message shows a value: it may be a part of a password.
    pub(crate) fn check(&self) -> Result<()> {
        if self.options.get_socket().is_none() && self.options.get_host().is_empty() {
            return Err(misconfigured("the host is empty: name the server's host or socket"));
        }
        self.check_credentials()?;
        if self.tls.is_some() {
            if self.options.get_socket().is_some() {
                return Err(misconfigured("TLS needs a host: leave it out for a Unix socket"));
            }
            lock_tls::check_host(self.options.get_host())?;
        }
        // The driver would panic if two crypto providers are compiled in.
        if matches!(self.options.get_ssl_mode(), MySqlSslMode::VerifyCa) {
            return Err(misconfigured(
                "the driver's mode VerifyCa leaves the host unverified: use VerifyIdentity",
            ));
        }
        if self.options.get_database().is_none_or(str::is_empty) {
            return Err(misconfigured(
                "no database is named: write mysql://user:password@host:port/database, or call with_database",
            ));
        }
        self.check_no_nul()?;
        check_table_prefix(&self.table)?;
        check_timeouts(self.connect_timeout, self.response_timeout)?;
        check_retention(self.retention)?;
        if self.max_read_only > MAX_READ_ONLY {
            return Err(misconfigured("max_read_only must be from 0s to 365d"));
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.max_connections) {
            return Err(misconfigured(format!(
                "max_connections must be from 1 to {MAX_CONNECTIONS}"
            )));
        }
        Ok(())
    }

    fn check_no_nul(&self) -> Result<()> {
        let options = &self.options;
        let socket = options.get_socket().map(|path| path.as_os_str().as_encoded_bytes());
        let texts = [
            Some(options.get_host()),
            Some(options.get_username()),
            options.get_database(),
            // The driver does not give the password back, so this stands for it.
            self.password_has_nul.then_some("\0"),
        ];
        check_no_nul(texts.into_iter().flatten().map(str::as_bytes).chain(socket))
    }
}

/// As good as for ever.
const MAX_READ_ONLY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most connections that a server can be configured to serve.
const MAX_CONNECTIONS: usize = 100_000;
