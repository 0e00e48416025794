//! The statements of holds that share a name: readers, and permits.
//!
//! While anybody shares a name, the holder in its row is `shared` or `permits`, which is no holder id, and the row expires no
//! earlier than the last of them. So the one statement of an exclusive acquire refuses it as it refuses any other hold. Those
//! who share it are rows of a second table, each with its own expiry. They count only while the name's row says that it is
//! shared: if that row expired or somebody else has the name, they have ended.
//!
//! Each of these requests is a transaction, sent as one text, that **locks the name's row first**. What it reads and writes
//! after that is its own. The row is made apart, by a statement of its own, if it is missing. Other forms that come to mind
//! are wrong. Tried with up to twelve clients on MariaDB 10.11 and MySQL 9.7, with a limit of three:
//!
//! - One `INSERT … SELECT … WHERE (SELECT SUM(…)) < 3` in READ COMMITTED counts what is committed, and inserts beside others
//!   that do the same: up to eight held three permits.
//! - The same in REPEATABLE READ locks gaps: clients end in deadlocks (1213) again and again.
//! - To make the row in the transaction that locks it also ends in deadlocks: who finds it there has a shared lock on it.
//!
//! If a statement of the text fails, the server does not execute the rest and leaves the transaction open. So the connection
//! rolls it back before anything else runs on it, or ends. The first statement is the only one that waits for others, and
//! until it returns, the transaction has no lock.
//!
//! Rows of holders are not deleted when they end, but used again, so that locks need no permission to delete.

use std::time::Duration;

use lock_core::backend::{HolderId, Mode, Permits};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};

use super::{Acquired, LONGEST_MARK, LeaseStatements, LeaseTerms, Mark, NOW, TAKEN, acquired};
use crate::error::SqlError;
use crate::names::name_literal;
use crate::protocol::StatementResult;

/// The ways to share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Readers,
    Permits(Permits),
}

/// The holders in the rows of names that are shared.
pub(super) const KINDS: &str = "('shared','permits')";

/// Set in the answer to a request that ended a hold: a bit that no connection's number has.
pub(super) const ENDED: u64 = 1 << 63;

/// The server's clock at this very moment: a statement that waited for a row reads it after that.
const CLOCK: &str = micros_since_1970!("SYSDATE");

/// True if the locked row shows that the name is shared.
pub(super) const IS_SHARED: &str = "(@holder IN ('shared','permits') AND @expires>@now)";

impl Sharing {
    /// The way in which a request in this mode shares the name; `None`: it does not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for other modes.
    pub(crate) fn of(mode: Mode) -> Result<Option<Self>> {
        Ok(match mode {
            Mode::Exclusive => None,
            Mode::Shared => Some(Self::Readers),
            Mode::Permits(permits) => Some(Self::Permits(permits)),
            other => {
                let what = format!("the lease table cannot hold a lock in the mode {other:?}");
                return Err(Error::new(ErrorKind::Unsupported, what).not_executed());
            }
        })
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Readers => "shared",
            Self::Permits(_) => "permits",
        }
    }

    /// The permits of a holder and their limit; a reader has none.
    fn permits(self) -> (u32, u32) {
        match self {
            Self::Readers => (0, 0),
            Self::Permits(permits) => (permits.take(), permits.of()),
        }
    }

    /// True if it fits with all who share the name, as `rules::fits` decides.
    fn fits(self) -> String {
        match self {
            Self::Readers => "@holder='shared'".to_owned(),
            Self::Permits(permits) => {
                format!("@holder='permits' AND @taken+{}<={}", permits.take(), permits.of())
            }
        }
    }

    /// The mark that a waiter leaves, and its column. Readers enter together, so they have one mark. Requests for one
    /// permit of several also have one mark, since any returned permit serves them: they keep the name from other
    /// modes, but no permits from each other.
    fn mark(self, holder: HolderId) -> (String, &'static str) {
        match self {
            Self::Readers => ("'shared'".to_owned(), "1"),
            Self::Permits(permits) if permits.take() == 1 && permits.of() > 1 => {
                ("'permits'".to_owned(), "NOT @holder<=>'permits'")
            }
            Self::Permits(_) => (format!("'{holder}'"), "1"),
        }
    }
}

impl LeaseStatements {
    /// Makes the row of a name, in a transaction of its own.
    pub(crate) fn make_row(&self, name: &LockName) -> String {
        format!(
            "INSERT IGNORE INTO `{}` (`name`) VALUES ({})",
            self.leases,
            name_literal(name)
        )
    }

