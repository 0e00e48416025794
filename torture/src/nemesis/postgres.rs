//! Faults of a PostgreSQL.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::clock;
use crate::error::Result;
use crate::servers::{LockServer, TABLE};

use super::context::{Context, Struck};

pub(super) async fn client_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "pg_terminate_backend").await
}

pub(super) async fn query_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    repeat(context, server, "pg_cancel_backend").await
}

/// On all connections but this one.
async fn repeat(context: &mut Context, server: &LockServer, what: &str) -> Result<Struck> {
    let client = server.postgres().await?;
    let ask = format!(
        "SELECT {what}(pid) FROM pg_stat_activity WHERE backend_type='client backend' AND pid<>pg_backend_pid()"
    );
    for _ in 0..context.number(1..=8) {
        client.execute(&ask, &[]).await?;
        sleep(context.time(0.0..0.1)).await;
    }
    Ok(Struck::AtOnce)
}

/// As a change of an index does it.
pub(super) async fn read_lock(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let client = server.postgres().await?;
    let tables = match context.targets.config.backend {
        Backend::PostgresSession => format!("{TABLE}_tokens,{TABLE}_readers"),
        _ => format!("{TABLE}_leases,{TABLE}_holders"),
    };
    let lock = format!("BEGIN;LOCK TABLE {tables} IN SHARE MODE");
    client.batch_execute(&lock).await?;
    context.last(1.1..2.0).await;
    client.batch_execute("ROLLBACK").await?;
    Ok(Struck::AtOnce)
}

/// It takes all connections that are left, and ends those of the processes, which need new ones. Nobody has room kept for him: all are
/// superusers.
pub(super) async fn connections_full(context: &mut Context, server: &LockServer) -> Result<Struck> {
    /// A busy machine takes all connections slowly, and the processes may hold nothing at first.
    const KILLED_WITHIN: Duration = Duration::from_secs(20);
    let client = server.postgres().await?;
    let end = Instant::now() + context.time(0.5..2.0);
    let end_theirs = of_processes(context.targets.config.backend, "pg_terminate_backend(pid)");
    let (mut taken, mut is_full, mut kills) = (Vec::new(), false, 0);
    while Instant::now() < end.min(context.until) || kills == 0 && Instant::now() < end + KILLED_WITHIN {
        match server.postgres().await {
            Ok(another) => taken.push(another),
            // The room that they leave is taken at once.
            Err(_) if kills < 2 && client.execute(&end_theirs, &[]).await? > 0 => {
                (is_full, kills) = (true, kills + 1);
            }
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
    drop(taken);
    Ok(if is_full { Struck::AtOnce } else { Struck::Never })
}

/// Does this to the connections of the processes; if a hold is a lock of its connection, to those that carry holds. Behind a pooler
/// their names have an ending.
fn of_processes(backend: Backend, what: &str) -> String {
    let carries_holds = match backend {
        Backend::PostgresSession => {
            " AND pid IN (SELECT pid FROM pg_locks WHERE locktype='advisory' AND objsubid=1 AND granted)"
        }
        _ => "",
    };
    format!("SELECT {what} FROM pg_stat_activity WHERE application_name LIKE 'polylock%'{carries_holds}")
}

pub(super) async fn master_kill(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let from = clock::now();
    server.any(server.primary()).kill()?;
    context.last(0.0..0.5).await;
    take_over(context, server).await?;
    Ok(Struck::At(from))
}

/// What the primary acknowledges while nobody follows it is lost, unless it waits for the standby before that.
pub(super) async fn stale_replica(context: &mut Context, server: &LockServer) -> Result<Struck> {
    let (standbys, primary) = (server.standbys()?, server.primary());
    standbys.fall_behind(1 - primary, primary).await?;
    let from = clock::now();
    context.last(0.3..1.0).await;
    standbys[primary].kill()?;
    take_over(context, server).await?;
    Ok(Struck::At(from))
}

/// Promotes the standby. The killed primary becomes its standby, which is waited for if the first one was.
async fn take_over(context: &mut Context, server: &LockServer) -> Result<()> {
    let killed = server.primary();
    server.promote().await?;
    context.last(0.0..1.0).await;
    let standbys = server.standbys()?;
    standbys.follow(killed, server.primary()).await?;
    if context.targets.config.replicas > 0 {
        standbys.set_synchronous(server.primary(), true).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lock_core::Locker;
    use lock_postgres::{Pooler, PostgresConfig, Strategy, tokio_postgres};
    use testbed::{PgBouncer, Postgres, happens};

    use super::*;

    #[testbed::test]
    async fn those_that_carry_holds_are_found_also_behind_a_pooler() {
        let server = Postgres::new().start().await.expect("a server");
        let pool = PgBouncer::of(server.port()).setting("pool_mode", "session");
        let pool = pool.start().await.expect("a pooler");
        let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("a connection");
        tokio::spawn(connection);
        let terminate = of_processes(Backend::PostgresSession, "pg_terminate_backend(pid,20000)");
        for (url, pooler) in [(server.url(), Pooler::None), (pool.url(), Pooler::Session)] {
            let config = PostgresConfig::from_url(&url)
                .expect("testbed's URL")
                .with_strategy(Strategy::Session)
                .with_restart_delay(Duration::ZERO)
                .with_pooler(pooler);
            let locks = Locker::from_backend(lock_postgres::backend(config).expect("it can work"));
            locks.connect().await.expect("a connection");
            let nobody = client.execute(&terminate, &[]).await.expect("an answer");
            assert_eq!(nobody, 0, "{pooler:?}: nobody holds anything");
            let guard = happens("the grant", locks.lock("a").acquire()).await.expect("a grant");
            let ended = client.execute(&terminate, &[]).await.expect("an answer");
            assert_eq!(ended, 1, "{pooler:?}: one connection carries the hold");
            happens("the loss", guard.lost()).await;
        }
    }
}
