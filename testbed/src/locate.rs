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
    vec![
        found_redis(Edition::Own),
        found(
            "MariaDB",
            &["POLYLOCK_MYSQL_URL", "POLYLOCK_MARIADB_DIR"],
            mariadb().map(drop),
        ),
        found(
            "ZooKeeper",
            &["POLYLOCK_ZOOKEEPER_URL", "POLYLOCK_ZOOKEEPER_DIR"],
            zookeeper().map(drop),
        ),
    ]
}

/// Looks for the editions that may be left out where `CI` is not set.
pub fn find_extra() -> Vec<(Edition, Result<Found, Error>)> {
    let found = |edition| (edition, found_redis(edition));
    Edition::EXTRA.map(found).into()
}

fn found_redis(edition: Edition) -> Result<Found, Error> {
    found(edition.title(), edition.variables(), redis(edition).map(drop))
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

/// The variable and its value by which a Redis of this edition stands for the distribution's own.
///
/// # Errors
/// [`Error::Missing`] or [`Error::LeftOut`] where there is none, [`Error::Variable`].
pub fn stand_in(edition: Edition) -> Result<(&'static str, OsString), Error> {
    let [url, program] = *Edition::Own.variables();
    match variable(edition.variables()[0]) {
        Some(running) => Ok((url, running)),
        None => Ok((program, redis(edition)?.into())),
    }
}

pub(crate) fn redis(edition: Edition) -> Result<PathBuf, Error> {
    let [_, named] = *edition.variables();
    if let Some(value) = variable(named) {
        return program(named, value);
    }
    installed(edition.installed()).ok_or_else(|| {
        let (server, variables) = (edition.title(), edition.variables());
        match edition {
            Edition::Own => Error::Missing { server, variables },
            Edition::Redis8 | Edition::Valkey9 => extra(server, variables, is_ci()),
        }
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
    if let Some(python) = variable("POLYLOCK_PYTHON") {
        return Ok(Command::new(python));
    }
    let packages = installed(REDIS_PY).ok_or_else(|| extra("redis-py", &["POLYLOCK_PYTHON"], is_ci()))?;
    let mut python = Command::new("python3");
    // What lies in the user's own directories is not what was pinned.
    python.env("PYTHONPATH", packages).args(["-s", "-B"]);
    Ok(python)
}

/// Where `cargo xtask servers --install` puts it.
pub const REDIS_PY: &str = "redis-py";

/// Whether the variable `CI` says that nothing may be left out.
pub fn is_ci() -> bool {
    says_ci(variable("CI"))
}

fn says_ci(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value != "false")
}

#[derive(Debug)]
pub(crate) struct MariaDb {
    pub(crate) program: PathBuf,
    pub(crate) base: PathBuf,
    /// With its SQL scripts and the messages in all languages.
    pub(crate) share: PathBuf,
    pub(crate) plugins: PathBuf,
}

pub(crate) fn mariadb() -> Result<MariaDb, Error> {
    if let Some(value) = variable("POLYLOCK_MARIADB_DIR") {
        let base = PathBuf::from(value);
        let program = ["sbin/mariadbd", "bin/mariadbd"]
            .map(|program| base.join(program))
            .into_iter()
            .find(|p| p.is_file());
        let Some(program) = program else {
            let problem = "there is no bin/mariadbd or sbin/mariadbd in it".into();
            return Err(Error::Variable {
                variable: "POLYLOCK_MARIADB_DIR",
                value: base,
                problem,
            });
        };
        return MariaDb::new(program, base);
    }
    match (installed("unpacked/bin/mariadbd"), installed("unpacked/root/usr")) {
        (Some(program), Some(base)) => MariaDb::new(program, base),
        _ => Err(Error::Missing {
            server: "MariaDB",
            variables: &["POLYLOCK_MYSQL_URL", "POLYLOCK_MARIADB_DIR"],
        }),
    }
}

impl MariaDb {
    fn new(program: PathBuf, base: PathBuf) -> Result<Self, Error> {
        let find = |names: &[&str]| names.iter().map(|name| base.join(name)).find(|path| path.is_dir());
        let share = find(&["share/mysql", "share/mariadb", "share"]);
        let plugins = find(&[
            "lib/mysql/plugin",
            "lib/mariadb/plugin",
            "lib/plugin",
            "lib64/mysql/plugin",
            "lib",
        ]);
        match (share, plugins) {
            (Some(share), Some(plugins)) => Ok(Self {
                program,
                base,
                share,
                plugins,
            }),
            _ => {
                let problem = "there is no share/mysql or no lib in it".into();
                Err(Error::Variable {
                    variable: "POLYLOCK_MARIADB_DIR",
                    value: base,
                    problem,
                })
            }
        }
    }

    /// One of the scripts that make the system tables; newer versions name them differently.
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

pub(crate) fn zookeeper() -> Result<ZooKeeper, Error> {
    if let Some(value) = variable("POLYLOCK_ZOOKEEPER_DIR") {
        let jars = PathBuf::from(value);
        if !jars.is_dir() {
            let problem = "there is no such directory".into();
            return Err(Error::Variable {
                variable: "POLYLOCK_ZOOKEEPER_DIR",
                value: jars,
                problem,
            });
        }
        let java = variable("POLYLOCK_JAVA").map_or_else(|| "java".into(), PathBuf::from);
        return Ok(ZooKeeper { java, jars });
    }
    match (installed("unpacked/bin/java"), installed("unpacked/zookeeper")) {
        (Some(java), Some(jars)) => Ok(ZooKeeper { java, jars }),
        _ => Err(Error::Missing {
            server: "ZooKeeper",
            variables: &["POLYLOCK_ZOOKEEPER_URL", "POLYLOCK_ZOOKEEPER_DIR"],
        }),
    }
}

fn installed(path: &str) -> Option<PathBuf> {
    Some(installed_dir().join(path)).filter(|path| path.exists())
}

fn program(variable: &'static str, value: OsString) -> Result<PathBuf, Error> {
    let path = PathBuf::from(value);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::Variable {
        variable,
        value: path,
        problem: "there is no such file".into(),
    })
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