    /// A transaction that shares the name if that fits with all who have it, and if it is not kept for a waiter;
    /// [`shared`] reads the answer. If it is refused and waits, it marks the row.
    pub(crate) fn share(
        &self,
        name: &LockName,
        terms: &LeaseTerms,
        sharing: Sharing,
        mark: Option<Mark>,
    ) -> Vec<String> {
        let (marked, leaves_mark) = sharing.mark(terms.holder);
        let others_wait = format!("(@wanted>@now AND @wanted<=@now+{LONGEST_MARK} AND NOT @waiter<=>{marked})");
        let (fits, ttl) = (sharing.fits(), terms.ttl.as_micros());
        let next = terms.next_token_at("@last+1", "@now");
        let decide = format!(
            "SET @granted=CASE WHEN @found=0 THEN 0 WHEN @mine IS NOT NULL THEN 2 WHEN {others_wait} THEN 0 \
             WHEN @holder IS NULL OR @expires<=@now OR ({IS_SHARED} AND @holders=0) THEN 1 \
             WHEN {fits} THEN 1 ELSE 0 END,\
             @token=COALESCE(@mine,{next}),@until=@now+{ttl},@lasts={ttl}"
        );
        let first = match sharing {
            Sharing::Readers => "@ends",
            Sharing::Permits(_) => "IF(@holder='permits',@first,@ends)",
        };
        let rest = format!(
            "IF({others_wait},@wanted-@now,IF({IS_SHARED},{first}-@now,GREATEST(0,LEAST(@expires-@now,@term))))"
        );
        let (sleeper, waiter, wanted) = match mark {
            None => ("`sleeper`".to_owned(), "`waiter`".to_owned(), "`wanted`".to_owned()),
            Some(Mark { lasts, sleeper }) => {
                let mark = lasts.as_micros().min(u128::from(LONGEST_MARK));
                let enough = mark / 8 * 7;
                let marks = format!("@granted=0 AND {leaves_mark} AND NOT {others_wait}");
                let lasts = format!(
                    "IF(@wanted BETWEEN @now+{enough} AND @now+{LONGEST_MARK} AND @waiter<=>{marked},@wanted,@now+{mark})"
                );
                (
                    // Of those who leave the same mark, one is woken, and calls the others.
                    format!(
                        "IF({marks},IF(@wanted>@now AND @waiter<=>{marked} AND @sleeper>0,@sleeper,{sleeper}),`sleeper`)"
                    ),
                    format!("IF({marks},{marked},`waiter`)"),
                    format!("IF({marks},{lasts},`wanted`)"),
                )
            }
        };
        let row = format!(
            "UPDATE `{}` SET \
             `token`=CASE @granted WHEN 1 THEN LAST_INSERT_ID(@token) WHEN 2 THEN `token`+0*LAST_INSERT_ID(@token) \
             ELSE `token`+0*LAST_INSERT_ID({TAKEN}|{rest}) END,\
             `last_token`=IF(@granted=1,@token,`last_token`),\
             `label`=IF(@granted>0,NULL,`label`),\
             `term`=IF(@granted>0,GREATEST(@longest,@lasts),`term`),\
             `holder`=IF(@granted>0,'{}',IF({IS_SHARED} AND @holders=0,NULL,`holder`)),\
             `expires`=CASE WHEN @granted>0 THEN GREATEST(@ends,@until) WHEN NOT {IS_SHARED} THEN LEAST(`expires`,@now+`term`) \
             WHEN @holders=0 THEN @now ELSE @ends END,\
             `sleeper`={sleeper},`waiter`={waiter},\
             `wanted`=IF(@granted>0 AND @waiter<=>{marked},0,{wanted}) \
             WHERE `name`={} AND @found>0",
            self.leases,
            sharing.kind(),
            name_literal(name)
        );
        let [reuse, insert] = self.add_holder(name, terms.holder, &terms.label, sharing);
        let [lock, now, cut, count] = self.look(name, terms.holder);
        vec![lock, now, cut, count, decide, reuse, insert, row]
    }

    /// Removes the mark that this way to share the name has in common, when one of those who left it gives up: the others
    /// leave it again when they ask.
    pub(crate) fn unmark_kind(&self, name: &LockName, sharing: Sharing) -> String {
        format!(
            "UPDATE `{}` SET `wanted`=0 WHERE `name`={} AND `waiter`='{}'",
            self.leases,
            name_literal(name),
            sharing.kind()
        )
    }

