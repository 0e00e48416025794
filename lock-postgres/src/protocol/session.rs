//! The statements of sessions: advisory locks, and the tokens that go with them.
//!
//! A lock of a session outlives its transaction. So a statement that fails after it has taken the lock leaves it taken, and whoever
//! sent it unlocks.
//!
//! Every statement that changes a lock first looks at the session's mark, and does nothing in the session of somebody else.

use tokio_postgres::types::Type;

use super::dead_rows::DeadRows;
use super::terms::Kind;
use super::{in_micros, statement};
use crate::connection::Statement;
use crate::names::{literal, quoted};

/// The statements, made once. All begin with these parameters: the session's mark, and the name.
#[derive(Debug)]
pub(crate) struct SessionStatements {
    tokens: String,
    readers: String,
    /// The key of the advisory lock of the name in parameter 2.
    key: String,
    pub(crate) exclusive: OfMode,
    pub(crate) shared: OfMode,
    /// Says that the session, which has the lock exclusively, reads.
    pub(crate) enter_reader: Statement,
    /// Makes an exclusive lock a shared one. It never waits, as the session has the lock.
    pub(crate) downgrade: Statement,
    /// Ends whatever the session has locked. The server logs no warning if that is nothing, but it looks through the locks of all
    /// its sessions: [`unlock`](OfMode::unlock) takes a fraction of the time.
    pub(crate) unlock_any: Statement,
    /// For how long the server has run as a primary, in microseconds.
    pub(crate) age: Statement,
    /// The same where the server shows no timeline.
    pub(crate) age_of_process: Statement,
    /// Who has a name, and who waits for it. The name is its only parameter.
    pub(crate) status: Statement,
    /// Names from one to another, and whether each is used.
    pub(crate) list: Statement,
}

/// The statements of one mode.
#[derive(Debug)]
pub(crate) struct OfMode {
    /// Takes the lock if it is free, and a token with it.
    pub(crate) take: Statement,
    /// Waits for the lock.
    pub(crate) wait: Statement,
    /// Takes a token for a session that has the lock.
    pub(crate) confirm: Statement,
    pub(crate) unlock: Statement,
}

/// Whether the session is the client's own, whose mark is parameter 1.
const IS_MINE: &str = "current_setting('polylock.session',true)=$1";

/// The server's clock in microseconds since 1970.
const CLOCK: &str = "(extract(epoch from clock_timestamp())*1000000)::bigint";

/// The largest token there can be.
const LAST: &str = "9223372036854775807";

/// A token that is not further ahead of the clock than this, in microseconds, is behind it before a server that crashed runs again.
const AHEAD: u64 = 10_000;

/// The row that has the server's timeline as its token, and when that was first seen as its last. No lock has this name.
const TIMELINE: &str = "''::bytea";

/// The advisory locks of this database with a key of 64 bits.
const LOCKS: &str = "pg_locks WHERE locktype='advisory' AND objsubid=1 AND \
     database=(SELECT oid FROM pg_database WHERE datname=current_database())";

/// The key of such a lock. What it is compared with is a `SELECT` of its own, so that the server does not make it anew for each lock.
const KEY_OF_LOCK: &str = "((classid::bigint<<32)|objid::bigint)";

/// What tells one mode from the other.
struct ModeSql {
    try_lock: &'static str,
    lock: &'static str,
    unlock: &'static str,
    /// The columns of the name's row that a grant sets.
    columns: &'static str,
    values: &'static str,
    set: &'static str,
}

const EXCLUSIVE: ModeSql = ModeSql {
    try_lock: "pg_try_advisory_lock",
    lock: "pg_advisory_lock",
    unlock: "pg_advisory_unlock",
    columns: "kind,holder,label",
    values: "0,$3,$4",
    set: "kind=0,holder=$3,label=$4",
};

/// A reader is in the other table. The name's row says only that readers came last.
const SHARED: ModeSql = ModeSql {
    try_lock: "pg_try_advisory_lock_shared",
    lock: "pg_advisory_lock_shared",
    unlock: "pg_advisory_unlock_shared",
    columns: "kind",
    values: "1",
    set: "kind=1",
};

