//! The statements of holds that share a name: readers, and permits.
//!
//! While anybody shares a name, its row has no holder, its `kind` says how it is shared, and it expires no earlier than the last of
//! them. So the statements of exclusive holds refuse it as they refuse any other hold. Those who share it are rows of a second table,
//! each with its own expiry. They count only while the name's row says that it is shared.
//!
//! Each of these requests is one text of statements, which the server executes as one transaction in one round trip. It **locks the
//! name's row first**: a statement that waits for a row reads other tables as they were before. Counted without that, as one
//! statement, up to six clients held three permits at a time.

use std::time::Duration;

use lock_core::backend::{HolderId, Revoke};
use lock_core::{FencingToken, LockName};

use super::lease::LeaseStatements;
use super::terms::{Kind, LeaseTerms, as_micros};
use super::{EARLIER_CLOCK, IS_LIVE, LONG_AGO, MARK, NEXT_PLACE, NO_PLACE, NOBODY, NOW, in_micros, micros};
use crate::names::{id_literal, id_of, literal, literal_or_null, name_bytes};

/// The entry in the queue that a request leaves if it is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) channel: &'a str,
    pub(crate) lasts: i64,
}

/// How whatever an id has is ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    /// It leaves a tombstone, so that the server refuses requests of this id that come later.
    pub(crate) buries: bool,
    /// The name stays taken for so long.
    pub(crate) keep_for: Option<Duration>,
}

impl LeaseStatements {
    /// Shares the name if that fits with all who have it and all who wait before this place. If it is refused and has an `entry`, it
    /// enters the queue, or refreshes its place.
    pub(crate) fn share(&self, terms: &LeaseTerms, place: Option<i64>, entry: Option<Entry<'_>>) -> String {
        let [leases, holders, waiters] = &self.tables;
        let (name, id, label) = (
            literal(&terms.name),
            id_literal(terms.holder),
            literal_or_null(terms.label.as_deref()),
        );
        let Kind { kind, permits, of } = terms.kind;
        let (ttl, place) = (micros(&terms.ttl_micros().to_string()), place.unwrap_or(NO_PLACE));
        let clock = match terms.at_least {
            Some(token) => token.to_string(),
            None => in_micros(NOW),
        };
        let next = format!("GREATEST(l.last_token+1,{clock},{})", terms.least);
        let fits = match kind {
            Kind::PERMITS => format!("l.kind={kind} AND h.taken+{permits}<={of}"),
            _ => format!("l.kind={kind}"),
        };
        // One that has to wait is not passed, although there may be room behind it. Nor is one that fits and has not asked yet, if its own
        // limit would then be passed.
        let waits = match kind {
            Kind::PERMITS => format!("a.kind<>{kind} OR h.taken+a.taken+{permits}>LEAST(a.\"of\",{of})"),
            _ => format!("a.kind<>{kind}"),
        };
        let lock = self.lock(&name);
        let decide = format!(
            "WITH h AS (SELECT COALESCE(sum(permits) FILTER (WHERE holder<>{id}),0) AS taken,max(expires) AS ends,\
             max(term) AS longest FROM {holders} WHERE name={name}),\
             m AS (SELECT token FROM {holders} WHERE name={name} AND holder={id}),\
             a AS (SELECT kind,\"of\",sum(permits) OVER (ORDER BY place) AS taken FROM {waiters} w \
             WHERE name={name} AND place<{place} AND holder<>{id} AND {IS_LIVE}),\
             t AS (UPDATE {leases} l SET kind={kind},holder=NULL,label=NULL,\
             token=CASE WHEN EXISTS (SELECT FROM m) THEN l.token ELSE {next} END,\
             last_token=CASE WHEN EXISTS (SELECT FROM m) THEN l.last_token ELSE {next} END,\
             term=GREATEST(h.longest,{ttl}),expires=GREATEST(h.ends,{NOW}+{ttl}),\
             wanted=CASE WHEN last_place={place} AND NOT EXISTS (SELECT FROM a) \
             AND EXISTS (SELECT FROM {waiters} WHERE name={name} AND place={place} AND holder={id}) THEN '-infinity' ELSE wanted END FROM h \
             WHERE l.name={name} AND NOT {id}=ANY(l.dead) AND (EXISTS (SELECT FROM m) OR (\
             (l.expires<={EARLIER_CLOCK} OR ({fits})) AND NOT EXISTS (SELECT FROM a WHERE {waits}))) RETURNING l.token),\
             i AS (INSERT INTO {holders} AS o (name,holder,kind,label,permits,\"of\",term,expires,token) \
             SELECT {name},{id},{kind},{label},{permits},{of},{ttl},{NOW}+{ttl},token FROM t \
             ON CONFLICT (name,holder) DO UPDATE SET term=GREATEST(o.term,excluded.term),\
             expires=GREATEST(o.expires,excluded.expires) RETURNING o.token),\
             d AS (DELETE FROM {waiters} WHERE name={name} AND holder={id} AND EXISTS (SELECT FROM i)) \
             SELECT token FROM i"
        );
        let is_granted = format!("EXISTS (SELECT FROM {holders} WHERE name={name} AND holder={id})");
        let enter = entry.map_or_else(String::new, |Entry { channel, lasts }| {
            let until = format!("{NOW}+{}", micros(&lasts.to_string()));
            let refused = format!("NOT {is_granted}");
            format!(
                "UPDATE {waiters} SET expires={until} WHERE name={name} AND holder={id} AND place={place} AND {refused};\
                 WITH p AS (UPDATE {leases} SET wanted=GREATEST({MARK},{until}),last_place=CASE WHEN \
                 EXISTS (SELECT FROM {waiters} WHERE name={name} AND holder={id} AND place={place}) THEN last_place ELSE {NEXT_PLACE} END \
                 WHERE name={name} AND {refused} AND NOT {id}=ANY(dead) RETURNING last_place) \
                 INSERT INTO {waiters} (name,place,holder,channel,kind,permits,\"of\",label,since,expires) \
                 SELECT {name},last_place,{id},'{channel}',{kind},{permits},{of},{label},{NOW},{until} FROM p \
                 WHERE NOT EXISTS (SELECT FROM {waiters} WHERE name={name} AND holder={id} AND place={place});"
            )
        });
        let first = match kind {
            Kind::PERMITS => "min",
            _ => "max",
        };
        let rest = in_micros(&format!(
            "LEAST(GREATEST(COALESCE((SELECT {first}(expires) FROM {holders} WHERE name={name}),l.expires),{NOW})-{NOW},l.term)"
        ));
        let tell = format!(
            "SELECT 'polylock',(SELECT token FROM {holders} WHERE name={name} AND holder={id}),\
             (SELECT max(place) FROM {waiters} WHERE name={name} AND holder={id}),\
             {rest},{MARK}>{NOW},encode(COALESCE(l.label,(SELECT label FROM {holders} WHERE name={name} \
             AND holder<>{id} ORDER BY token LIMIT 1)),'hex') FROM {leases} l WHERE l.name={name}"
        );
        format!("{lock};{decide};{enter}{tell}")
    }