    /// A transaction that makes an exclusive hold a reader's; [`downgraded`] reads whether it was there. Repeated, it renews.
    pub(crate) fn downgrade(
        &self,
        name: &LockName,
        holder: HolderId,
        token: FencingToken,
        ttl: Duration,
    ) -> Vec<String> {
        let ttl = ttl.as_micros();
        let is_mine = format!("(@holder<=>'{holder}' AND @expires>@now)");
        let decide = format!(
            "SET @granted=CASE WHEN {is_mine} THEN 1 WHEN @mine IS NOT NULL THEN 2 ELSE 0 END,@token={token},\
             @until=IF({is_mine},GREATEST(LEAST(@expires,@now+@term),@now+{ttl}),@now+{ttl}),\
             @lasts=IF({is_mine},GREATEST(@term,{ttl}),{ttl})"
        );
        let row = format!(
            "UPDATE `{}` SET `token`=`token`+0*LAST_INSERT_ID(@granted>0),\
             `label`=IF(@granted>0,NULL,`label`),\
             `term`=IF(@granted>0,GREATEST(@longest,@lasts),`term`),\
             `holder`=IF(@granted>0,'shared',`holder`),\
             `expires`=IF(@granted>0,GREATEST(@ends,@until),`expires`) WHERE `name`={} AND @found>0",
            self.leases,
            name_literal(name)
        );
        let [reuse, insert] = self.add_holder(name, holder, "@label", Sharing::Readers);
        let [lock, now, cut, count] = self.look(name, holder);
        vec![lock, now, cut, count, decide, reuse, insert, row]
    }

    /// A transaction that has the name's row remember this token, if the hold is still there, be it shared or exclusive;
    /// [`raised`] reads the answer.
    pub(crate) fn raise_shared(&self, name: &LockName, holder: HolderId, token: FencingToken) -> [String; 4] {
        let (literal, holders) = (name_literal(name), &self.holders);
        let [lock, now] = self.lock_row(name);
        [
            lock,
            now,
            format!(
                "SELECT COUNT(*)+(@holder<=>'{holder}' AND @expires>@now) INTO @granted FROM `{holders}` \
                 WHERE `name`={literal} AND `holder`='{holder}' AND `expires`>@now AND {IS_SHARED}"
            ),
            format!(
                "UPDATE `{}` SET `token`=`token`+0*LAST_INSERT_ID(@granted),\
                 `last_token`=IF(@granted>0,GREATEST(`last_token`,{token}),`last_token`) \
                 WHERE `name`={literal} AND @found>0",
                self.leases
            ),
        ]
    }

    /// A transaction that ends whatever this id has, its mark as a waiter included; [`shared_released`] reads the answer.
    pub(crate) fn end(&self, name: &LockName, holder: HolderId) -> Vec<String> {
        let (literal, holders) = (name_literal(name), &self.holders);
        let is_mine = format!("(@holder<=>'{holder}' AND @expires>@now)");
        let frees = format!("({is_mine} OR ({IS_SHARED} AND @holders=0))");
        let [lock, now] = self.lock_row(name);
        vec![
            lock,
            now,
            format!(
                "UPDATE `{holders}` SET `expires`=0 \
                 WHERE `name`={literal} AND `holder`='{holder}' AND `expires`>@now AND {IS_SHARED}"
            ),
            format!(
                "SELECT ROW_COUNT(),COUNT(*),COALESCE(MAX(LEAST(`expires`,@now+`term`)),0),COALESCE(MAX(`term`),0) \
                 INTO @ended,@holders,@ends,@longest FROM `{holders}` WHERE `name`={literal} AND `expires`>@now"
            ),
            format!(
                "UPDATE `{}` SET `token`=`token`+0*LAST_INSERT_ID(IF(@ended>0 OR {is_mine},{ENDED},0)|\
                 IF({frees} AND @wanted>@now AND NOT @waiter<=>'{holder}',@sleeper,0)),\
                 `label`=IF({is_mine},NULL,`label`),\
                 `term`=IF({IS_SHARED} AND @holders>0,@longest,`term`),\
                 `holder`=IF({frees},NULL,`holder`),\
                 `expires`=CASE WHEN {frees} THEN @now \
                 WHEN {IS_SHARED} THEN @ends ELSE `expires` END,\
                 `wanted`=IF(`waiter`<=>'{holder}',0,`wanted`) WHERE `name`={literal} AND @found>0",
                self.leases
            ),
        ]
    }

