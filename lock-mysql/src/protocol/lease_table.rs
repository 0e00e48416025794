//! The statements of the lease table, as text with all values in it. Golden tests pin them: what other versions of this
//! crate, and people, find in the table must not change by accident.
//!
//! A row belongs to a name for good. `expires` and `term` are microseconds, as `BIGINT`: a `DATETIME` would need conversions
//! for each sum and each comparison with a token, and their result would depend on SQL modes. `token` is the hold's,
//! `last_token` the last one that it reserved.
//!
//! Two clocks: `UTC_TIMESTAMP` stands still while a statement runs, so that all its expressions decide alike. If the
//! statement waited for the row, that moment has passed: a hold then counts as live for a little too long, and lasts a
//! little shorter than it could. Both are safe. `SYSDATE` is the moment at which the row is ours. It decides whether a hold
//! ends later than its own term allows, because the clock was set back. The other clock would cut holds that began while
//! the statement waited.

use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, ListFrom};
use lock_core::{FencingToken, LockName};

pub(crate) use self::answers::{acquired, free_for, granted, holder, holds, released};
pub(crate) use self::queue::{entered, sleeper_of};
use self::sharing::KINDS;
use crate::names::{label_literal, name_literal};
use crate::protocol::{DeadRows, HoldRenewal, list_statement};

/// Names of tables, made once.
#[derive(Debug)]
pub(crate) struct LeaseStatements {
    /// One row per name: who holds it until when, and its last token.
    leases: String,
    /// One row for each who shares a name.
    holders: String,
    /// The database of the tables. Named locks belong to the whole server.
    database: String,
}

/// Set in an answer if the name is taken: a bit that no token has. The rest is how long it stays taken, in microseconds.
const TAKEN: u64 = 1 << 63;
/// Set besides if the row has the mark of this waiter. No name stays taken for that long.
const MARKED: u64 = 1 << 62;

/// The most tokens that a grant may reserve after its own.
const MOST_RESERVED: u32 = 16;

macro_rules! micros_since_1970 {
    ($clock:literal) => {
        concat!("TIMESTAMPDIFF(MICROSECOND,'1970-01-01',", $clock, "(6))")
    };
}

/// The server's clock in microseconds since 1970, when the statement began. The session's time zone is UTC.
const NOW: &str = micros_since_1970!("UTC_TIMESTAMP");

macro_rules! earlier_clock {
    () => {
        concat!(
            "LEAST(",
            micros_since_1970!("UTC_TIMESTAMP"),
            ",",
            micros_since_1970!("SYSDATE"),
            ")"
        )
    };
}

/// The clock by which a hold has ended. If the clock was set back while the statement waited for the row, somebody may have cut
/// the hold to what its term allows by the clock since: the moment before the step says nothing about that.
const EARLIER_CLOCK: &str = earlier_clock!();

/// True if nobody has the name.
const FREE: &str = concat!("(`holder` IS NULL OR `expires`<=", earlier_clock!(), ")");

/// The end of the hold if the clock may have been set back: no later than its own term allows.
const REPAIRED: &str = concat!("LEAST(`expires`,", micros_since_1970!("SYSDATE"), "+`term`)");

/// The longest time for which a waiter's mark is believed, in microseconds. One that lasts longer is from before the clock
/// was set back.
const LONGEST_MARK: u64 = 10_000_000;

/// True if a waiter has its mark in the row.
const IS_MARKED: &str = concat!(
    "(`wanted`>",
    micros_since_1970!("UTC_TIMESTAMP"),
    " AND `wanted`<=",
    micros_since_1970!("UTC_TIMESTAMP"),
    "+10000000)"
);

/// The values that a request writes into the row. Read from the request just before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerms {
    holder: HolderId,
    pub(crate) ttl: Duration,
    label: String,
    floor: u64,
    at_least: Option<FencingToken>,
    reserve: u32,
}

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted(FencingToken),
    Taken(Taken),
}

