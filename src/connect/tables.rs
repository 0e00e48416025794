//! The tables that locks in SQL databases need.

use lock_core::{Error, ErrorKind, Result};

use super::{Requirements, Scheme, Source};

/// The servers that a URL names: several for a quorum.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for a URL that cannot work.
pub(crate) fn servers_of(url: &str) -> Result<Vec<String>> {
    let (url, _) = Requirements::split(url)?;
    match Scheme::split(&url) {
        Some((Scheme::Quorum, _)) => nodes_of(&url),
        _ => Ok(vec![url]),
    }
}

#[cfg(feature = "quorum")]
fn nodes_of(url: &str) -> Result<Vec<String>> {
    let (_, nodes) = crate::quorum::QuorumConfig::from_url(url)?;
    Ok(nodes.into_iter().map(String::from).collect())
}

#[cfg(not(feature = "quorum"))]
fn nodes_of(_: &str) -> Result<Vec<String>> {
    Err(super::missing_feature("quorum"))
}

/// Makes the tables that this server needs and that are missing.
pub(crate) async fn make(url: &str, source: Source<'_>) -> Result<()> {
    match Scheme::split(url) {
        Some((Scheme::MySql, _)) => mysql::make(url, source).await,
        Some((Scheme::Postgres, _)) => postgres::make(url, source).await,
        Some(_) => Ok(()),
        None => Err(unknown(url)),
    }
}

/// Their SQL. Empty where none are needed.
pub(crate) fn sql(url: &str, source: Source<'_>) -> Result<String> {
    match Scheme::split(url) {
        Some((Scheme::MySql, _)) => mysql::sql(url, source),
        Some((Scheme::Postgres, _)) => postgres::sql(url, source),
        Some(_) => Ok(String::new()),
        None => Err(unknown(url)),
    }
}

fn unknown(url: &str) -> Error {
    Error::new(ErrorKind::Misconfigured, super::scheme::unknown(url))
}

macro_rules! database {
    ($feature:literal, $module:ident, $config:ident) => {
        #[cfg(feature = $feature)]
        mod $module {
            use lock_core::Result;

            use crate::connect::{Source, $config};
            use crate::$module::schema;

            pub(super) async fn make(url: &str, source: Source<'_>) -> Result<()> {
                schema::migrate(&$config(url, source)?).await
            }

            pub(super) fn sql(url: &str, source: Source<'_>) -> Result<String> {
                schema::of(&$config(url, source)?)
            }
        }

        #[cfg(not(feature = $feature))]
        mod $module {
            use lock_core::Result;

            use crate::connect::{Source, missing_feature};

            pub(super) async fn make(_: &str, _: Source<'_>) -> Result<()> {
                Err(missing_feature($feature))
            }

            pub(super) fn sql(_: &str, _: Source<'_>) -> Result<String> {
                Err(missing_feature($feature))
            }
        }
    };
}

database!("mysql", mysql, mysql_config);
database!("postgres", postgres, postgres_config);
