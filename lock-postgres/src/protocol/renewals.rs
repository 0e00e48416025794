//! The statements that renew many holds in one round trip.

use tokio_postgres::types::Type;

use super::{NOW, micros, statement};
use crate::connection::Statement;

/// Two statements that renew many holds. They return those that they renewed, and those that they could not lock.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) waiting: Statement,
    /// Waits for no row that somebody else has locked.
    pub(crate) unlocked: Statement,
}

impl Renewals {
    pub(super) fn of_exclusive(leases: &str) -> Self {
        Self::new(|skip| renew(leases, skip))
    }

    pub(super) fn of_sharers(leases: &str, holders: &str) -> Self {
        Self::new(|skip| renew_shared(leases, holders, skip))
    }

    fn new(sql: impl Fn(&str) -> String) -> Self {
        // Names, holder ids, TTLs.
        let types = [Type::BYTEA_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY];
        Self {
            waiting: statement(sql(""), &types),
            unlocked: statement(sql("SKIP LOCKED"), &types),
        }
    }
}

/// Two callers may renew one hold at once, with a TTL each: the longest counts.
fn renew(leases: &str, skip: &str) -> String {
    let ttl = micros("r.ttl");
    let (locked, and_locked) = match skip {
        "" => (String::new(), ""),
        skip => (
            format!(
                "f AS MATERIALIZED (SELECT l.name FROM {leases} l JOIN r ON l.name=r.name AND l.holder=r.holder \
                 FOR NO KEY UPDATE OF l {skip}),"
            ),
            " AND EXISTS (SELECT FROM f WHERE f.name=l.name)",
        ),
    };
    format!(
        "WITH r AS MATERIALIZED (SELECT name,holder,max(ttl) AS ttl FROM unnest($1,$2,$3) AS r(name,holder,ttl) GROUP BY name,holder),\
         {locked}\
         u AS (UPDATE {leases} l SET term=GREATEST(l.term,{ttl}),\
         expires=GREATEST(LEAST(l.expires,clock_timestamp()+l.term),{NOW}+{ttl}) FROM r \
         WHERE l.name=r.name AND l.holder=r.holder AND l.kind=0 AND l.expires>{NOW}{and_locked} RETURNING l.holder) \
         SELECT holder,true FROM u UNION ALL SELECT r.holder,false FROM r JOIN {leases} l ON l.name=r.name AND l.holder=r.holder \
         WHERE l.kind=0 AND l.expires>{NOW} AND NOT EXISTS (SELECT FROM u WHERE u.holder=r.holder)"
    )
}

/// The names' rows are locked in order, and each before those who share it. It moves their ends only forward: those who have come or left
/// since the statement began are not in what it reads.
fn renew_shared(leases: &str, holders: &str, skip: &str) -> String {
    let ttl = micros("r.ttl");
    let is_shared = format!("l.kind<>0 AND l.expires>{NOW}");
    let is_there = format!("{is_shared} AND h.expires>{NOW}");
    let all = format!("r JOIN {leases} l ON l.name=r.name JOIN {holders} h ON h.name=r.name AND h.holder=r.holder");
    let lock = match skip {
        "" => format!(
            "{leases} l WHERE l.name IN (SELECT name FROM r) AND {is_shared} ORDER BY l.name FOR NO KEY UPDATE OF l"
        ),
        skip => format!("{all} WHERE {is_there} FOR NO KEY UPDATE OF l,h {skip}"),
    };
    let (columns, and_locked) = match skip {
        "" => ("l.name", ""),
        _ => ("l.name,h.holder", " AND f.holder=r.holder"),
    };
    format!(
        "WITH r AS MATERIALIZED (SELECT name,holder,max(ttl) AS ttl FROM unnest($1,$2,$3) AS r(name,holder,ttl) GROUP BY name,holder),\
         f AS MATERIALIZED (SELECT {columns} FROM {lock}),\
         u AS (UPDATE {holders} h SET term=GREATEST(h.term,{ttl}),\
         expires=GREATEST(LEAST(h.expires,clock_timestamp()+h.term),{NOW}+{ttl}) FROM r JOIN f ON f.name=r.name{and_locked} \
         WHERE h.name=r.name AND h.holder=r.holder AND h.expires>{NOW} RETURNING h.name,h.holder,h.term,h.expires),\
         e AS (UPDATE {leases} l SET term=GREATEST(l.term,n.term),\
         expires=GREATEST(LEAST(l.expires,clock_timestamp()+l.term),n.ends) \
         FROM (SELECT name,max(term) AS term,max(expires) AS ends FROM u GROUP BY name) n WHERE l.name=n.name) \
         SELECT holder,true FROM u UNION ALL SELECT r.holder,false FROM {all} \
         WHERE {is_there} AND NOT EXISTS (SELECT FROM u WHERE u.name=r.name AND u.holder=r.holder)"
    )
}