/// Another holder has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// For so long, if nothing renews it.
    pub(crate) rest: Duration,
    /// True if the row has the mark of this waiter, which is woken when the name is free.
    pub(crate) is_marked: bool,
}

/// The mark that a waiter writes into a row that has no other waiter's mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The time for which it counts.
    pub(crate) lasts: Duration,
    /// The connection to wake; 0 for none.
    pub(crate) sleeper: u64,
}

/// The named lock by which a sleeping connection is found.
pub(crate) fn sleeper_lock(sleeper: u64) -> String {
    format!("'polylock:sleeper:{sleeper}'")
}

/// Ends the sleep of this connection, in one statement: a number that was looked up before may be another connection's by
/// then.
pub(crate) fn wake(sleeper: u64) -> String {
    format!("KILL QUERY IS_USED_LOCK({})", sleeper_lock(sleeper))
}

/// The treatment of rows that another session has locked, in a renewal. It never waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Leaves them out: a hold that was not renewed may be lost or not.
    SkipLocked,
    /// Its transaction has locked them before, or has failed: a hold that was not renewed is lost.
    Locked,
}

impl LeaseTerms {
    pub(crate) fn new(request: &AcquireRequest) -> Self {
        Self {
            holder: request.holder(),
            ttl: request.ttl(),
            label: label_literal(request.label().as_deref()),
            floor: request.token_floor().map_or(0, FencingToken::as_u64),
            at_least: request.token_at_least(),
            reserve: request.reserve(),
        }
    }

    /// The number of tokens that come with this one, its own included.
    pub(crate) fn reserved(&self, token: FencingToken) -> u32 {
        let after = u64::from(self.reserved_after()).min(LAST_TOKEN - token.as_u64());
        1 + u32::try_from(after).unwrap_or(0)
    }

    fn reserved_after(&self) -> u32 {
        self.reserve.saturating_sub(1).min(MOST_RESERVED)
    }

    /// The next token: larger than all before and than the floor, and at least the server's clock, or the token that the request
    /// adopts.
    fn next_token(&self, least: &str) -> String {
        self.next_token_at(least, NOW)
    }

    fn next_token_at(&self, least: &str, clock: &str) -> String {
        let wanted = match self.at_least {
            Some(token) => token.to_string(),
            None => clock.to_owned(),
        };
        match self.floor {
            0 => format!("GREATEST({least},{wanted})"),
            floor => format!("GREATEST({least},{},{wanted})", floor.saturating_add(1)),
        }
    }

    /// The last token that comes with this one.
    fn last_token(&self, token: &str) -> String {
        match self.reserved_after() {
            0 => token.to_owned(),
            after => format!("{token}+LEAST({after},{LAST_TOKEN}-{token})"),
        }
    }
}

/// The largest token there can be.
const LAST_TOKEN: u64 = (1 << 63) - 1;

impl LeaseStatements {
    /// `table` has only letters that need no escape.
    pub(crate) fn new(table: &str) -> Self {
        Self {
            leases: format!("{table}_leases"),
            holders: format!("{table}_lease_holders"),
            database: String::new(),
        }
    }

    /// Sets the database of the tables. Some servers tell databases apart by case. On those, two databases may share
    /// their queue entries.
    pub(crate) fn in_database(self, database: &str) -> Self {
        Self {
            database: database.to_lowercase(),
            ..self
        }
    }

    /// Do nothing, but need every permission that a lock needs. No lock has an empty name.
    pub(crate) fn check_permissions(&self) -> [String; 4] {
        let (leases, holders) = (&self.leases, &self.holders);
        [
            format!("UPDATE `{holders}` SET `expires`=0 WHERE `name`=x''"),
            format!(
                "INSERT IGNORE INTO `{holders}` (`name`,`holder`,`permits`,`of`,`expires`,`term`,`token`) \
                 SELECT `name`,`holder`,0,0,0,0,0 FROM `{holders}` WHERE `name`=x''"
            ),
            format!("UPDATE `{leases}` SET `wanted`=0 WHERE `name`=x''"),
            format!("INSERT IGNORE INTO `{leases}` (`name`) SELECT `name` FROM `{leases}` WHERE `name`=x''"),
        ]
    }