impl SessionStatements {
    /// `schema` is the one that the tables are in, whatever its name.
    pub(crate) fn new(schema: &str, table: &str) -> Self {
        let escaped = schema.replace('"', "\"\"");
        let name = |ending: &str| quoted(Some(&escaped), &format!("{table}_{ending}"));
        let (tokens, readers, key) = (name("tokens"), name("readers"), key_of(schema, table, "$2"));
        let named = [Type::TEXT, Type::BYTEA];
        let reader = [&named[..], &[Type::UUID, Type::BYTEA, Type::INT8]].concat();
        Self {
            exclusive: of_mode(&EXCLUSIVE, &tokens, &readers, &key),
            shared: of_mode(&SHARED, &tokens, &readers, &key),
            enter_reader: statement(enter_reader(&tokens, &readers), &reader),
            downgrade: statement(downgrade(&key), &named),
            unlock_any: statement(
                format!(
                    "WITH h AS MATERIALIZED (SELECT mode='ExclusiveLock' AS alone FROM {LOCKS} AND {KEY_OF_LOCK}=(SELECT {key}) AND granted \
                     AND pid=pg_backend_pid()) SELECT CASE WHEN {IS_MINE} THEN COALESCE((SELECT bool_or(CASE WHEN alone \
                     THEN pg_advisory_unlock({key}) ELSE pg_advisory_unlock_shared({key}) END) FROM h),false) END"
                ),
                &named,
            ),
            age: statement(age(&tokens), &[]),
            age_of_process: statement(
                format!("SELECT {CLOCK}-{}", in_micros("pg_postmaster_start_time()")),
                &[],
            ),
            status: statement(status(&tokens, &readers, &key_of(schema, table, "$1")), &[Type::BYTEA]),
            list: statement(
                format!(
                    "WITH h AS MATERIALIZED (SELECT {KEY_OF_LOCK} AS key FROM {LOCKS}) \
                     SELECT name,{} IN (SELECT key FROM h) FROM {tokens} t \
                     WHERE name>=$1 AND name>$2 AND name<$3 AND name<>{TIMELINE} ORDER BY name LIMIT $4",
                    key_of(schema, table, "t.name")
                ),
                &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8],
            ),
            tokens,
            readers,
            key,
        }
    }

    /// Commits the row of a name so that no crash undoes it. For a session whose commits wait for the disk.
    pub(crate) fn make_durable(&self, name: &str) -> String {
        format!("UPDATE {} SET token=token WHERE name={name}", self.tokens)
    }

    /// Has the name count at least this token. Returns a row if the session is the one with this mark.
    pub(crate) fn raise(&self, mark: &str, name: &str, token: i64) -> String {
        format!(
            "UPDATE {} SET token=GREATEST(token,{token}),last_token=GREATEST(last_token,{token}) WHERE name={name} AND \
             current_setting('polylock.session',true)='{mark}' RETURNING 1",
            self.tokens
        )
    }

    /// Forgets the reader of this session. If it is not executed, a clean-up does the same.
    pub(crate) fn forget_reader(&self, name: &str) -> String {
        format!(
            "DELETE FROM {} WHERE name={name} AND pid=pg_backend_pid()",
            self.readers
        )
    }

    /// Readers that have ended, and rows of names that nobody has used for so many microseconds. A row whose token is ahead of the
    /// clock, or behind it by less, stays.
    pub(crate) fn dead_rows(&self, keep: i64) -> [DeadRows; 2] {
        let Self { tokens, readers, .. } = self;
        let key = self.key.replace("$2", "t.name");
        let held = format!("SELECT FROM {LOCKS} AND {KEY_OF_LOCK}={key}");
        // A reader's row is written after its lock was taken.
        let no_reader = format!("t.token<{CLOCK}-60000000 AND NOT EXISTS ({held} AND pid=t.pid AND granted)");
        let unused = format!("t.name<>{TIMELINE} AND t.last_token<{CLOCK}-{keep} AND NOT EXISTS ({held})");
        [
            DeadRows::new(readers, &["name", "pid"], no_reader),
            DeadRows::new(tokens, &["name"], unused),
        ]
    }

    /// Does nothing, but needs every permission that a lock needs.
    pub(crate) fn check_permissions(&self) -> String {
        let Self { tokens, readers, .. } = self;
        format!(
            "UPDATE {tokens} SET token=token WHERE name='' AND kind=2;\
             INSERT INTO {tokens} SELECT * FROM {tokens} WHERE name='' AND kind=2;\
             UPDATE {readers} SET token=token WHERE name='';DELETE FROM {readers} WHERE name='';\
             INSERT INTO {readers} SELECT * FROM {readers} WHERE name=''"
        )
    }
}

