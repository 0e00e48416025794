//! The data directory of a new MariaDB or MySQL.

use std::path::{Path, PathBuf};

use super::server;
use crate::locate::{Maker, Sql};
use crate::{Error, template};

/// Options that a data directory is made with and that can then not be changed.
const FOR_GOOD: [&str; 1] = ["--lower-case-table-names="];

/// The one for this program and these options.
pub(crate) fn of(sql: &Sql, options: &[String]) -> Result<PathBuf, Error> {
    let is_for_good = |option: &&String| FOR_GOOD.iter().any(|name| option.starts_with(name));
    let options: Vec<&String> = options.iter().filter(is_for_good).collect();
    template::of(&sql.program, &options, |data| initialise(sql, &options, data))
}

fn initialise(sql: &Sql, options: &[&String], data: &Path) -> Result<(), Error> {
    let mut command = server(sql, data);
    command.args(options);
    let input = match sql.maker {
        Maker::MariaDb => {
            command.args(["--bootstrap", "--max-allowed-packet=8M", "--log-warnings=0"]);
            system_tables(sql)?
        }
        Maker::MySql => {
            // Whatever is not finished is made anew: nothing needs to be safe.
            command.args(["--initialize-insecure", "--skip-innodb-doublewrite"]);
            command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=128M"]);
            Vec::new()
        }
    };
    template::run(command, &input, data)
}

/// What `mariadb-install-db` does, which needs more programs than the server.
fn system_tables(sql: &Sql) -> Result<Vec<u8>, Error> {
    let mut text = b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n".to_vec();
    for part in ["system_tables", "performance_tables", "system_tables_data"] {
        text.extend(sql.script(part)?);
    }
    Ok(text)
}
