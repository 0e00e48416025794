//! `polylock migrate`: the tables of MySQL, MariaDB and PostgreSQL.

use std::io::Write;

use polylock::Config;

use crate::cli::{MigrateArgs, ServerArgs, TablesOf};
use crate::exit::{Code, Failure};
use crate::server;

/// Makes the tables of the servers that are named, or prints their SQL.
///
/// # Errors
/// If a server refuses, or if only others are named, which need no tables.
pub(crate) async fn migrate(arguments: &MigrateArgs, server: &ServerArgs) -> Result<Code, Failure> {
    let Some(wanted) = arguments.print else {
        let config = server::config(server)?;
        tables(&config)?;
        config.migrate().await?;
        return Ok(Code::SUCCESS);
    };
    // Only if none is named, the defaults are meant: a mistake in one that is named is an error.
    let config = server::is_named(server).then(|| server::config(server)).transpose()?;
    let named = match (config, wanted) {
        (Some(config), Some(wanted)) => tables_of(&config, wanted)?,
        (Some(config), None) => Some(tables(&config)?),
        (None, _) => None,
    };
    let sql = match (named, wanted) {
        (Some(_), _) if arguments.table.is_some() => {
            return Err(Failure::usage(
                "the URL says what the tables' names begin with, as in ?table=shop_locks: leave out --table",
            ));
        }
        (Some(sql), _) => sql,
        // Without a server, the one that was there first.
        (None, None | Some(TablesOf::Mysql)) => mysql(arguments.table.as_deref())?,
        (None, Some(TablesOf::Postgres)) => postgres(arguments.table.as_deref())?,
    };
    let printed = std::io::stdout().write_all(sql.as_bytes());
    printed.map_err(|error| Failure::os("cannot write to standard output", &error))?;
    Ok(Code::SUCCESS)
}

/// The SQL of the tables of these servers.
fn tables(config: &Config) -> Result<String, Failure> {
    match config.schema()? {
        sql if sql.is_empty() => Err(Failure::usage(
            "only MySQL, MariaDB and PostgreSQL need tables: other servers need no preparation",
        )),
        sql => Ok(sql),
    }
}

/// The SQL of the tables of those servers that are of this kind, or `None` if none is.
fn tables_of(config: &Config, wanted: TablesOf) -> Result<Option<String>, Failure> {
    // A mistake in the URL of another server is one, too.
    config.schema()?;
    let mut all: Vec<String> = Vec::new();
    for url in server::urls(config).filter(|url| is_of(url, wanted)) {
        let mut alone = config.clone();
        (alone.url, alone.urls, alone.quorum) = (url.to_owned(), Vec::new(), None);
        let sql = alone.schema()?;
        // The nodes of a quorum mostly have the same ones.
        if !all.contains(&sql) {
            all.push(sql);
        }
    }
    Ok((!all.is_empty()).then(|| all.concat()))
}

fn is_of(url: &str, wanted: TablesOf) -> bool {
    let scheme = url.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
    match wanted {
        TablesOf::Mysql => ["mysql", "mariadb"].contains(&&*scheme),
        TablesOf::Postgres => ["postgres", "postgresql"].contains(&&*scheme),
    }
}

#[cfg(feature = "mysql")]
fn mysql(table: Option<&str>) -> Result<String, Failure> {
    use polylock::mysql::{MySqlConfig, schema};

    let table = table.unwrap_or(MySqlConfig::DEFAULT_TABLE);
    let all = [
        schema::row_lock(table)?,
        schema::lease_table(table)?,
        schema::fences(table)?,
    ];
    Ok(all.concat())
}

#[cfg(feature = "postgres")]
fn postgres(table: Option<&str>) -> Result<String, Failure> {
    use polylock::postgres::{PostgresConfig, schema};

    let table = table.unwrap_or(PostgresConfig::DEFAULT_TABLE);
    let all = [
        schema::lease_table(None, table)?,
        schema::sessions(None, table)?,
        schema::fences(None, table)?,
    ];
    Ok(all.concat())
}

macro_rules! without_feature {
    ($feature:literal, $server:ident) => {
        #[cfg(not(feature = $feature))]
        fn $server(_: Option<&str>) -> Result<String, Failure> {
            Err(Failure::usage(concat!(
                "polylock was built without its feature `",
                $feature,
                "`"
            )))
        }
    };
}

without_feature!("mysql", mysql);
without_feature!("postgres", postgres);
