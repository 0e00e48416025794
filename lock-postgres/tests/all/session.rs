//! Locks of sessions on a real PostgreSQL, watched over a second, independent connection.

mod cleaning;
mod delay;
mod ends;
mod holds;
mod limits;
mod log;
mod pooler;
mod readers;
mod undoing;
mod waits;

use crate::lease::support::Fixture;

/// The advisory locks of 64 bits in the database of a fixture, of the sessions of its tables.
const LOCKS: &str = "pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype='advisory' AND l.objsubid=1 AND l.database=\
     (SELECT oid FROM pg_database WHERE datname=current_database()) AND a.application_name LIKE 'polylock%'";

/// The key of the advisory lock of a name, of tables in the schema `public`.
fn key(fixture: &Fixture, name: &str) -> String {
    let prefix: String = format!("polylock\0session\0public\0{}\0{name}", fixture.table)
        .bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("('x'||substr(encode(sha256(decode('{prefix}','hex')),'hex'),1,16))::bit(64)::bigint")
}

/// How many sessions have or want the lock of a name.
async fn locks(fixture: &Fixture, name: &str, is_granted: bool) -> i64 {
    let key = key(fixture, name);
    let count = format!(
        "SELECT count(*) FROM {LOCKS} AND ((l.classid::bigint<<32)|l.objid::bigint)={key} AND l.granted={is_granted}"
    );
    fixture.number(&count).await
}
