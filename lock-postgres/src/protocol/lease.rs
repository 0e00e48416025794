//! The statements of exclusive holds.
//!
//! In READ COMMITTED, a statement that had to wait for a row looks at it again, and at nothing else. So all that decides about a
//! hold is in the row of its name, in the `WHERE` and `SET` of one statement. What must read another table after that row is
//! locked is [another statement](super::sharing) of the same transaction.
//!
//! An `INSERT … ON CONFLICT DO UPDATE … WHERE` would lock the row and write even if its condition refuses; an `UPDATE` that matches
//! nothing writes nothing. A notification never shares a transaction with a write, since it would take one lock of the whole server
//! until the commit has reached the disk.

use tokio_postgres::types::Type;

use super::dead_rows::DeadRows;
use super::renewals::Renewals;
use super::{EARLIER_CLOCK, IS_LIVE, LONG_AGO, MARK, NEXT_PLACE, NOBODY, NOW, in_micros, micros, statement};
use crate::connection::Statement;
use crate::names::quoted;

/// The statements, with the names of the tables, made once.
#[derive(Debug)]
pub(crate) struct LeaseStatements {
    /// The tables of names, of holds that share their names, and of the queue.
    pub(super) tables: [String; 3],
    /// Takes a free name whose row is there. Returns the token.
    pub(crate) take: Statement,
    /// Takes a free name, makes its row, or returns who has it. Repeated by its holder, it renews.
    pub(crate) ask: Statement,
    /// Enters the queue of a name that is taken. Returns the place; nothing if it is free.
    pub(crate) queue: Statement,
    /// Takes a free name if nobody before this place waits; otherwise refreshes the place.
    pub(crate) turn: Statement,
    pub(crate) renew: Renewals,
    /// The same of holds that share their names.
    pub(crate) renew_shared: Renewals,
    /// Ends a hold, and says whether somebody waits.
    pub(crate) release: Statement,
    /// Ends whatever an id has, its place in the queue included.
    pub(crate) end: Statement,
    /// Has the name count at least this token.
    pub(crate) raise: Statement,
    /// Ends the hold with a token, whoever has it: at once, or when its lease ends. Returns how long it would have lasted, and
    /// whether somebody waits.
    pub(crate) revoke: Statement,
    /// Who has a name, and who waits for it.
    pub(crate) status: Statement,
    /// Names from one to another, and whether each is used.
    pub(crate) list: Statement,
    /// Ends a hold that lasts longer than its term, because the clock was set back, when that term is over.
    pub(crate) cut: Statement,
}

/// The server's clock in microseconds since 1970, or what stands for it: parameter 6.
const CLOCK: &str = "COALESCE($6,(extract(epoch from statement_timestamp())*1000000)::bigint)";

/// Whether the request, whose id is parameter 2, has the name already.
const IS_MINE: &str = "(holder=$2 AND kind=0 AND expires>statement_timestamp())";

/// What a request that is refused learns: the label, for how long, whether somebody has it, whether somebody waits, and whether it
/// lasts longer than its term.
fn refusal() -> String {
    let rest = in_micros(&format!(
        "CASE WHEN expires>{NOW} THEN LEAST(expires-{NOW},term) ELSE GREATEST({MARK},{NOW})-{NOW} END"
    ));
    format!("label,{rest},expires>{NOW},{MARK}>{NOW},expires>clock_timestamp()+term")
}

impl LeaseStatements {
    /// The names need no escape.
    pub(crate) fn new(schema: Option<&str>, table: &str) -> Self {
        let name = |ending: &str| quoted(schema, &format!("{table}_{ending}"));
        let (leases, holders, waiters) = (name("leases"), name("holders"), name("waiters"));
        let id = [Type::BYTEA, Type::UUID];
        let place = [Type::BYTEA, Type::INT8, Type::TEXT, Type::INT2];
        Self {
            take: statement(take(&leases), &takes()),
            ask: statement(ask(&leases), &takes()),
            queue: statement(queue(&leases, &waiters), &[&id[..], &place, &[Type::INT8; 2]].concat()),
            turn: statement(turn(&leases, &waiters), &[&takes()[..], &[Type::INT8; 2]].concat()),
            renew: Renewals::of_exclusive(&leases),
            renew_shared: Renewals::of_sharers(&leases, &holders),
            release: statement(release(&leases), &[&id[..], &[Type::INT8]].concat()),
            end: statement(end(&leases, &waiters), &id),
            raise: statement(raise(&leases), &[&id[..], &[Type::INT8]].concat()),
            revoke: statement(revoke(&leases), &[Type::BYTEA, Type::INT8, Type::BOOL, Type::UUID]),
            status: statement(status(&leases, &holders, &waiters), &[Type::BYTEA]),
            list: statement(
                list(&leases, &waiters),
                &[Type::BYTEA, Type::BYTEA, Type::BYTEA, Type::INT8],
            ),
            cut: statement(cut(&leases), &[Type::BYTEA]),
            tables: [leases, holders, waiters],
        }
    }