    /// Lock the name's row and read it, and then the clock: while a statement waits, `UTC_TIMESTAMP` stands still.
    ///
    /// A row that is missing may be there by the next statement, with holders, and it is not locked: then nothing may be
    /// changed.
    pub(super) fn lock_row(&self, name: &LockName) -> [String; 2] {
        let lock = format!(
            "SELECT COUNT(*),MAX(`holder`),MAX(`expires`),MAX(`term`),MAX(`last_token`),MAX(`waiter`),MAX(`wanted`),\
             MAX(`sleeper`),MAX(`label`) \
             INTO @found,@holder,@expires,@term,@last,@waiter,@wanted,@sleeper,@label FROM `{}` WHERE `name`={} FOR UPDATE",
            self.leases,
            name_literal(name)
        );
        [lock, format!("SET @now={NOW}")]
    }

    /// Locks the row, and looks who shares the name. It ends the holds that have ended with an earlier row, and cuts those
    /// that last longer than their own terms, because the clock was set back.
    fn look(&self, name: &LockName, holder: HolderId) -> [String; 4] {
        let (literal, holders) = (name_literal(name), &self.holders);
        let [lock, now] = self.lock_row(name);
        [
            lock,
            now,
            format!(
                "UPDATE `{holders}` SET `expires`=IF({IS_SHARED},@now+`term`,0) \
                 WHERE `name`={literal} AND `expires`>@now+IF({IS_SHARED},`term`,0) AND @found>0"
            ),
            format!(
                "SELECT COUNT(*),COALESCE(SUM(`permits`),0),MIN(`expires`),COALESCE(MAX(`expires`),0),COALESCE(MAX(`term`),0),\
                 MAX(IF(`holder`='{holder}',`token`,NULL)) INTO @holders,@taken,@first,@ends,@longest,@mine \
                 FROM `{holders}` WHERE `name`={literal} AND `expires`>@now"
            ),
        ]
    }

    /// Adds a holder if that was granted: in the row of one that has ended, its own if there is one, or in a new row. Prolongs
    /// one that is there.
    fn add_holder(&self, name: &LockName, holder: HolderId, label: &str, sharing: Sharing) -> [String; 2] {
        let (literal, holders) = (name_literal(name), &self.holders);
        let (permits, of) = sharing.permits();
        [
            format!(
                "UPDATE `{holders}` SET `holder`='{holder}',`label`={label},`permits`={permits},`of`={of},\
                 `expires`=@until,`term`=@lasts,`token`=@token \
                 WHERE `name`={literal} AND `expires`<=@now AND @granted=1 ORDER BY `holder`='{holder}' DESC LIMIT 1"
            ),
            format!(
                "INSERT INTO `{holders}` (`name`,`holder`,`label`,`permits`,`of`,`expires`,`term`,`token`) \
                 SELECT {literal},'{holder}',{label},{permits},{of},@until,@lasts,@token \
                 FROM DUAL WHERE @granted>0 AND ROW_COUNT()=0 ON DUPLICATE KEY UPDATE \
                 `term`=GREATEST(`term`,@lasts),`expires`=GREATEST(`expires`,@until)"
            ),
        ]
    }
}

/// True if this is the common mark of waiters that share a name.
pub(crate) fn is_kind(waiter: &[u8]) -> bool {
    matches!(waiter, b"shared" | b"permits")
}

/// Returns whether the name was granted; `None`: it has no row yet.
pub(crate) fn shared(result: &StatementResult) -> std::result::Result<Option<Acquired>, SqlError> {
    match result.matched {
        0 => Ok(None),
        _ => acquired(result).map(Some),
    }
}

/// Returns whether there was a hold to downgrade.
pub(crate) fn downgraded(result: &StatementResult) -> bool {
    result.matched > 0 && result.last_insert_id > 0
}

/// Returns whether there was a hold whose token was raised.
pub(crate) fn raised(result: &StatementResult) -> bool {
    downgraded(result)
}

/// Returns whether there was a hold to end, and the connection to [wake](super::wake) as the name is free; 0 for none.
pub(crate) fn shared_released(result: &StatementResult) -> (bool, u64) {
    match result.matched {
        0 => (false, 0),
        _ => (result.last_insert_id & ENDED != 0, result.last_insert_id & !ENDED),
    }
}

mod renew;
#[cfg(test)]
mod tests;
