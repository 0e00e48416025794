//! The data directory of a new PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LIBRARY, Postgres, SOURCE, make_private};
use crate::{Error, preload, template};

/// The one of the PostgreSQL in this directory, with these users and this database.
pub(super) fn of(dir: &Path, postgres: &Postgres) -> Result<PathBuf, Error> {
    let key = (
        &postgres.user,
        &postgres.password,
        &postgres.database,
        &postgres.roles,
        SOURCE,
    );
    template::of(&dir.join("bin/postgres"), key, |data| initialise(dir, postgres, data))
}

fn initialise(dir: &Path, postgres: &Postgres, data: &Path) -> Result<(), Error> {
    make_private(data)?;
    // Not in the data directory: initdb demands an empty one.
    let library = data.with_extension("so");
    preload::compile(SOURCE, &library)?;
    let run = |program: &str, arguments: &[&str], input: &str| {
        let mut command = Command::new(dir.join("bin").join(program));
        command.args(arguments).env("LC_ALL", "C");
        preload::add(&mut command, &library);
        template::run(command, input.as_bytes(), data)
    };
    let path = data.display().to_string();
    // It writes its log in files of 1 MB, which it makes ahead, not of 16.
    let options = [
        "--no-sync",
        "--no-locale",
        "--encoding=UTF8",
        "--wal-segsize=1",
        "--auth=trust",
    ];
    run(
        "initdb",
        &[&options[..], &["--username=postgres", "-D", &path]].concat(),
        "",
    )?;
    run("postgres", &["--single", "-D", &path, "postgres"], &set_up(postgres))?;
    std::fs::rename(&library, data.join(LIBRARY)).map_err(Error::io("moving a library"))
}

/// A single-user server reads one command a line.
fn set_up(postgres: &Postgres) -> String {
    let owner = identifier(&postgres.user);
    let mut sql = format!(
        "CREATE ROLE {owner} SUPERUSER LOGIN PASSWORD {}\n",
        literal(&postgres.password)
    );
    for (name, password) in &postgres.roles {
        sql += &format!(
            "CREATE ROLE {} LOGIN PASSWORD {}\n",
            identifier(name),
            literal(password)
        );
    }
    if postgres.database != "postgres" {
        sql += &format!("CREATE DATABASE {} OWNER {owner}\n", identifier(&postgres.database));
    }
    sql
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_quoted() {
        assert_eq!(identifier("o\"hara"), "\"o\"\"hara\"");
        assert_eq!(literal(r"it's \"), r"E'it\'s \\'");
        let sql = set_up(&Postgres::new().role("least", "it's").database("d\"b"));
        assert!(sql.contains(r#"CREATE ROLE "least" LOGIN PASSWORD E'it\'s'"#), "{sql}");
        assert!(sql.contains(r#"CREATE DATABASE "d""b" OWNER "app""#), "{sql}");
    }
}
