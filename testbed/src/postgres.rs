//! PostgreSQL.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Certificates, Clock, Disk, Edition, Error, data, locate, preload};

pub(crate) mod pgbouncer;
pub(crate) mod standby;
mod template;

use standby::Standbys;

/// A PostgreSQL to start, with one superuser and one empty database. A commit survives [`Server::kill`].
#[derive(Debug, Clone)]
pub struct Postgres {
    edition: Edition,
    user: String,
    password: String,
    database: String,
    /// Names and passwords.
    roles: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    clock: Option<Clock>,
    tls: Option<Certificates>,
    disk: Option<Disk>,
}

impl Postgres {
    /// The distribution's own, with the user "app", the password "secret" and the database "app".
    pub fn new() -> Self {
        Self {
            edition: Edition::Postgres,
            user: "app".into(),
            password: "secret".into(),
            database: "app".into(),
            roles: Vec::new(),
            settings: Vec::new(),
            clock: None,
            tls: None,
            disk: None,
        }
    }

    /// Another one than the distribution's own.
    ///
    /// # Panics
    /// If this edition is no PostgreSQL.
    #[must_use]
    pub fn edition(mut self, edition: Edition) -> Self {
        assert_eq!(edition.own(), Edition::Postgres, "{edition:?} is no PostgreSQL");
        self.edition = edition;
        self
    }

    /// A setting, which wins over those that are there by default: like `("max_connections", "20")`.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Settings that somebody else may need, and that a lock must not depend on: other defaults of transactions, time limits
    /// so short that they end much of what waits, another time zone, and texts that are read and written in other forms.
    #[must_use]
    pub fn hostile(self) -> Self {
        HOSTILE
            .iter()
            .fold(self, |postgres, (name, value)| postgres.setting(*name, *value))
    }

    /// Another user, who may connect and nothing else until somebody grants it.
    #[must_use]
    pub fn role(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.roles.push((name.into(), password.into()));
        self
    }

    /// The user and the password of [`Server::url`]. Default: "app", "secret".
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = user.into();
        self.password = password.into();
        self
    }

    /// The database of [`Server::url`]. Default: "app".
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        self
    }

    /// Lets it run on this clock. Default: the real one.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Serves TLS, and demands of each client TLS and a certificate of this authority. The superuser `postgres` alone may do without,
    /// and needs no password: for what a test does beside its clients.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// Lets it write to this disk. Default: the real one.
    #[must_use]
    pub fn disk(mut self, disk: &Disk) -> Self {
        self.disk = Some(disk.clone());
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }

    /// Starts a primary and standbys that follow it, asynchronously at first. Never those that run already.
    ///
    /// # Errors
    /// Those of [`start`](Self::start), and [`Error::Io`] if a standby does not follow within a minute.
    ///
    /// # Panics
    /// With [`tls`](Self::tls).
    ///
    /// # Cancel safety
    /// If this future is dropped, the servers are ended in the background.
    pub async fn start_replicated(self, standbys: usize) -> Result<Standbys, Error> {
        Standbys::start(self, standbys).await
    }

    /// The rules by which it lets clients in.
    fn admission(&self) -> &'static str {
        match self.tls {
            Some(_) => {
                "host all postgres 127.0.0.1/32 trust\n\
                        hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"
            }
            None => "host all,replication all 127.0.0.1/32 scram-sha-256\n",
        }
    }
}

impl Default for Postgres {
    fn default() -> Self {
        Self::new()
    }
}