    /// Fails soon if somebody keeps the row of a name locked. Clients of ours lock it for a moment.
    pub(crate) fn lock_soon(&self, name: &str) -> String {
        let [leases, ..] = &self.tables;
        format!("SET LOCAL lock_timeout=50;SELECT FROM {leases} WHERE name={name} FOR NO KEY UPDATE")
    }

    /// Calls the first two who wait for a name: the one whose turn it is, and a stand-by.
    pub(crate) fn call(&self, name: &str) -> String {
        let [.., waiters] = &self.tables;
        format!(
            "SELECT pg_notify(channel,translate(holder::text,'-','')||':'||n) FROM (SELECT channel,holder,\
             row_number() OVER (ORDER BY place) AS n FROM {waiters} w WHERE name={name} AND {IS_LIVE} ORDER BY place LIMIT 2) c \
             WHERE channel<>''"
        )
    }

    /// Rows of names that nobody has used for so long, and of sharers and waiters that have ended. A row whose token is ahead of the
    /// clock, or behind it by less, stays.
    pub(crate) fn dead_rows(&self, keep: i64) -> [DeadRows; 3] {
        let [leases, holders, waiters] = &self.tables;
        let old = format!("{NOW}-interval '1 microsecond'*{keep}");
        [
            // An entry of the far future is from before the clock was set back.
            DeadRows::new(
                waiters,
                &["name", "place"],
                format!("expires NOT BETWEEN {NOW}-interval '1 min' AND {NOW}+interval '1 min'"),
            ),
            DeadRows::new(holders, &["name", "holder"], format!("expires<{old}")),
            DeadRows::new(
                leases,
                &["name"],
                format!(
                    "expires<{old} AND wanted<{NOW} AND last_token<{}-{keep} AND NOT EXISTS \
                     (SELECT FROM unnest(dead_at) t WHERE t>{NOW}-interval '1 h')",
                    in_micros(NOW)
                ),
            ),
        ]
    }

    /// Does nothing, but needs every permission that a lock needs. No lock has an empty name.
    pub(crate) fn check_permissions(&self) -> String {
        let [leases, holders, waiters] = &self.tables;
        format!(
            "UPDATE {leases} SET wanted=wanted WHERE name='';INSERT INTO {leases} (name) SELECT name FROM {leases} WHERE name='';\
             UPDATE {holders} SET term=term WHERE name='';DELETE FROM {holders} WHERE name='';\
             INSERT INTO {holders} SELECT * FROM {holders} WHERE name='';\
             UPDATE {waiters} SET place=place WHERE name='';DELETE FROM {waiters} WHERE name='';\
             INSERT INTO {waiters} SELECT * FROM {waiters} WHERE name=''"
        )
    }
}

/// Name, holder id, label, TTL in microseconds, least token, what stands for the clock, tokens reserved.
fn takes() -> Vec<Type> {
    [&[Type::BYTEA, Type::UUID, Type::BYTEA][..], &[Type::INT8; 4]].concat()
}

/// The next token of a row, and the last one that comes with it.
fn tokens(last: &str) -> (String, String) {
    let next = format!("GREATEST({last}+1,{CLOCK},$5)");
    let reserved = format!("{next}+LEAST($7,9223372036854775807-{next})");
    (next, reserved)
}

fn take(leases: &str) -> String {
    let (ttl, (next, last)) = (micros("$4"), tokens("last_token"));
    format!(
        "UPDATE {leases} SET holder=$2,kind=0,label=$3,term={ttl},expires={NOW}+{ttl},token={next},last_token={last} \
         WHERE name=$1 AND GREATEST(expires,{MARK})<={EARLIER_CLOCK} AND NOT $2=ANY(dead) RETURNING token"
    )
}

