//! `polylock migrate`: the tables of MySQL, MariaDB and PostgreSQL.

use crate::cli::{MigrateArgs, ServerArgs, TablesOf};
use crate::exit::{Code, Failure};

/// Makes the tables of the server that is named, or prints their SQL.
///
/// # Errors
/// If the server refuses, or if another server is named, which needs no tables.
pub(crate) async fn migrate(arguments: &MigrateArgs, server: &ServerArgs) -> Result<Code, Failure> {
    let url = crate::server::config(server).map(|config| config.url);
    let named = url.as_ref().ok().and_then(|url| tables_of(url));
    if let Some(wanted) = arguments.print {
        // Without a server, the one that was there first.
        let of = wanted.or(named).unwrap_or(TablesOf::Mysql);
        let sql = match of {
            TablesOf::Mysql => mysql::sql(arguments.table.as_deref()),
            TablesOf::Postgres => postgres::sql(arguments.table.as_deref()),
        }?;
        let mut output = std::io::stdout();
        let printed = std::io::Write::write_all(&mut output, sql.as_bytes());
        printed.map_err(|error| Failure::os("cannot write to standard output", &error))?;
        return Ok(Code::SUCCESS);
    }
    let url = url?;
    match named {
        Some(TablesOf::Mysql) => mysql::migrate(&url).await?,
        Some(TablesOf::Postgres) => postgres::migrate(&url).await?,
        None => {
            return Err(Failure::usage(
                "only MySQL, MariaDB and PostgreSQL need tables: other servers need no preparation",
            ));
        }
    }
    Ok(Code::SUCCESS)
}

fn tables_of(url: &str) -> Option<TablesOf> {
    match url.split(':').next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "mysql" | "mariadb" => Some(TablesOf::Mysql),
        "postgres" | "postgresql" => Some(TablesOf::Postgres),
        _ => None,
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use polylock::mysql::{MySqlConfig, schema};

    use crate::exit::Failure;

    pub(super) fn sql(table: Option<&str>) -> Result<String, Failure> {
        let table = table.unwrap_or(MySqlConfig::DEFAULT_TABLE);
        let all = [
            schema::row_lock(table)?,
            schema::lease_table(table)?,
            schema::fences(table)?,
        ];
        Ok(all.concat())
    }

    pub(super) async fn migrate(url: &str) -> Result<(), Failure> {
        Ok(schema::migrate(&MySqlConfig::from_url(url)?).await?)
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use polylock::postgres::{PostgresConfig, schema};

    use crate::exit::Failure;

    pub(super) fn sql(table: Option<&str>) -> Result<String, Failure> {
        let table = table.unwrap_or(PostgresConfig::DEFAULT_TABLE);
        let all = [
            schema::lease_table(None, table)?,
            schema::sessions(None, table)?,
            schema::fences(None, table)?,
        ];
        Ok(all.concat())
    }

    pub(super) async fn migrate(url: &str) -> Result<(), Failure> {
        Ok(schema::migrate(&PostgresConfig::from_url(url)?).await?)
    }
}

macro_rules! without_feature {
    ($feature:literal, $module:ident) => {
        #[cfg(not(feature = $feature))]
        mod $module {
            use crate::exit::Failure;

            fn missing() -> Failure {
                Failure::usage(concat!("polylock was built without its feature `", $feature, "`"))
            }

            pub(super) fn sql(_: Option<&str>) -> Result<String, Failure> {
                Err(missing())
            }

            pub(super) async fn migrate(_: &str) -> Result<(), Failure> {
                Err(missing())
            }
        }
    };
}

without_feature!("mysql", mysql);
without_feature!("postgres", postgres);
