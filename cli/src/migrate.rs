//! `polylock migrate`: the tables of MySQL and MariaDB.

use crate::cli::{MigrateArgs, ServerArgs};
use crate::exit::{Code, Failure};

/// Makes the tables of the server that is named, or prints their SQL.
///
/// # Errors
/// If the server refuses, or if another server is named, which needs no tables.
#[cfg(feature = "mysql")]
pub(crate) async fn migrate(arguments: &MigrateArgs, server: &ServerArgs) -> Result<Code, Failure> {
    use polylock::mysql::{MySqlConfig, schema};

    if arguments.print {
        let table = arguments.table.as_deref().unwrap_or(MySqlConfig::DEFAULT_TABLE);
        let sql = [
            schema::row_lock(table)?,
            schema::lease_table(table)?,
            schema::fences(table)?,
        ]
        .concat();
        let mut output = std::io::stdout();
        let printed = std::io::Write::write_all(&mut output, sql.as_bytes());
        printed.map_err(|error| Failure::os("cannot write to standard output", &error))?;
        return Ok(Code::SUCCESS);
    }
    let url = crate::server::config(server)?.url;
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    if !["mysql", "mariadb"].contains(&scheme.as_str()) {
        return Err(Failure::usage(
            "only MySQL and MariaDB need tables: other servers need no preparation",
        ));
    }
    schema::migrate(&MySqlConfig::from_url(&url)?).await?;
    Ok(Code::SUCCESS)
}

/// # Errors
/// Always.
#[cfg(not(feature = "mysql"))]
pub(crate) async fn migrate(_: &MigrateArgs, _: &ServerArgs) -> Result<Code, Failure> {
    Err(Failure::usage(
        "polylock was built without its feature `mysql`, and other servers need no tables",
    ))
}