impl Recipe for Postgres {
    fn name(&self) -> &'static str {
        self.edition.name()
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
    }

    fn default_port(&self) -> u16 {
        5432
    }

    fn url(&self, port: u16) -> Url {
        let parameters = self.tls.as_ref().map_or_else(String::new, |certificates| {
            format!("?tls=true&{}", certificates.parameters())
        });
        Url::new(
            "postgres",
            Some((&self.user, &self.password)),
            port,
            &format!("/{}{parameters}", self.database),
        )
    }

    fn fill(&self, data: &Path, _port: u16) -> Result<(), Error> {
        let template = template::of(&locate::postgres(self.edition)?, self)?;
        data::copy(&template, data).map_err(Error::io("copying a template"))?;
        fs::write(data.join("pg_hba.conf"), self.admission()).map_err(Error::io("writing pg_hba.conf"))?;
        if let Some(certificates) = &self.tls {
            // It rejects a key that others can read.
            let (_, key) = certificates.server();
            let own = data.join("server.key");
            fs::copy(key, &own).map_err(Error::io("copying a key"))?;
            let private = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&own, private).map_err(Error::io("hiding a key"))?;
            hand_over(&own)?;
        }
        make_private(data)
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        // A run before this one that was killed has left its own, and it may name a process that runs.
        let _ = fs::remove_file(data.join("postmaster.pid"));
        let mut command = Command::new(locate::postgres(self.edition)?.join("bin/postgres"));
        command.arg("-D").arg(data);
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("port", &port.to_string());
        set("listen_addresses", "127.0.0.1");
        set("unix_socket_directories", "");
        set("max_connections", "500");
        // As a pooler of transactions needs one, and so long that no test meets it.
        set("lock_timeout", "10min");
        // What many servers on one machine can do without.
        set("shared_buffers", "8MB");
        set("max_wal_size", "32MB");
        set("min_wal_size", "4MB");
        set("autovacuum_naptime", "10s");
        // Where it goes with the data directory, also when the server is killed.
        set("dynamic_shared_memory_type", "mmap");
        if let Some(certificates) = &self.tls {
            set("ssl", "on");
            set("ssl_ca_file", &certificates.ca().display().to_string());
            set("ssl_cert_file", &certificates.server().0.display().to_string());
            set("ssl_key_file", "server.key");
        }
        for (name, value) in &self.settings {
            set(name, value);
        }
        preload::load(&mut command, self.clock.as_ref(), self.disk.as_ref());
        preload::add(&mut command, &data.join(LIBRARY));
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // Its first line is the number of the process, its eighth the state.
        fs::read_to_string(run.data.join("postmaster.pid")).is_ok_and(|text| {
            let mut lines = text.lines().map(str::trim);
            lines.next() == Some(&run.pid.to_string()) && lines.nth(6) == Some("ready")
        })
    }
}

/// The library of `process.c` in a data directory. It tells a server how to run in tests.
const LIBRARY: &str = "process.so";
/// The user that it names to root.
const NOBODY: u32 = 65534;

/// What [`Postgres::hostile`] sets.
const HOSTILE: [(&str, &str); 15] = [
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("synchronous_commit", "off"),
    // Milliseconds.
    ("statement_timeout", "1000"),
    ("lock_timeout", "200"),
    ("idle_in_transaction_session_timeout", "1000"),
    ("idle_session_timeout", "2000"),
    // Of POSIX, since these are read from no file: five and a half hours east of Greenwich.
    ("timezone", "<+0530>-05:30"),
    ("datestyle", "German, DMY"),
    ("intervalstyle", "sql_standard"),
    ("bytea_output", "escape"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "off"),
    ("transform_null_equals", "on"),
    ("extra_float_digits", "-15"),
];

const SOURCE: &[u8] = include_bytes!("postgres/process.c");

/// It rejects a data directory that others can read or that is not its user's.
fn make_private(data: &Path) -> Result<(), Error> {
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(data, private).map_err(Error::io("hiding a data directory"))?;
    hand_over(data)
}

fn hand_over(path: &Path) -> Result<(), Error> {
    match rustix::process::geteuid().is_root() {
        true => chown(path, Some(NOBODY), None).map_err(Error::io(format!("changing the owner of {}", path.display()))),
        false => Ok(()),
    }
}
