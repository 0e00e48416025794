//! MariaDB.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::recipe::{Recipe, Run};
use crate::server::Server;
use crate::url::Url;
use crate::{Error, data, locate};

/// A MariaDB to start, with one user, who may do everything, and one empty database. A commit survives [`Server::kill`].
#[derive(Debug, Clone)]
pub struct MariaDb {
    user: String,
    password: String,
    database: String,
}

impl MariaDb {
    /// One with the user "app", the password "secret" and the database "app".
    pub fn new() -> Self {
        Self {
            user: "app".into(),
            password: "secret".into(),
            database: "app".into(),
        }
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

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none, [`Error::Start`].
    ///
    /// # Cancel safety
    /// If this future is dropped, the server is ended in the background.
    pub async fn start(self) -> Result<Server, Error> {
        Server::start(self).await
    }

    /// Run at every start before the server listens.
    fn init_sql(&self) -> String {
        let account = format!("'{}'@'%'", quoted(&self.user));
        format!(
            "CREATE DATABASE IF NOT EXISTS `{}`;\n\
             CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{}';\n\
             GRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
            self.database.replace('`', "``"),
            quoted(&self.password)
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
        "mariadb"
    }

    fn url_variable(&self) -> &'static str {
        "POLYLOCK_MYSQL_URL"
    }

    fn default_port(&self) -> u16 {
        3306
    }

    fn url(&self, port: u16) -> Url {
        Url::new(
            "mysql",
            Some((&self.user, &self.password)),
            port,
            &format!("/{}", self.database),
        )
    }

    fn fill(&self, data: &Path, _port: u16) -> Result<(), Error> {
        data::copy(&template()?, data).map_err(Error::io("copying MariaDB's template"))?;
        fs::write(data.join("init.sql"), self.init_sql()).map_err(Error::io("writing init.sql"))
    }

    fn command(&self, data: &Path, port: u16) -> Result<Command, Error> {
        // A run before this one that was killed has left its own.
        let _ = fs::remove_file(data.join("pid"));
        let mut command = server(&locate::mariadb()?, data);
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
        Ok(command)
    }

    fn is_ready(&self, run: &Run<'_>) -> bool {
        // Written when it listens and init.sql is done.
        fs::read_to_string(run.data.join("pid")).is_ok_and(|pid| pid.trim() == run.pid.to_string())
    }
}

/// Begins the names of templates.
const TEMPLATE: &str = "mariadb-data-";

/// Removes the data directories that new servers were copied from. For when the installed server is replaced.
///
/// # Errors
/// [`Error::Io`].
pub fn forget_templates() -> Result<(), Error> {
    let entries = fs::read_dir(locate::installed_dir()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPLATE)) {
        fs::remove_dir_all(entry.path()).map_err(Error::io(format!("removing {}", entry.path().display())))?;
    }
    Ok(())
}

/// An initialised data directory to copy: initialising takes half a second of every core. Made once per server and
/// machine, under `target/servers`.
fn template() -> Result<PathBuf, Error> {
    let maria = locate::mariadb()?;
    let mut hasher = DefaultHasher::new();
    (
        &maria.program,
        fs::metadata(&maria.program).and_then(|program| program.modified()).ok(),
    )
        .hash(&mut hasher);
    let base = locate::installed_dir();
    let template = base.join(format!("{TEMPLATE}{:016x}", hasher.finish()));
    if template.is_dir() {
        return Ok(template);
    }
    fs::create_dir_all(&base).map_err(Error::io(format!("creating {}", base.display())))?;
    let lock = base.join("mariadb-data.lock");
    let lock = File::create(&lock).map_err(Error::io(format!("creating {}", lock.display())))?;
    lock.lock().map_err(Error::io("locking MariaDB's template"))?;
    if template.is_dir() {
        return Ok(template);
    }
    let unfinished = base.join("mariadb-data.tmp");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(Error::io("removing an unfinished template"))?;
    }
    fs::create_dir(&unfinished).map_err(Error::io("creating MariaDB's template"))?;
    initialise(&maria, &unfinished)?;
    fs::rename(&unfinished, &template).map_err(Error::io("naming MariaDB's template"))?;
    Ok(template)
}

/// What `mariadb-install-db` does, which needs more programs than the server.
fn initialise(maria: &locate::MariaDb, data: &Path) -> Result<(), Error> {
    let mut sql = b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_vec();
    for part in ["system_tables", "performance_tables", "system_tables_data"] {
        sql.extend(maria.script(part)?);
    }
    let log = data.join("bootstrap.log");
    let output = File::create(&log).map_err(Error::io("creating a log"))?;
    let mut child = server(maria, data)
        .args(["--bootstrap", "--max-allowed-packet=8M", "--log-warnings=0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .map_err(Error::io(format!("starting {}", maria.program.display())))?;
    // Our end closes it, also when we are killed: no server stays.
    let sent = child.stdin.take().expect("its stdin is piped").write_all(&sql);
    let status = child.wait().map_err(Error::io("waiting for mariadbd --bootstrap"))?;
    if status.success() && sent.is_ok() {
        return fs::remove_file(&log).map_err(Error::io("removing a log"));
    }
    Err(Error::Start {
        server: "mariadb",
        problem: format!("bootstrap: {status}"),
        log: data::log_tail(&log),
    })
}

/// What every run of it needs.
fn server(maria: &locate::MariaDb, data: &Path) -> Command {
    let mut command = Command::new(&maria.program);
    command
        .arg("--no-defaults")
        .arg(option("--basedir=", &maria.base))
        .arg(option("--datadir=", data));
    // A server that starts removes the temporary files that it finds, those of other running servers included.
    command.arg(option("--tmpdir=", data));
    command
        .arg(option("--lc-messages-dir=", &maria.share))
        .arg(option("--plugin-dir=", &maria.plugins));
    // Also when its data is copied, it may not differ between the two.
    command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]);
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
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
            sql.contains(r"CREATE USER IF NOT EXISTS 'o''hara'@'%' IDENTIFIED BY 'back\\slash';"),
            "{sql}"
        );
    }
}
