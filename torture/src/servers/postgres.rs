//! Looks into a PostgreSQL.

use lock_postgres::tokio_postgres::{self, Client, NoTls};
use testbed::Server;

use super::TABLE;
use crate::error::Result;

/// A connection of its own, past all proxies.
pub(super) async fn connect(server: &Server) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    // It ends with the client, whose requests report its errors.
    tokio::spawn(connection);
    Ok(client)
}

/// Open transactions, rows that say that somebody has a name, and those that say that somebody waits, if `with_places`. A dead
/// process leaves a place for a few seconds. If the clock was set back meanwhile, the place counts again for as long, whenever the
/// clock comes to that time.
pub(super) async fn leftovers(client: &Client, with_places: bool) -> Result<Vec<String>> {
    let mut ask = format!(
        "SELECT 'transaction of process '||pid FROM pg_stat_activity WHERE xact_start IS NOT NULL \
         AND backend_type='client backend' AND pid<>pg_backend_pid() \
         UNION ALL SELECT concat('lease of ',encode(name,'escape'),' for ',holder,' until ',expires) FROM {TABLE}_leases \
         WHERE holder IS NOT NULL AND expires>clock_timestamp() \
         UNION ALL SELECT concat('share of ',encode(name,'escape'),' for ',holder,' until ',expires) FROM {TABLE}_holders \
         WHERE expires>clock_timestamp()"
    );
    if with_places {
        ask += &format!(
            " UNION ALL SELECT concat('entry of ',holder,' for ',encode(name,'escape'),' until ',expires) FROM {TABLE}_waiters \
             WHERE expires BETWEEN clock_timestamp() AND clock_timestamp()+interval '10 s' \
             UNION ALL SELECT concat('mark of a waiter for ',encode(name,'escape'),' until ',wanted) FROM {TABLE}_leases \
             WHERE wanted BETWEEN clock_timestamp() AND clock_timestamp()+interval '10 s'"
        );
    }
    let rows = client.query(&ask, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Open transactions, and advisory locks of sessions.
pub(super) async fn advisory_locks(client: &Client) -> Result<Vec<String>> {
    let ask = "SELECT 'transaction of process '||pid FROM pg_stat_activity WHERE xact_start IS NOT NULL \
               AND backend_type='client backend' AND pid<>pg_backend_pid() \
               UNION ALL SELECT concat(mode,' of process ',pid,CASE WHEN NOT granted THEN ', which waits' END) FROM pg_locks \
               WHERE locktype='advisory' AND objsubid=1";
    let rows = client.query(ask, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn connections(client: &Client) -> Result<usize> {
    let ask = "SELECT count(*) FROM pg_stat_activity WHERE backend_type='client backend' AND pid<>pg_backend_pid()";
    let count: i64 = client.query_one(ask, &[]).await?.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

pub(super) async fn version(client: &Client) -> Result<String> {
    let version: String = client
        .query_one("SELECT current_setting('server_version')", &[])
        .await?
        .try_get(0)?;
    let number = version.split(' ').next().unwrap_or_default();
    Ok(format!("PostgreSQL {number}"))
}
