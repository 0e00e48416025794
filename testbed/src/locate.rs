//! Where the server programs are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::{Edition, Error};

/// `target/servers` of the workspace, wherever cargo itself builds.
pub fn installed_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("it is a folder of the workspace")
        .join("target/servers")
}

/// A server that tests can use.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Its name.
    pub server: &'static str,
    /// The environment variable that names it, if one does; else it is the installed one.
    pub variable: Option<&'static str>,
}

/// Looks for the servers that every run of the tests needs: what is there, or why it is not.
pub fn find() -> Vec<Result<Found, Error>> {
    [Edition::Redis, Edition::MariaDb, Edition::ZooKeeper, Edition::Postgres]
        .map(found_edition)
        .into()
}

/// Looks for the editions that may be left out where `CI` is not set.
pub fn find_extra() -> Vec<(Edition, Result<Found, Error>)> {
    let found = |edition| (edition, found_edition(edition));
    Edition::EXTRA.map(found).into()
}

fn found_edition(edition: Edition) -> Result<Found, Error> {
    let there = match edition.own() {
        Edition::MariaDb => sql(edition).map(drop),
        Edition::ZooKeeper => zookeeper(edition).map(drop),
        Edition::Postgres => postgres(edition).map(drop),
        _ => redis(edition).map(drop),
    };
    found(edition.title(), edition.variables(), there)
}

fn found(server: &'static str, variables: &[&'static str; 2], program: Result<(), Error>) -> Result<Found, Error> {
    let variable = variables.iter().copied().find(|name| variable(name).is_some());
    // One that runs already needs no program.
    if variable == Some(variables[0]) {
        Ok(())
    } else {
        program
    }
    .map(|()| Found { server, variable })
}

/// The variable and its value by which this edition stands for the distribution's own server.
///
/// # Errors
/// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Variable`].
pub fn stand_in(edition: Edition) -> Result<(&'static str, OsString), Error> {
    let [url, place] = *edition.own().variables();
    match variable(edition.variables()[0]) {
        Some(running) => Ok((url, running)),
        None => Ok((place, place_of(edition)?.into())),
    }
}

/// The program, or the directory with the program.
fn place_of(edition: Edition) -> Result<PathBuf, Error> {
    if let Some(named) = variable(edition.variables()[1]) {
        return Ok(named.into());
    }
    installed(edition.installed()).ok_or_else(|| {
        let (server, variables) = (edition.title(), edition.variables());
        match edition.is_own() {
            true => Error::Missing { server, variables },
            false => extra(server, variables, is_ci()),
        }
    })
}

pub(crate) fn redis(edition: Edition) -> Result<PathBuf, Error> {
    let program = place_of(edition)?;
    match program.is_file() {
        true => Ok(program),
        false => Err(Error::Variable {
            variable: edition.variables()[1],
            value: program,
            problem: "there is no such file".into(),
        }),
    }
}

/// The directory that has the programs in `bin/`.
pub(crate) fn postgres(edition: Edition) -> Result<PathBuf, Error> {
    let dir = place_of(edition)?;
    let programs = ["bin/postgres", "bin/initdb", "bin/pg_basebackup"];
    match programs.iter().find(|program| !dir.join(program).is_file()) {
        None => Ok(dir),
        Some(missing) => Err(Error::Variable {
            variable: edition.variables()[1],
            value: dir,
            problem: format!("there is no {missing} in it"),
        }),
    }
}

pub(crate) fn pgbouncer() -> Result<PathBuf, Error> {
    const VARIABLES: &[&str; 1] = &["POLYLOCK_PGBOUNCER"];
    let named = variable(VARIABLES[0]).map(PathBuf::from);
    named
        .or_else(|| installed("postgres/unpacked/bin/pgbouncer"))
        .ok_or(Error::Missing {
            server: "PgBouncer",
            variables: VARIABLES,
        })
}

/// Why something that is not always needed is not there.
fn extra(server: &'static str, variables: &'static [&'static str], is_ci: bool) -> Error {
    match is_ci {
        true => Error::Missing { server, variables },
        false => Error::LeftOut { server, variables },
    }
}

/// A Python that has redis-py, the usual Redis client of that language.
///
/// # Errors
/// [`Error::Missing`] or [`Error::LeftOut`] where there is none.
pub fn redis_py() -> Result<Command, Error> {
    python_with(REDIS_PY)
}

/// A Python that has kazoo, the usual ZooKeeper client of that language.
///
/// # Errors
/// [`Error::Missing`] or [`Error::LeftOut`] where there is none.
pub fn kazoo() -> Result<Command, Error> {
    python_with(KAZOO)
}

fn python_with(client: &'static str) -> Result<Command, Error> {
    if let Some(python) = variable("POLYLOCK_PYTHON") {
        return Ok(Command::new(python));
    }
    let packages = installed(client).ok_or_else(|| extra(client, &["POLYLOCK_PYTHON"], is_ci()))?;
    let mut python = Command::new("python3");
    // What lies in the user's own directories is not what was pinned.
    python.env("PYTHONPATH", packages).args(["-s", "-B"]);
    Ok(python)
}

/// A Java whose class path has Curator, and lock-zookeeper's programs that use it. Name one of them as its first argument.
///
/// # Errors
/// [`Error::Missing`] or [`Error::LeftOut`] where there is none.
pub fn curator() -> Result<Command, Error> {
    let named = variable("POLYLOCK_CURATOR_DIR").map(PathBuf::from);
    // The stamp comes last.
    let dir = named.or_else(|| installed(CURATOR).filter(|dir| dir.join("stamp").exists()));
    let dir = dir.ok_or_else(|| extra(CURATOR, &["POLYLOCK_CURATOR_DIR"], is_ci()))?;
    let mut java = Command::new(java());
    let class_path = format!("{}:{}", dir.join("classes").display(), dir.join("lib/*").display());
    java.args([
        "-Xmx64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        &class_path,
    ]);
    Ok(java)
}

/// Where `cargo xtask servers --install` puts this client, and its name.
pub const REDIS_PY: &str = "redis-py";
/// The same.
pub const KAZOO: &str = "kazoo";
/// The same.
pub const CURATOR: &str = "curator";

/// Whether the variable `CI` says that nothing may be left out.
pub fn is_ci() -> bool {
    says_ci(variable("CI"))
}

fn says_ci(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value != "false")
}