    /// Renews holds that share a TTL. If it matches as many rows as there are holds, it has renewed all. A holder id has one
    /// name.
    pub(crate) fn renew(&self, ttl: Duration, renewals: &[HoldRenewal], rows: Rows) -> String {
        let (leases, ttl) = (&self.leases, ttl.as_micros());
        let set = format!("l.`term`=GREATEST(l.`term`,{ttl}),l.`expires`=GREATEST({REPAIRED},{NOW}+{ttl})");
        let among = among(renewals);
        match rows {
            Rows::Locked => format!("UPDATE `{leases}` l SET {set} WHERE {among}"),
            Rows::SkipLocked => {
                let free = format!("SELECT `name` FROM `{leases}` WHERE {among}{}", skip_locked(renewals));
                format!("UPDATE ({free}) f STRAIGHT_JOIN `{leases}` l ON l.`name`=f.`name` SET {set}")
            }
        }
    }

    /// Ends a hold, if it is still there: then it matches a row. The name stays taken for so long. If it is free at once,
    /// `LAST_INSERT_ID` says which connection is to be [woken](wake), if any.
    pub(crate) fn release(&self, name: &LockName, holder: HolderId, keep_for: Option<Duration>) -> String {
        let kept = match keep_for.as_ref().map(Duration::as_micros) {
            // An empty holder is nobody.
            Some(rest) => format!("`holder`=x'',`label`=NULL,`term`={rest},`expires`={NOW}+{rest}"),
            // The label stays until the next acquire: each assignment costs the server time.
            None => format!("`holder`=NULL,`expires`={NOW}+{}", tells_sleeper()),
        };
        format!(
            "UPDATE `{}` SET {kept} WHERE `name`={} AND `holder`='{holder}' AND `expires`>{NOW}",
            self.leases,
            name_literal(name)
        )
    }

    /// Ends whatever this id has: a hold, or the mark of a waiter.
    pub(crate) fn abandon(&self, name: &LockName, holder: HolderId) -> String {
        format!(
            "UPDATE `{}` SET `expires`=IF(`holder`<=>'{holder}',{NOW}+{},`expires`),\
             `label`=IF(`holder`<=>'{holder}',NULL,`label`),\
             `holder`=IF(`holder`<=>'{holder}',NULL,`holder`),\
             `wanted`=IF(`waiter`<=>'{holder}',0,`wanted`) \
             WHERE `name`={} AND (`holder`='{holder}' OR `waiter`='{holder}')",
            self.leases,
            tells_sleeper(),
            name_literal(name)
        )
    }

    /// Removes the mark of a waiter whose connection is gone.
    pub(crate) fn unmark(&self, name: &LockName, sleeper: u64) -> String {
        format!(
            "UPDATE `{}` SET `wanted`=0 WHERE `name`={} AND `sleeper`={sleeper}",
            self.leases,
            name_literal(name)
        )
    }

    /// Selects the waiters that may acquire one of these names: the waiter whose mark a free name has, and all waiters
    /// for a name without a mark. [`free_for`] reads a row.
    pub(crate) fn free_for(&self, names: &[LockName]) -> String {
        let names: Vec<String> = names.iter().map(name_literal).collect();
        format!(
            "SELECT `name`,IF({IS_MARKED},`waiter`,NULL) FROM `{}` WHERE `name` IN ({}) AND ({FREE} OR NOT {IS_MARKED})",
            self.leases,
            names.join(",")
        )
    }