/// The columns of a grant, which a repeated request leaves as they are but for their end.
fn granted() -> String {
    let (ttl, (next, last)) = (micros("$4"), tokens("last_token"));
    format!(
        "holder=$2,kind=0,label=$3,term=CASE WHEN {IS_MINE} THEN GREATEST(term,{ttl}) ELSE {ttl} END,\
         expires=CASE WHEN {IS_MINE} THEN GREATEST(LEAST(expires,clock_timestamp()+term),{NOW}+{ttl}) ELSE {NOW}+{ttl} END,\
         token=CASE WHEN {IS_MINE} THEN token ELSE {next} END,last_token=CASE WHEN {IS_MINE} THEN last_token ELSE {last} END"
    )
}

fn ask(leases: &str) -> String {
    let (grant, ttl, (first, last), refusal) = (granted(), micros("$4"), tokens("0"), refusal());
    format!(
        "WITH g AS (UPDATE {leases} SET {grant} \
         WHERE name=$1 AND NOT $2=ANY(dead) AND (GREATEST(expires,{MARK})<={EARLIER_CLOCK} OR {IS_MINE}) RETURNING token),\
         n AS (INSERT INTO {leases} (name,holder,label,term,expires,token,last_token) \
         SELECT $1,$2,$3,{ttl},{NOW}+{ttl},{first},{last} WHERE NOT EXISTS (SELECT FROM {leases} WHERE name=$1) \
         ON CONFLICT DO NOTHING RETURNING token) \
         SELECT token,NULL::bytea,NULL::bigint,NULL::bool,NULL::bool,NULL::bool FROM g \
         UNION ALL SELECT token,NULL,NULL,NULL,NULL,NULL FROM n \
         UNION ALL SELECT NULL,{refusal} FROM {leases} WHERE name=$1 AND NOT EXISTS (SELECT FROM g)"
    )
}

/// A name that was released while this waited for its row is free: its release has called nobody, so nobody must wait for it.
///
/// The commit waits for no disk, so a crash may undo it. The entry goes with the place: a waiter that still has the place enters
/// again.
fn queue(leases: &str, waiters: &str) -> String {
    let lasts = micros("$4");
    format!(
        "WITH c AS MATERIALIZED (SELECT set_config('synchronous_commit','off',true)),\
         l AS (UPDATE {leases} SET wanted=GREATEST({MARK},{NOW}+{lasts}),last_place={NEXT_PLACE} FROM c \
         WHERE name=$1 AND (expires>clock_timestamp() OR {MARK}>{NOW}) AND NOT $2=ANY(dead) RETURNING last_place) \
         INSERT INTO {waiters} (name,place,holder,channel,kind,permits,\"of\",label,since,expires) \
         SELECT $1,last_place,$2,$5,$6,$7,$8,$3,{NOW},{NOW}+{lasts} FROM l RETURNING place"
    )
}

/// It locks the name's row before its entry, as all that ends an id does. A request that has the name already is granted it whoever waits:
/// an entry before it may have ended, and come back to life.
fn turn(leases: &str, waiters: &str) -> String {
    let (grant, lasts, refusal) = (granted(), micros("$9"), refusal());
    format!(
        "WITH g AS (UPDATE {leases} SET {grant},wanted=CASE WHEN last_place=$8 \
         AND EXISTS (SELECT FROM {waiters} WHERE name=$1 AND place=$8 AND holder=$2) THEN '-infinity' ELSE wanted END \
         WHERE name=$1 AND NOT $2=ANY(dead) AND ({IS_MINE} OR (expires<={EARLIER_CLOCK} \
         AND NOT EXISTS (SELECT FROM {waiters} w WHERE w.name=$1 AND w.place<$8 AND w.holder<>$2 AND {IS_LIVE}))) \
         RETURNING token),\
         d AS (DELETE FROM {waiters} WHERE name=$1 AND holder=$2 AND EXISTS (SELECT FROM g)),\
         e AS (UPDATE {leases} SET wanted=GREATEST({MARK},{NOW}+{lasts}) WHERE name=$1 AND NOT EXISTS (SELECT FROM g) \
         AND EXISTS (SELECT FROM {waiters} WHERE name=$1 AND place=$8 AND holder=$2) RETURNING 1),\
         u AS (UPDATE {waiters} SET expires={NOW}+{lasts} WHERE name=$1 AND place=$8 AND holder=$2 \
         AND EXISTS (SELECT FROM e) RETURNING 1) \
         SELECT (SELECT token FROM g),{refusal},(SELECT count(*) FROM u)>0,\
         (SELECT set_config('synchronous_commit','off',true) WHERE NOT EXISTS (SELECT FROM g)) FROM {leases} WHERE name=$1"
    )
}