/// A MariaDB or a MySQL.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) maker: Maker,
    pub(crate) program: PathBuf,
    pub(crate) base: PathBuf,
    /// With the messages in all languages, and MariaDB's SQL scripts.
    pub(crate) share: PathBuf,
    pub(crate) plugins: PathBuf,
}

/// Whose program it is: the two are set up differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    MariaDb,
    MySql,
}

/// The program decides about the maker, so that a MySQL can stand for the distribution's MariaDB.
pub(crate) fn sql(edition: Edition) -> Result<Sql, Error> {
    let dir = place_of(edition)?;
    Sql::find(&dir).map_err(|problem| Error::Variable {
        variable: edition.variables()[1],
        value: dir,
        problem: problem.into(),
    })
}

impl Sql {
    fn find(dir: &Path) -> Result<Self, &'static str> {
        // A MariaDB may also have a link of the other name.
        let programs = [("mariadbd", Maker::MariaDb), ("mysqld", Maker::MySql)];
        let (program, maker) = programs
            .iter()
            .flat_map(|(name, maker)| ["sbin", "bin"].map(|bin| (dir.join(bin).join(name), *maker)))
            .find(|(program, _)| program.is_file())
            .ok_or("there is no mariadbd and no mysqld in its bin/ or sbin/")?;
        // As `cargo xtask servers --install` lays it out.
        let unpacked = Some(dir.join("root/usr")).filter(|base| base.is_dir());
        let base = unpacked.unwrap_or_else(|| dir.to_owned());
        let find = |names: &[&str]| names.iter().map(|name| base.join(name)).find(|path| path.is_dir());
        let share = find(&["share/mysql", "share/mariadb", "share"]).ok_or("there is no share/mysql in it")?;
        let plugins = find(&[
            "lib/mysql/plugin",
            "lib/mariadb/plugin",
            "lib/plugin",
            "lib64/mysql/plugin",
            "lib",
        ])
        .ok_or("there is no lib in it")?;
        Ok(Self {
            maker,
            program,
            base,
            share,
            plugins,
        })
    }

    /// One of MariaDB's scripts that make the system tables; newer versions name them differently.
    pub(crate) fn script(&self, part: &str) -> Result<Vec<u8>, Error> {
        let names = [format!("mariadb_{part}.sql"), format!("mysql_{part}.sql")];
        let path = names
            .iter()
            .map(|name| self.share.join(name))
            .find(|path| path.is_file());
        let path = path.unwrap_or_else(|| self.share.join(&names[0]));
        fs::read(&path).map_err(Error::io(format!("reading {}", path.display())))
    }
}

#[derive(Debug)]
pub(crate) struct ZooKeeper {
    pub(crate) java: PathBuf,
    /// A directory in which every jar is meant.
    pub(crate) jars: PathBuf,
}

/// Whatever has the jars: Java is another thing.
pub(crate) fn zookeeper(edition: Edition) -> Result<ZooKeeper, Error> {
    let jars = place_of(edition)?;
    if !jars.is_dir() {
        return Err(Error::Variable {
            variable: edition.variables()[1],
            value: jars,
            problem: "there is no such directory".into(),
        });
    }
    Ok(ZooKeeper { java: java(), jars })
}

fn java() -> PathBuf {
    let named = variable("POLYLOCK_JAVA").map(PathBuf::from);
    let java = named.or_else(|| installed("unpacked/bin/java"));
    java.unwrap_or_else(|| "java".into())
}

fn installed(path: &str) -> Option<PathBuf> {
    Some(installed_dir().join(path)).filter(|path| path.exists())
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).and_then(filled)
}

/// An empty one is as good as none.
fn filled(value: OsString) -> Option<OsString> {
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_server_may_be_left_out_unless_ci_is_set() {
        let without = extra("Valkey 9", &["POLYLOCK_VALKEY9_SERVER"], false);
        assert!(
            matches!(without, Error::LeftOut { server: "Valkey 9", .. }),
            "{without}"
        );
        let with = extra("Valkey 9", &["POLYLOCK_VALKEY9_SERVER"], true);
        assert!(matches!(with, Error::Missing { server: "Valkey 9", .. }), "{with}");
    }

    #[test]
    fn ci_is_set_unless_it_says_false_or_nothing() {
        let says = |value: &str| says_ci(filled(value.into()));
        assert!(says("true") && says("1") && says("yes"));
        assert!(!says("false") && !says("") && !says_ci(None));
    }
}