    /// Makes and locks the row of a name, deletes sharers who have ended, and cuts those that last longer than their terms, because
    /// the clock was set back. Of a row that nobody shares, all have ended.
    fn lock(&self, name: &str) -> String {
        let [leases, holders, _] = &self.tables;
        format!(
            "INSERT INTO {leases} (name) VALUES ({name}) ON CONFLICT DO NOTHING;\
             SELECT FROM {leases} WHERE name={name} FOR UPDATE;\
             UPDATE {leases} SET expires=clock_timestamp()+term WHERE name={name} AND expires>clock_timestamp()+term;\
             UPDATE {holders} SET expires=clock_timestamp()+term WHERE name={name} AND expires>clock_timestamp()+term;\
             DELETE FROM {holders} h USING {leases} l WHERE l.name={name} AND h.name={name} \
             AND (l.kind=0 OR l.expires<={EARLIER_CLOCK} OR h.expires<={EARLIER_CLOCK})"
        )
    }

    /// Ends whatever this id has: as the exclusive holder, as a sharer, or in the queue. Says whether it was there, and whether somebody
    /// waits.
    pub(crate) fn end_any(&self, name: &LockName, holder: HolderId, how: End) -> String {
        let [leases, holders, waiters] = &self.tables;
        let (name, id) = (literal(name_bytes(name)), id_literal(id_of(holder)));
        let bury = match how.buries {
            true => {
                let recent = format!("WHERE t>{NOW}-interval '1 h' AND i<>{id}");
                format!(
                    "UPDATE {leases} SET dead=(SELECT COALESCE(array_agg(i),'{{}}')||{id} FROM unnest(dead,dead_at) AS d(i,t) {recent}),\
                     dead_at=(SELECT COALESCE(array_agg(t),'{{}}')||{NOW} FROM unnest(dead,dead_at) AS d(i,t) {recent}) \
                     WHERE name={name};"
                )
            }
            false => String::new(),
        };
        // Only an exclusive hold has a minimum.
        let freed = match how.keep_for.filter(|keep| !keep.is_zero()) {
            None => format!("holder=NULL,label=NULL,expires={LONG_AGO}"),
            Some(keep) => {
                let rest = micros(&as_micros(keep).to_string());
                format!("holder={NOBODY},term={rest},expires={NOW}+{rest}")
            }
        };
        format!(
            "{};{bury}DELETE FROM {waiters} WHERE name={name} AND holder={id};\
             WITH x AS (UPDATE {leases} SET {freed} \
             WHERE name={name} AND holder={id} AND kind=0 AND expires>{NOW} RETURNING 1),\
             y AS (DELETE FROM {holders} WHERE name={name} AND holder={id} RETURNING 1) \
             SELECT 'polylock',EXISTS (SELECT FROM x) OR EXISTS (SELECT FROM y),{MARK}>{NOW} FROM {leases} WHERE name={name};{}",
            self.lock(&name),
            settle(leases, holders, &name)
        )
    }

