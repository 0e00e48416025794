//! MariaDB and MySQL.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::locate::{Maker, Sql};
use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Certificates, Clock, Disk, Edition, Error, data, locate, preload};

pub(crate) mod template;

/// A MariaDB or a MySQL to start, with one user, who may do everything, and one empty database. A commit survives
/// [`Server::kill`].
#[derive(Debug, Clone)]
pub struct MariaDb {
    edition: Edition,
    user: String,
    password: String,
    database: String,
    options: Vec<String>,
    clock: Option<Clock>,
    tls: Option<Certificates>,
    disk: Option<Disk>,
    zone: Option<String>,
}

impl MariaDb {
    /// The distribution's own MariaDB, with the user "app", the password "secret" and the database "app".
    pub fn new() -> Self {
        Self {
            edition: Edition::MariaDb,
            user: "app".into(),
            password: "secret".into(),
            database: "app".into(),
            options: Vec::new(),
            clock: None,
            tls: None,
            disk: None,
            zone: None,
        }
    }

    /// Another one than the distribution's own: a MySQL.
    ///
    /// # Panics
    /// If this edition is neither a MariaDB nor a MySQL.
    #[must_use]
    pub fn edition(mut self, edition: Edition) -> Self {
        assert_eq!(
            edition.own(),
            Edition::MariaDb,
            "{edition:?} is no MariaDB and no MySQL"
        );
        self.edition = edition;
        self
    }

    /// An option of the server's command line, which wins over those that are there by default: like
    /// "--completion-type=CHAIN".
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// The user and the password of [`Server::url`]. Default: "app", "secret".
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = user.into();
        self.password = password.into();
        self
    }

    /// The database of [`Server::url`]. Letters and digits. Default: "app".
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

    /// Serves TLS besides, demands it of each client of its URL, and that client's certificate of this authority.
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

    /// The time zone of its system, in the form of POSIX, such as "CET-1CEST,M3.5.0,M10.5.0/3". Default: that of this process.
    #[must_use]
    pub fn time_zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
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

    /// Run at every start before the server listens.
    fn init_sql(&self) -> String {
        let account = format!("'{}'@'%'", quoted(&self.user));
        // An option may have changed how strings are read.
        format!(
            "SET SESSION sql_mode='';\n\
             CREATE DATABASE IF NOT EXISTS `{}`;\n\
             CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{}' REQUIRE {};\n\
             GRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
            self.database.replace('`', "``"),
            quoted(&self.password),
            self.tls.as_ref().map_or("NONE", |_| "X509"),
        )
    }
}

impl Default for MariaDb {
    fn default() -> Self {
        Self::new()
    }
}

impl Recipe for MariaDb {
    fn name(&self) -> &'static str {
        self.edition.name()
    }

    fn url_variable(&self) -> &'static str {
        self.edition.variables()[0]
    }

    fn default_port(&self) -> u16 {
        3306
    }

    fn url(&self, port: u16) -> Url {
        // As the driver spells them too.
        let parameters = self.tls.as_ref().map_or_else(String::new, |certificates| {
            let (certificate, key) = certificates.client();
            let [ca, certificate, key] = [certificates.ca(), certificate, key].map(|file| file.display().to_string());
            format!("?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}&ssl-cert={certificate}&ssl-key={key}")
        });
        Url::new(
            "mysql",
            Some((&self.user, &self.password)),
            port,
            &format!("/{}{parameters}", self.database),
        )
    }

    fn is_slow_to_start(&self) -> bool {
        true
    }

    fn fill(&self, data: &Path, _port: u16) -> Result<(), Error> {
        let template = template::of(&locate::sql(self.edition)?, &self.options)?;
        data::copy(&template, data).map_err(Error::io("copying a template"))?;
        // A MySQL takes its identity from this file: without it, it makes one of its own. A MariaDB has none.
        let _ = fs::remove_file(data.join("auto.cnf"));
        fs::write(data.join("init.sql"), self.init_sql()).map_err(Error::io("writing init.sql"))
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        // A run before this one that was killed has left its own.
        let _ = fs::remove_file(data.join("pid"));
        let sql = locate::sql(self.edition)?;
        let mut command = server(&sql, data);
        command
            .arg(format!("--port={port}"))
            .arg(option("--init-file=", &data.join("init.sql")));
        // A path of a socket may have 107 bytes.
        command.arg("--socket=s").arg(option("--pid-file=", &data.join("pid")));
        command.args([
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--max-connections=500",
        ]);
        // 2: a commit is the kernel's before it is acknowledged; only a crash of the machine would lose it.
        command.args([
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=OFF",
            "--skip-log-bin",
        ]);
        if sql.maker == Maker::MySql {
            // Another protocol, on another port; its pool would be as large as all the rest.
            command.args(["--mysqlx=OFF", "--innodb-buffer-pool-size=16M"]);
        }
        if let Some(certificates) = &self.tls {
            let (certificate, key) = certificates.server();
            command
                .arg(option("--ssl-ca=", &certificates.ca()))
                .arg(option("--ssl-cert=", &certificate))
                .arg(option("--ssl-key=", &key));
        }
        command.args(&self.options);
        preload::load(&mut command, self.clock.as_ref(), self.disk.as_ref());
        if let Some(zone) = &self.zone {
            command.env("TZ", zone);
        }
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // Written when it listens: by a MariaDB when init.sql is done, by a MySQL before. It then greets.
        fs::read_to_string(run.data.join("pid")).is_ok_and(|pid| pid.trim() == run.pid.to_string())
            && greets(run.port).is_ok()
    }
}

/// What every run of it needs.
fn server(sql: &Sql, data: &Path) -> Command {
    let mut command = Command::new(&sql.program);
    command
        .arg("--no-defaults")
        .arg(option("--basedir=", &sql.base))
        .arg(option("--datadir=", data));
    // A server that starts removes the temporary files that it finds, those of other running servers included.
    command.arg(option("--tmpdir=", data));
    command
        .arg(option("--lc-messages-dir=", &sql.share))
        .arg(option("--plugin-dir=", &sql.plugins));
    // Also when its data is copied, these may not differ between the two.
    command.args(match sql.maker {
        Maker::MariaDb => ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"].as_slice(),
        // The least that the data file may have. Autoextension by 64 MB would make the template as large. A machine
        // has native asynchronous I/O for a dozen servers.
        Maker::MySql => &[
            "--innodb-data-file-path=ibdata1:5M:autoextend",
            "--innodb-autoextend-increment=1",
            "--innodb-redo-log-capacity=32M",
            "--innodb-use-native-aio=OFF",
            "--secure-file-priv=NULL",
        ],
    });
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
}

/// Hears the beginning of a greeting.
fn greets(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.read_exact(&mut [0])
}

fn option(name: &str, value: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push(value);
    option
}

/// For a string in single quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "''")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_quoted() {
        let sql = MariaDb::new().user("o'hara", r"back\slash").database("d`b").init_sql();
        assert!(sql.contains("CREATE DATABASE IF NOT EXISTS `d``b`;"), "{sql}");
        assert!(
            sql.contains(r"CREATE USER IF NOT EXISTS 'o''hara'@'%' IDENTIFIED BY 'back\\slash' REQUIRE NONE;"),
            "{sql}"
        );
    }
}