/// The key of the advisory lock of a name. The schema is the one that the table is in, however a client found it.
fn key_of(schema: &str, table: &str, name: &str) -> String {
    let prefix = literal(format!("polylock\0session\0{schema}\0{table}\0").as_bytes());
    format!("('x'||substr(encode(sha256({prefix}||{name}),'hex'),1,16))::bit(64)::bigint")
}

fn of_mode(mode: &ModeSql, tokens: &str, readers: &str, key: &str) -> OfMode {
    // Holder id, label, least token, what stands for the clock, tokens reserved after it.
    let named = &[Type::TEXT, Type::BYTEA];
    let take = [&named[..], &[Type::UUID, Type::BYTEA], &[Type::INT8; 3]].concat();
    let (try_lock, lock, unlock) = (mode.try_lock, mode.lock, mode.unlock);
    OfMode {
        take: statement(grant(mode, tokens, readers, &format!("{try_lock}({key})")), &take),
        wait: statement(
            format!("SELECT CASE WHEN {IS_MINE} THEN {lock}({key})::text END IS NOT NULL"),
            named,
        ),
        confirm: statement(grant(mode, tokens, readers, "true"), &take),
        unlock: statement(format!("SELECT CASE WHEN {IS_MINE} THEN {unlock}({key}) END"), named),
    }
}

/// The lock, and after it the clock, and after that the token. Returns whether the lock was taken, the token, whether a crash might
/// bring it back, and the label of whoever has the name.
fn grant(mode: &ModeSql, tokens: &str, readers: &str, take: &str) -> String {
    let ModeSql {
        columns, values, set, ..
    } = mode;
    let next = "GREATEST(t.last_token+1,excluded.token)";
    let reader = match mode.columns {
        "kind" => format!(
            ",r AS (INSERT INTO {readers} (name,pid,holder,label,token) SELECT $2,pg_backend_pid(),$3,$4,token FROM t \
             ON CONFLICT (name,pid) DO UPDATE SET holder=excluded.holder,label=excluded.label,token=excluded.token)"
        ),
        _ => String::new(),
    };
    format!(
        "WITH l AS MATERIALIZED (SELECT CASE WHEN {IS_MINE} THEN {take} END AS ok),\
         c AS MATERIALIZED (SELECT GREATEST(COALESCE($6,{CLOCK}),$5) AS n FROM l WHERE ok),\
         t AS (INSERT INTO {tokens} AS t (name,{columns},token,last_token) SELECT $2,{values},n,n+LEAST($7,{LAST}-n) FROM c \
         ON CONFLICT (name) DO UPDATE SET {set},token={next},last_token={next}+LEAST($7,{LAST}-{next}) \
         RETURNING token,last_token){reader} \
         SELECT l.ok,t.token,$6 IS NOT NULL OR t.last_token>{CLOCK}+{AHEAD},CASE WHEN NOT l.ok THEN \
         (SELECT CASE WHEN kind=0 THEN label ELSE (SELECT label FROM {readers} WHERE name=$2 ORDER BY token DESC LIMIT 1) END \
         FROM {tokens} WHERE name=$2) END FROM l LEFT JOIN t ON true"
    )
}

