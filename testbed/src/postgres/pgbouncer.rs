//! PgBouncer.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;

use super::{LIBRARY, SOURCE, make_private};
use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Error, locate, preload};

/// A PgBouncer to start, which lends its connections to a PostgreSQL for a transaction at a time.
#[derive(Debug, Clone)]
pub struct PgBouncer {
    port: u16,
    user: String,
    password: String,
    database: String,
    settings: Vec<(String, String)>,
}

impl PgBouncer {
    /// One in front of the PostgreSQL of this port, with the user "app", the password "secret" and the database "app", and
    /// four connections.
    pub fn of(port: u16) -> Self {
        Self {
            port,
            user: "app".into(),
            password: "secret".into(),
            database: "app".into(),
            settings: Vec::new(),
        }
    }

    /// A setting, which wins over those that are there by default: like `("pool_mode", "session")`.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// The user and the password. Default: "app", "secret".
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = user.into();
        self.password = password.into();
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, it is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        // Never one that runs already: it would lead to another PostgreSQL.
        Server::start_own(self).await
    }

    fn configuration(&self, data: &Path, port: u16) -> String {
        let dir = data.display();
        let mut text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {dir}/users\npidfile = {dir}/pid\n\
             pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 1000\nserver_login_retry = 1\n",
            self.port
        );
        // The last of two lines counts.
        for (name, value) in &self.settings {
            text += &format!("{name} = {value}\n");
        }
        text
    }
}

impl Recipe for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn url_variable(&self) -> &'static str {
        "POLYLOCK_PGBOUNCER_URL"
    }

    fn default_port(&self) -> u16 {
        6432
    }

    fn url(&self, port: u16) -> Url {
        Url::new(
            "postgres",
            Some((&self.user, &self.password)),
            port,
            &format!("/{}", self.database),
        )
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        let write =
            |name: &str, text: &str| fs::write(data.join(name), text).map_err(Error::io("configuring PgBouncer"));
        write("ini", &self.configuration(data, port))?;
        write("users", &format!("{} {}\n", quoted(&self.user), quoted(&self.password)))?;
        preload::compile(SOURCE, &data.join(LIBRARY))?;
        make_private(data)
    }

    fn command(&self, data: &Path, _port: u16) -> Result<Command, Error> {
        // It does not start beside that of a run before this one.
        let _ = fs::remove_file(data.join("pid"));
        let mut command = Command::new(locate::pgbouncer()?);
        command.arg(data.join("ini"));
        preload::add(&mut command, &data.join(LIBRARY));
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        fs::read_to_string(run.data.join("pid")).is_ok_and(|pid| pid.trim() == run.pid.to_string())
            && TcpStream::connect((Ipv4Addr::LOCALHOST, run.port)).is_ok()
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