    /// Has the row of an exclusive hold remember this token, if the hold is still there: then it matches a row.
    pub(crate) fn raise(&self, name: &LockName, holder: HolderId, token: FencingToken) -> String {
        format!(
            "UPDATE `{}` SET `token`=GREATEST(`token`,{token}),`last_token`=GREATEST(`last_token`,{token}) \
             WHERE `name`={} AND `holder`='{holder}' AND `expires`>{NOW}",
            self.leases,
            name_literal(name)
        )
    }

    /// Names that nobody has had, and no token of which was given, for so long by the server's clock, and those whose shared holds
    /// ended so long ago. A token that is as young as that, or ahead of the clock, would be given again once the clock is set back.
    pub(crate) fn dead_rows(&self, retention: Duration) -> [DeadRows<'_>; 2] {
        let retention = retention.as_micros();
        let ended = format!("`expires`<{NOW}-{retention}");
        let lease = format!("({FREE} AND {ended} AND `last_token`<{NOW}-{retention})");
        [
            DeadRows::new(&self.leases, &["name"], lease),
            DeadRows::new(&self.holders, &["name", "holder"], ended),
        ]
    }

    /// A page of names; [`list_page`](crate::protocol::list_page) reads it.
    pub(crate) fn list(&self, from: &ListFrom, at_most: usize) -> String {
        let is_used = format!("(`holder` IS NOT NULL AND `expires`>{NOW}) OR {IS_MARKED}");
        list_statement(&self.leases, &is_used, from, at_most)
    }

    /// Selects the holders of the name, a row for each. No row: the name is free.
    pub(crate) fn holders(&self, name: &LockName) -> String {
        let (literal, leases, holders) = (name_literal(name), &self.leases, &self.holders);
        format!(
            "SELECT `token`,`label`,LEAST(`expires`-{NOW},`term`),`holder`,NULL,NULL FROM `{leases}` \
             WHERE `name`={literal} AND `holder` IS NOT NULL AND `holder` NOT IN {KINDS} AND `expires`>{NOW} \
             UNION ALL SELECT h.`token`,h.`label`,LEAST(h.`expires`-{NOW},h.`term`),h.`holder`,\
             CAST(h.`permits` AS SIGNED),CAST(h.`of` AS SIGNED) \
             FROM `{leases}` l STRAIGHT_JOIN `{holders}` h ON h.`name`=l.`name` AND h.`expires`>{NOW} \
             WHERE l.`name`={literal} AND l.`holder` IN {KINDS} AND l.`expires`>{NOW} ORDER BY 1"
        )
    }
}

/// True if the name is kept for a waiter other than this one.
fn others_wait(holder: HolderId) -> String {
    format!("(`wanted`>{NOW} AND `wanted`<={NOW}+{LONGEST_MARK} AND NOT `waiter`<=>'{holder}')")
}

/// Zero, and has the answer carry the connection that is to be woken.
fn tells_sleeper() -> String {
    format!("0*LAST_INSERT_ID(`sleeper`*(`wanted`>{NOW}))")
}

fn among(renewals: &[HoldRenewal]) -> String {
    let names = list(renewals, |renewal| name_literal(&renewal.name));
    let holders = list(renewals, |renewal| format!("'{}'", renewal.holder));
    format!("`name` IN ({names}) AND `holder` IN ({holders}) AND `expires`>{NOW}")
}

/// At the end of a derived table of the rows to renew. The limit leaves none out: it keeps MySQL from merging the table into
/// the statement around it, which would wait for the rows.
fn skip_locked(renewals: &[HoldRenewal]) -> String {
    format!(" LIMIT {} FOR UPDATE SKIP LOCKED", renewals.len())
}

fn list(renewals: &[HoldRenewal], item: impl Fn(&HoldRenewal) -> String) -> String {
    renewals.iter().map(item).collect::<Vec<_>>().join(",")
}

mod acquire;
mod answers;
mod queue;
pub(crate) mod revoke;
pub(crate) mod sharing;
#[cfg(test)]
mod tests;