/// A name that is free has always been: if the clock is set back, it stays so.
fn release(leases: &str) -> String {
    let rest = micros("$3");
    format!(
        "UPDATE {leases} SET holder=CASE WHEN $3>0 THEN {NOBODY} END,label=CASE WHEN $3>0 THEN label END,\
         term=CASE WHEN $3>0 THEN {rest} ELSE term END,expires=CASE WHEN $3>0 THEN {NOW}+{rest} ELSE {LONG_AGO} END \
         WHERE name=$1 AND holder=$2 AND kind=0 AND expires>{NOW} RETURNING {MARK}>{NOW}"
    )
}

fn end(leases: &str, waiters: &str) -> String {
    format!(
        "WITH x AS (UPDATE {leases} SET holder=NULL,label=NULL,expires={LONG_AGO} WHERE name=$1 AND {IS_MINE} RETURNING {MARK}>{NOW} AS w),\
         d AS (DELETE FROM {waiters} WHERE name=$1 AND holder=$2 RETURNING 1) \
         SELECT EXISTS (SELECT FROM x),EXISTS (SELECT FROM x WHERE w) OR EXISTS (SELECT FROM d)"
    )
}

fn raise(leases: &str) -> String {
    format!("UPDATE {leases} SET last_token=GREATEST(last_token,$3) WHERE name=$1 AND {IS_MINE} RETURNING 1")
}

fn cut(leases: &str) -> String {
    format!("UPDATE {leases} SET expires=clock_timestamp()+term WHERE name=$1 AND expires>clock_timestamp()+term")
}

fn revoke(leases: &str) -> String {
    let is_it = format!("name=$1 AND kind=0 AND holder IS NOT NULL AND token<=$2 AND last_token>=$2 AND expires>{NOW}");
    let rest = in_micros(&format!("LEAST(expires-{NOW},term)"));
    format!(
        "WITH was AS MATERIALIZED (SELECT {rest} AS rest FROM {leases} WHERE {is_it} FOR UPDATE),\
         u AS (UPDATE {leases} SET holder=CASE WHEN $3 THEN NULL ELSE $4 END,label=CASE WHEN $3 THEN NULL ELSE label END,\
         expires=CASE WHEN $3 THEN {LONG_AGO} ELSE expires END WHERE {is_it} AND EXISTS (SELECT FROM was) RETURNING {MARK}>{NOW} AS w) \
         SELECT rest,EXISTS (SELECT FROM u WHERE w) FROM was"
    )
}

fn status(leases: &str, holders: &str, waiters: &str) -> String {
    let rest = |table: &str| in_micros(&format!("LEAST({table}.expires-{NOW},{table}.term)"));
    let (alone, shared, since) = (rest("l"), rest("h"), in_micros("w.since"));
    format!(
        "SELECT true AS holds,l.holder,l.label,{alone},l.token,l.kind,1::bigint,1::bigint,NULL::bigint,0::bigint AS n \
         FROM {leases} l WHERE l.name=$1 AND l.kind=0 AND l.expires>{NOW} \
         UNION ALL SELECT true,h.holder,h.label,{shared},h.token,h.kind,h.permits,h.\"of\",NULL,h.token \
         FROM {holders} h JOIN {leases} l ON l.name=h.name WHERE h.name=$1 AND l.kind<>0 AND l.expires>{NOW} AND h.expires>{NOW} \
         UNION ALL SELECT false,NULL,w.label,NULL,NULL,w.kind,w.permits,w.\"of\",{since},w.place \
         FROM {waiters} w WHERE w.name=$1 AND {IS_LIVE} ORDER BY holds DESC,n"
    )
}

fn list(leases: &str, waiters: &str) -> String {
    format!(
        "SELECT name,expires>{NOW} OR EXISTS (SELECT FROM {waiters} w WHERE w.name=l.name AND {IS_LIVE}) FROM {leases} l \
         WHERE name>=$1 AND name>$2 AND name<$3 ORDER BY name LIMIT $4"
    )
}
