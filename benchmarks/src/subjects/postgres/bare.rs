//! `bare`: polylock's own statements, each lock on a connection of its own. A test compares them.

use async_trait::async_trait;
use benchmarks_load::{Lock, Result};
use lock_postgres::tokio_postgres::{Client as Session, Statement};

use super::super::TTL;
use super::{Alone, OnSession};

/// The next token, and the ones that a process may pass the lock on with.
const NEXT: &str = "GREATEST(last_token+1,COALESCE($6,(extract(epoch from statement_timestamp())*1000000)::bigint),$5)";
const WANTED: &str = "(CASE WHEN wanted<=statement_timestamp()+interval '10 s' THEN wanted ELSE '-infinity' END)";

fn take() -> String {
    format!(
        "UPDATE \"polylock_leases\" SET holder=$2,kind=0,label=$3,term=($4*interval '1 microsecond'),\
         expires=statement_timestamp()+($4*interval '1 microsecond'),token={NEXT},\
         last_token={NEXT}+LEAST($7,9223372036854775807-{NEXT}) \
         WHERE name=$1 AND GREATEST(expires,{WANTED})<=LEAST(statement_timestamp(),clock_timestamp()) \
         AND NOT $2=ANY(dead) RETURNING token"
    )
}

fn release() -> String {
    format!(
        "UPDATE \"polylock_leases\" SET holder=CASE WHEN $3>0 THEN '00000000-0000-0000-0000-000000000000'::uuid END,\
         label=CASE WHEN $3>0 THEN label END,term=CASE WHEN $3>0 THEN ($3*interval '1 microsecond') ELSE term END,\
         expires=CASE WHEN $3>0 THEN statement_timestamp()+($3*interval '1 microsecond') ELSE '-infinity'::timestamptz END \
         WHERE name=$1 AND holder=$2 AND kind=0 AND expires>statement_timestamp() RETURNING {WANTED}>statement_timestamp()"
    )
}

pub(crate) type Bare = Alone<BareLock>;

pub(crate) struct BareLock {
    session: Session,
    name: Vec<u8>,
    holder: Id,
    take: Statement,
    release: Statement,
}

#[async_trait]
impl OnSession for BareLock {
    async fn make(session: Session, name: &str) -> Result<Self> {
        session
            .batch_execute("SET plan_cache_mode=force_generic_plan;SET jit=off")
            .await?;
        let name = format!("bare/{name}").into_bytes();
        let make_row = "INSERT INTO polylock_leases (name) VALUES ($1) ON CONFLICT DO NOTHING";
        session.execute(make_row, &[&name]).await?;
        Ok(Self {
            take: session.prepare_typed(&take(), &takes()).await?,
            release: session.prepare_typed(&release(), &releases()).await?,
            session,
            name,
            holder: Id(*b"sixteen letters!"),
        })
    }
}

impl Lock for BareLock {
    type Held = ();

    /// Nobody else wants it.
    async fn acquire(&mut self) -> Result<()> {
        let (label, ttl, least, clock, reserved) = (
            None::<Vec<u8>>,
            i64::try_from(TTL.as_micros())?,
            1_i64,
            None::<i64>,
            16_i64,
        );
        self.session
            .query_one(
                &self.take,
                &[&self.name, &self.holder, &label, &ttl, &least, &clock, &reserved],
            )
            .await?;
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        self.session
            .query_one(&self.release, &[&self.name, &self.holder, &0_i64])
            .await?;
        Ok(())
    }
}

use lock_postgres::tokio_postgres::types::private::BytesMut;
use lock_postgres::tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

fn takes() -> [Type; 7] {
    [
        Type::BYTEA,
        Type::UUID,
        Type::BYTEA,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
    ]
}

fn releases() -> [Type; 3] {
    [Type::BYTEA, Type::UUID, Type::INT8]
}

/// A holder id as a `uuid`.
#[derive(Clone, Copy, Debug)]
struct Id([u8; 16]);

impl ToSql for Id {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use lock_core::Locker;
    use lock_postgres::LeaseTableBackend;

    use super::super::connect;
    use super::*;

    #[testbed::test]
    async fn sends_what_polylock_sends() {
        let server = testbed::Postgres::new().start().await.unwrap();
        let locker = Locker::new(LeaseTableBackend::from_url(&server.url()).unwrap()).without_label();
        let lock = locker.lock("same").ttl(TTL);
        // Makes the tables, the row and the prepared statements.
        for _ in 0..3 {
            lock.acquire().await.unwrap().release().await.map(drop).unwrap();
        }
        let mut bare = BareLock::make(connect(&server.url()).await.unwrap(), "same")
            .await
            .unwrap();
        let observer = connect(&server.url()).await.unwrap();
        // What each session did last.
        let last = async || -> Vec<String> {
            let ask =
                "SELECT DISTINCT query FROM pg_stat_activity WHERE query LIKE 'UPDATE%' AND pid<>pg_backend_pid()";
            let rows = observer.query(ask, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let guard = lock.acquire().await.unwrap();
        bare.acquire().await.unwrap();
        assert_eq!(last().await, [take()]);
        guard.release().await.map(drop).unwrap();
        bare.release(()).await.unwrap();
        assert_eq!(last().await, [release()]);
    }
}