    /// Makes an exclusive hold a reader's. Repeated, it renews. Says whether it was there, and whether somebody waits.
    pub(crate) fn downgrade(&self, name: &LockName, holder: HolderId, token: FencingToken, ttl: Duration) -> String {
        let [leases, holders, _] = &self.tables;
        let (name, id) = (literal(name_bytes(name)), id_literal(id_of(holder)));
        let ttl = micros(&as_micros(ttl).to_string());
        format!(
            "{};WITH x AS (UPDATE {leases} SET kind={kind},holder=NULL,expires=GREATEST(expires,{NOW}+{ttl}),\
             term=GREATEST(term,{ttl}) WHERE name={name} AND holder={id} AND kind=0 AND expires>{NOW} RETURNING label,expires,term) \
             INSERT INTO {holders} (name,holder,kind,label,permits,\"of\",term,expires,token) \
             SELECT {name},{id},{kind},label,1,1,term,expires,{token} FROM x;\
             UPDATE {holders} SET term=GREATEST(term,{ttl}),expires=GREATEST(expires,{NOW}+{ttl}) \
             WHERE name={name} AND holder={id};{};\
             SELECT 'polylock',EXISTS (SELECT FROM {holders} WHERE name={name} AND holder={id}),{MARK}>{NOW} \
             FROM {leases} WHERE name={name}",
            self.lock(&name),
            settle(leases, holders, &name),
            kind = Kind::SHARED,
        )
    }

    /// Has the name count at least this token, if the hold shares it. Says whether it was there.
    pub(crate) fn raise_shared(&self, name: &LockName, holder: HolderId, token: FencingToken) -> String {
        let [leases, holders, _] = &self.tables;
        let (name, id) = (literal(name_bytes(name)), id_literal(id_of(holder)));
        let is_there = format!("EXISTS (SELECT FROM {holders} WHERE name={name} AND holder={id})");
        format!(
            "{};UPDATE {leases} SET last_token=GREATEST(last_token,{token}) WHERE name={name} AND {is_there};\
             SELECT 'polylock',{is_there}",
            self.lock(&name)
        )
    }

    /// Ends the sharer with this token. Says how long it would have lasted, and whether somebody waits; nothing if it is not there.
    pub(crate) fn revoke_shared(&self, name: &LockName, token: FencingToken, how: Revoke) -> String {
        let [leases, holders, _] = &self.tables;
        let name = literal(name_bytes(name));
        let end = match how {
            Revoke::AtLeaseEnd => {
                let nobody = id_literal(id_of(HolderId::random()));
                format!("UPDATE {holders} SET holder={nobody} WHERE name={name} AND token={token}")
            }
            _ => format!("DELETE FROM {holders} WHERE name={name} AND token={token}"),
        };
        let rest = in_micros(&format!("GREATEST(h.expires-{NOW},interval '0')"));
        format!(
            "{};SELECT 'polylock',{rest},{MARK}>{NOW} FROM {holders} h,{leases} l \
             WHERE h.name={name} AND h.token={token} AND l.name={name};{end};{}",
            self.lock(&name),
            settle(leases, holders, &name)
        )
    }
}

/// A name that is shared lasts as long as the last of those who share it, and is free without them.
fn settle(leases: &str, holders: &str, name: &str) -> String {
    format!(
        "UPDATE {leases} l SET expires=COALESCE(h.ends,{LONG_AGO}),term=COALESCE(h.longest,l.term) \
         FROM (SELECT max(expires) AS ends,max(term) AS longest FROM {holders} WHERE name={name}) h \
         WHERE l.name={name} AND l.kind<>0 AND l.expires>{NOW} AND l.expires<>COALESCE(h.ends,{LONG_AGO})"
    )
}