fn enter_reader(tokens: &str, readers: &str) -> String {
    format!(
        "WITH t AS (UPDATE {tokens} SET kind=1 WHERE name=$2 AND {IS_MINE}) \
         INSERT INTO {readers} (name,pid,holder,label,token) SELECT $2,pg_backend_pid(),$3,$4,$5 WHERE {IS_MINE} \
         ON CONFLICT (name,pid) DO UPDATE SET holder=excluded.holder,label=excluded.label,token=excluded.token"
    )
}

/// Shared first, so that nobody writes in between. An earlier try may have come half the way or all of it: what it has locked is not
/// locked once more, as one unlock would leave the other.
fn downgrade(key: &str) -> String {
    format!(
        "WITH h AS MATERIALIZED (SELECT mode='ExclusiveLock' AS alone FROM {LOCKS} AND {KEY_OF_LOCK}=(SELECT {key}) AND granted \
         AND pid=pg_backend_pid()),\
         s AS MATERIALIZED (SELECT CASE WHEN {IS_MINE} AND EXISTS(SELECT FROM h) THEN CASE WHEN EXISTS(SELECT FROM h WHERE NOT alone) \
         THEN '' ELSE pg_advisory_lock_shared({key})::text END END AS ok) \
         SELECT CASE WHEN ok IS NOT NULL THEN CASE WHEN EXISTS(SELECT FROM h WHERE alone) THEN pg_advisory_unlock({key}) \
         ELSE true END END FROM s"
    )
}

/// A standby that is promoted keeps its process and gets another timeline: the first who sees that writes down when. If two see it
/// together, the second waits for the first, and reads the row that the first wrote, which its snapshot does not show. A standby may have been
/// promoted without the row, or somebody emptied the table: without one, any server that was ever promoted may have been so just now.
/// The first timeline is that of a server that never was.
fn age(tokens: &str) -> String {
    format!(
        "WITH n AS MATERIALIZED (SELECT ('x'||substr(pg_walfile_name(pg_current_wal_lsn()),1,8))::bit(32)::bigint AS line,{CLOCK} AS now),\
         s AS (INSERT INTO {tokens} AS t (name,token,last_token) SELECT {TIMELINE},line,CASE WHEN line=1 THEN 0 ELSE now END FROM n \
         WHERE NOT EXISTS (SELECT FROM {tokens} WHERE name={TIMELINE} AND token=line) \
         ON CONFLICT (name) DO UPDATE SET token=excluded.token,last_token=\
         CASE WHEN t.token<>excluded.token THEN (SELECT now FROM n) ELSE t.last_token END RETURNING last_token) \
         SELECT now-GREATEST({},COALESCE((SELECT last_token FROM s),(SELECT last_token FROM {tokens} WHERE name={TIMELINE}),0)) FROM n",
        in_micros("pg_postmaster_start_time()")
    )
}

fn status(tokens: &str, readers: &str, key: &str) -> String {
    let waits_since = in_micros("p.waitstart");
    // Of a session that is just being downgraded, the exclusive lock.
    format!(
        "WITH p AS MATERIALIZED (SELECT DISTINCT ON (pid,granted) pid,granted,mode='ExclusiveLock' AS alone,waitstart FROM {LOCKS} \
         AND {KEY_OF_LOCK}=(SELECT {key}) ORDER BY pid,granted,mode) \
         SELECT p.granted,COALESCE(t.holder,r.holder),COALESCE(t.label,r.label),NULL::bigint,COALESCE(t.token,r.token),\
         (CASE WHEN p.alone THEN {} ELSE {} END)::smallint,1::bigint,1::bigint,{waits_since} FROM p LEFT JOIN {tokens} t ON t.name=$1 AND t.kind=0 AND p.alone AND p.granted \
         LEFT JOIN {readers} r ON r.name=$1 AND r.pid=p.pid AND NOT p.alone AND p.granted ORDER BY 9,5",
        Kind::EXCLUSIVE,
        Kind::SHARED,
    )
}

#[cfg(test)]
mod tests;
