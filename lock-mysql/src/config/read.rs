//! Reads the fields of a configuration.

use std::time::Duration;

use lock_tls::Tls;
use sqlx::mysql::MySqlConnectOptions;

use super::{Checks, MySqlConfig};

impl MySqlConfig {
    pub(crate) fn options(&self) -> &MySqlConnectOptions {
        &self.options
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(crate) fn retention(&self) -> Duration {
        self.retention
    }

    pub(crate) fn max_read_only(&self) -> Duration {
        self.max_read_only
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    pub(crate) fn is_single_writer(&self) -> bool {
        self.single_writer
    }

    pub(crate) fn checks(&self) -> Checks {
        self.checks
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The server's address with the database and the table, for comparison with others.
    pub(crate) fn server_and_database(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        format!("mysql {}/{database}/{}", self.address().to_lowercase(), self.table)
    }

    /// The server's address, for error messages.
    pub(crate) fn address(&self) -> String {
        match self.options.get_socket() {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }
}
