//! A primary and its standbys.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Index;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{Postgres, make_private};
use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Error, locate, template};

/// Many times what anything takes on an overloaded machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// A primary and standbys that follow it by streaming replication. Clones share them; the last one to be dropped ends them.
///
/// The servers have indexes: 0 is the primary of the beginning. Each is a [`Server`], so that it can be killed, paused and
/// restarted alone. A restarted server is what it was before: a primary that was killed comes back as one, also after another
/// server was [promoted](Self::promote). A standby without data copies that of the server that it [follows](Self::follow).
#[derive(Debug, Clone)]
pub struct Standbys {
    members: Vec<(Server, Follows)>,
}

/// The port of the primary that a server follows, if it is to begin as a standby.
type Follows = Arc<Mutex<Option<u16>>>;

impl Standbys {
    /// Runs statements on a server, and returns the rows of all, with the values of each separated by `|` as in psql.
    ///
    /// # Errors
    /// [`Error::Io`], also with what the server says.
    ///
    /// # Cancel safety
    /// The server may run them to their end.
    pub async fn call(&self, server: usize, sql: &str) -> Result<Vec<String>, Error> {
        let url = self[server].url();
        let asking = || Error::io("asking a PostgreSQL");
        let failed = |error| asking()(io::Error::other(described(&error)));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.map_err(failed)?;
        // It ends with its client.
        tokio::spawn(connection);
        let messages = client.simple_query(sql).await.map_err(failed)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let values: Vec<&str> = (0..row.len()).map(|at| row.get(at).unwrap_or("")).collect();
                Some(values.join("|"))
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Makes a server a standby of another one, whose data replaces its own. Returns when it follows.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Io`] if it does not follow within a minute.
    ///
    /// # Cancel safety
    /// The server may become a standby in the background.
    pub async fn follow(&self, standby: usize, primary: usize) -> Result<(), Error> {
        let (server, follows) = &self.members[standby];
        *lock(follows) = Some(self[primary].port());
        server.restart_without_data().await?;
        // Each names itself by its port.
        let ask = format!(
            "SELECT 1 FROM pg_stat_replication WHERE application_name = '{}' AND state = 'streaming'",
            server.port()
        );
        self.wait_for(primary, &ask, "a standby to follow").await
    }

    /// Has a standby follow its primary no more. It lacks what is written after that. Returns when the primary knows.
    ///
    /// # Errors
    /// [`Error::Io`] with what a server says, or if the standby still follows after a minute.
    ///
    /// # Cancel safety
    /// The standby may be cut off in the background.
    pub async fn fall_behind(&self, standby: usize, primary: usize) -> Result<(), Error> {
        self.call(standby, "ALTER SYSTEM SET primary_conninfo = ''").await?;
        self.call(standby, "SELECT pg_reload_conf()").await?;
        let ask = format!(
            "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = '{}')",
            self[standby].port()
        );
        self.wait_for(primary, &ask, "a standby to fall behind").await
    }

    /// Has each commit of a primary wait until one of its standbys has it, or no commit wait for any. Returns when a standby is
    /// waited for. It stays so when the server is restarted, and is not copied by a standby that follows already.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says, or if no standby follows within a minute.
    ///
    /// # Cancel safety
    /// The server may change in the background.
    pub async fn set_synchronous(&self, primary: usize, synchronous: bool) -> Result<(), Error> {
        let names = if synchronous { "*" } else { "" };
        // It cannot share a text with another statement.
        self.call(
            primary,
            &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"),
        )
        .await?;
        self.call(primary, "SELECT pg_reload_conf()").await?;
        let ask = format!(
            "SELECT 1 WHERE current_setting('synchronous_standby_names') = '{names}' \
             AND {synchronous} = EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"
        );
        self.wait_for(primary, &ask, "a synchronous standby").await
    }

    /// Makes a standby a primary, with whatever it has at this moment. The other servers stay as they are. Returns when it takes
    /// writes.
    ///
    /// # Errors
    /// [`Error::Io`] with what the server says.
    ///
    /// # Cancel safety
    /// The server may become a primary in the background.
    pub async fn promote(&self, standby: usize) -> Result<(), Error> {
        let promoted = self.call(standby, "SELECT pg_promote(true, 60)").await?;
        *lock(&self.members[standby].1) = None;
        match promoted[..] == ["t"] {
            true => Ok(()),
            false => Err(Error::io("promoting a standby")(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn wait_for(&self, server: usize, ask: &str, what: &str) -> Result<(), Error> {
        let start = Instant::now();
        while self.call(server, ask).await?.is_empty() {
            if start.elapsed() > AT_MOST {
                return Err(Error::io(format!("waiting for {what}"))(io::ErrorKind::TimedOut.into()));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub(super) async fn start(postgres: Postgres, standbys: usize) -> Result<Self, Error> {
        assert!(postgres.tls.is_none(), "standbys come without TLS");
        // For a standby that was paused.
        let postgres = postgres.setting("wal_keep_size", "64MB");
        let start = async |follows: Option<u16>| {
            let follows = Arc::new(Mutex::new(follows));
            let member = Member {
                postgres: postgres.clone(),
                follows: Arc::clone(&follows),
            };
            let server = Server::start_own(member).await?;
            Ok((server, follows))
        };
        let primary = start(None).await?;
        let port = primary.0.port();
        let mut members = vec![primary];
        for _ in 0..standbys {
            members.push(start(Some(port)).await?);
        }
        let started = Self { members };
        let ask = format!("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' HAVING count(*) = {standbys}");
        started.wait_for(0, &ask, "standbys to follow").await?;
        Ok(started)
    }
}

impl Index<usize> for Standbys {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.members[index].0
    }
}

fn lock(follows: &Follows) -> std::sync::MutexGuard<'_, Option<u16>> {
    // It is whole at all times.
    follows.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver says "db error" alone.
fn described(error: &tokio_postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// One of the servers.
#[derive(Debug)]
struct Member {
    postgres: Postgres,
    follows: Follows,
}

impl Recipe for Member {
    fn name(&self) -> &'static str {
        self.postgres.name()
    }

    fn url_variable(&self) -> &'static str {
        self.postgres.url_variable()
    }

    fn default_port(&self) -> u16 {
        self.postgres.default_port()
    }

    fn url(&self, port: u16) -> Url {
        self.postgres.url(port)
    }

    fn fill(&self, data: &Path, port: u16) -> Result<(), Error> {
        let Some(primary) = *lock(&self.follows) else {
            return self.postgres.fill(data, port);
        };
        // It demands an empty directory, and copies the rules for clients, too.
        let program = locate::postgres(self.postgres.edition)?.join("bin/pg_basebackup");
        let source = format!("host=127.0.0.1 port={primary} user={}", quoted(&self.postgres.user));
        let mut copy = Command::new(program);
        copy.args(["--checkpoint=fast", "--no-sync", "--dbname", &source, "--pgdata"]);
        copy.arg(data).env("PGPASSWORD", &self.postgres.password);
        template::run(copy, b"", data)?;
        // The last line counts. What a primary waits for is its own.
        let source = format!(
            "{source} password={} application_name={port}",
            quoted(&self.postgres.password)
        );
        let settings = format!(
            "primary_conninfo = {}\nsynchronous_standby_names = ''\n",
            quoted(&source)
        );
        let changing = || Error::io("making a standby");
        let mut file = File::options()
            .append(true)
            .open(data.join("postgresql.auto.conf"))
            .map_err(changing())?;
        file.write_all(settings.as_bytes()).map_err(changing())?;
        fs::write(data.join("standby.signal"), "").map_err(changing())?;
        make_private(data)
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        self.postgres.command(data, port)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        self.postgres.is_ready(run)
    }
}

/// For a value of a connection string, or of a file of settings.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}
