//! The statements of the row lock, as text with all values in it. Golden tests pin them: what other versions of this
//! crate, and people, find in the tables must not change by accident.

use std::time::Duration;

use lock_core::backend::{HolderId, ListFrom, Mode};
use lock_core::{FencingToken, LockName};

use super::{DeadRows, SERVER_MICROS, list_statement};
use crate::names::{NO_ROW, label_literal, name_literal, padded_label_literal};

/// Names of tables, made once.
#[derive(Debug)]
pub(crate) struct Statements {
    /// One row per name: who holds it exclusively, as long as a transaction is open on it, and its last token. And one row per
    /// reader, which is never committed: see [`Statements::enter_reader`].
    locks: String,
    /// Tokens that were committed apart: those ahead of the server's clock when they were granted, and those of readers.
    tokens: String,
}

/// Set in an answer when its token is ahead of the server's clock: a bit that no token has.
const AHEAD_OF_CLOCK: u64 = 1 << 63;

/// The number of tokens after its own that belong to each grant, whether the hold is passed on under them or not. The
/// row has the grant's own token, and the next grant skips the others.
///
/// If a transaction is rolled back, its token is not in the row any more. The tokens of passes lie behind the server's clock
/// all the same, and so before the next grant's: the grant's own token is not ahead of the clock, and a hold is passed on for
/// the n-th time 2n microseconds after its grant at the earliest
/// ([`may_pass`](lock_core::backend::rules::may_pass)). If the grant's own token is ahead of the clock, the last of its tokens
/// is [committed apart](Statements::commit_token).
///
/// It must never become smaller: a grant of this version may follow one of an earlier version.
pub(crate) const RESERVED_TOKENS: u32 = 16;

/// For all statements but [`Statements::wait_for_row`]: MySQL knows nothing shorter than a second.
const NO_ROW_WAIT: &str = "SET SESSION innodb_lock_wait_timeout=1";

/// The answer of [`Statements::wait_for_row`] that shows the holder, counted from 0.
pub(crate) const HOLDER: usize = 2;
/// The one that has a row if the lock is had.
pub(crate) const LOCKED: usize = 5;

/// Settings of each session besides: a statement does not wait for a backup's global read lock or an `ALTER TABLE`,
/// which may in turn wait for the locks that are held.
pub(crate) const SESSION_SETTINGS: &str = ",lock_wait_timeout=1";

/// The values that a holder writes into the row besides its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireTerms<'a> {
    pub(crate) ttl: Duration,
    /// True if the hold ends with its ttl. The end of a hold that can be renewed is not written down: a renewal writes
    /// nothing.
    pub(crate) fixed: bool,
    pub(crate) label: Option<&'a str>,
    /// The token must be larger than this one.
    pub(crate) floor: Option<FencingToken>,
}

/// The values that a holder has written into the row that it keeps locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub(crate) token: FencingToken,
    /// True if the token is ahead of the server's clock.
    pub(crate) ahead: bool,
}

impl Statements {
    /// `table` has only letters that need no escape.
    pub(crate) fn new(table: &str) -> Self {
        Self {
            locks: table.to_owned(),
            tokens: format!("{table}_tokens"),
        }
    }

    /// Both tables' names.
    fn tables(&self) -> [&str; 2] {
        [&self.locks, &self.tokens]
    }

    /// Does nothing, but needs every permission that a lock needs. No lock has an empty name.
    pub(crate) fn check_permissions(&self) -> String {
        let [locks, tokens] = self.tables().map(|table| {
            format!(
                "SELECT `token` FROM `{table}` WHERE {NO_ROW} FOR UPDATE;\
                 UPDATE `{table}` SET `token`=0 WHERE {NO_ROW};\
                 INSERT IGNORE INTO `{table}` (`name`) SELECT `name` FROM `{table}` WHERE {NO_ROW};"
            )
        });
        format!("{locks}{tokens}ROLLBACK")
    }

    /// Locks the row and takes it, or fails at once with a busy error. [`acquired`] reads the second answer.
    pub(crate) fn acquire_nowait(&self, name: &LockName, terms: &AcquireTerms<'_>) -> String {
        format!(
            "SELECT 1 FROM `{}` WHERE `name`={} FOR UPDATE NOWAIT;{}",
            self.locks,
            name_literal(name),
            self.acquire_locked_row(name, terms)
        )
    }

    /// Takes a row that is locked already. [`acquired`] reads the answer.
    ///
    /// The token is larger than every one before, those that were rolled back included: they lie behind the server's
    /// clock, or in the table of those that do not. The answer itself carries it: a SELECT of what others have not
    /// committed might show us the row that another holder made and took after our UPDATE had missed it.
    ///
    /// The row keeps its size, whoever has it with a label of up to 64 bytes, and over a release. When the size changes, InnoDB stores the row anew and
    /// leaves a lock behind for each transaction that waits for it. With 128 waiters, a release took 0.2 s for that.
    pub(crate) fn acquire_locked_row(&self, name: &LockName, terms: &AcquireTerms<'_>) -> String {
        let Self { locks, tokens } = self;
        let floor = above(terms.floor);
        let label = padded_label_literal(terms.label);
        let expires = match terms.fixed {
            true => format!("{SERVER_MICROS}+{}", terms.ttl.as_micros()),
            false => "0".to_owned(),
        };
        let name = name_literal(name);
        let next = RESERVED_TOKENS + 1;
        format!(
            "UPDATE `{locks}` SET `token`=GREATEST(`token`+{next},{floor},{SERVER_MICROS},\
             COALESCE((SELECT t.`token`+1 FROM `{tokens}` t WHERE t.`name`={name}),0)),\
             `connection`=CONNECTION_ID()+0*LAST_INSERT_ID(`token`|(`token`>{SERVER_MICROS})<<63),\
             `label`={label},`expires`={expires} WHERE `name`={name}"
        )
    }

    /// Locks the row for a reader beside others, or fails at once with a busy error. The first answer is its token, if there is
    /// such a row yet. If nobody may write to the table of tokens, it fails as [`TableLocked`](crate::error::SqlError::TableLocked): the
    /// statement of [`reader_token`](Self::reader_token) would wait, and keep the connections of others from being ended.
    pub(crate) fn share_nowait(&self, name: &LockName) -> String {
        format!("{};{}", self.share(name, "", " NOWAIT"), try_table(&self.tokens))
    }

    /// The token of a reader that keeps the row locked: on another connection, and committed there.
    ///
    /// A reader cannot write into a row that it shares, and whatever it writes within its own transaction keeps other readers
    /// out, or is gone with it. So its token is committed apart. It is larger than all before: those of other readers and
    /// those ahead of the clock are in this table, and those of writers in the row, or, rolled back, behind the clock.
    ///
    /// The next writer's token is larger, since a writer looks into this table with the row locked, after the last reader has
    /// left. A reader may use its token only if it still has the row afterwards: otherwise a writer may have come in between,
    /// with a smaller token. [`Statements::enter_reader`] proves that, over the connection that locks the row.
    ///
    /// `row` is the row's token, which no writer changes as long as the row is shared. To read it here would lock it here, and
    /// so wait behind a writer that waits for the readers.
    pub(crate) fn reader_token(&self, name: &LockName, row: u64, floor: Option<FencingToken>) -> String {
        let (tokens, name) = (&self.tokens, name_literal(name));
        let next = RESERVED_TOKENS + 1;
        let least = above(floor).max(row.saturating_add(next.into()));
        format!(
            "INSERT INTO `{tokens}` (`name`,`token`) VALUES ({name},LAST_INSERT_ID(GREATEST({least},{SERVER_MICROS}))) \
             ON DUPLICATE KEY UPDATE `token`=LAST_INSERT_ID(GREATEST(`token`+1,{least},{SERVER_MICROS}))"
        )
    }

    /// Shows a reader to those who ask, by a row of its own in the transaction that shares the name's row: it ends with the
    /// transaction, however that ends. When it is answered, the reader still had the row.
    pub(crate) fn enter_reader(
        &self,
        name: &LockName,
        holder: HolderId,
        token: FencingToken,
        label: Option<&str>,
    ) -> String {
        format!(
            "INSERT INTO `{}` (`name`,`token`,`connection`,`label`) VALUES ({},{token},CONNECTION_ID(),{})",
            self.locks,
            reader_key(name, holder),
            label_literal(label)
        )
    }

    /// After an attempt that found the row locked: who holds it, the [`HOLDER`]th answer, and then the row's lock, for which
    /// it waits at most so many whole seconds. A row in the [`LOCKED`]th answer: it is locked.
    ///
    /// `limit` ends the statement earlier, to the millisecond. The connection survives that; ending a wait from elsewhere
    /// would cost it.
    pub(crate) fn wait_for_row(&self, name: &LockName, mode: Mode, seconds: u64, limit: Option<Duration>) -> String {
        let holders = self.holders(name);
        // Each server takes what is meant for the other one as a comment.
        let (maria, mysql) = match limit {
            Some(limit) => {
                let millis = limit.as_millis().saturating_add(1);
                (
                    format!(
                        "/*M!100100 SET STATEMENT max_statement_time={}.{:03} FOR */",
                        millis / 1000,
                        millis % 1000
                    ),
                    format!("/*+ MAX_EXECUTION_TIME({millis}) */ "),
                )
            }
            None => (String::new(), String::new()),
        };
        let select = match mode {
            Mode::Shared => self.share(name, &mysql, ""),
            _ => format!(
                "SELECT {mysql}1 FROM `{}` WHERE `name`={} FOR UPDATE",
                self.locks,
                name_literal(name)
            ),
        };
        format!(
            "ROLLBACK;{};{holders};COMMIT;SET SESSION innodb_lock_wait_timeout={seconds};{maria}{select};{NO_ROW_WAIT}",
            try_table(&self.locks)
        )
    }

    /// Leaves nothing on a connection that has waited for a row in vain.
    pub(crate) fn clean_up_wait() -> String {
        format!("ROLLBACK;{NO_ROW_WAIT}")
    }

    /// MySQL and MariaDB each read their own of the two comments.
    fn share(&self, name: &LockName, hint: &str, nowait: &str) -> String {
        format!(
            "SELECT {hint}`token` FROM `{}` WHERE `name`={} /*!80001 FOR SHARE{nowait}*/ /*M! LOCK IN SHARE MODE{nowait}*/",
            self.locks,
            name_literal(name)
        )
    }

    /// Makes the row of a new name, for all. It looks first, as an insert would wait for a holder that has made and locked
    /// the row meanwhile.
    pub(crate) fn create_row(&self, name: &LockName) -> String {
        let (locks, name) = (&self.locks, name_literal(name));
        format!(
            "ROLLBACK;{NO_ROW_WAIT};INSERT IGNORE INTO `{locks}` (`name`) SELECT {name} FROM DUAL \
             WHERE NOT EXISTS (SELECT 1 FROM `{locks}` WHERE `name`={name});COMMIT"
        )
    }

    /// The rows of both tables whose last token was granted so long ago by the server's clock. A token that is as young as that, or
    /// ahead of the clock, would be given again once the clock is set back.
    pub(crate) fn dead_rows(&self, retention: Duration) -> [DeadRows<'_>; 2] {
        let age = u128::from(RESERVED_TOKENS) + retention.as_micros();
        self.tables()
            .map(|table| DeadRows::new(table, &["name"], format!("(`token`+{age}<{SERVER_MICROS})")))
    }

    /// A page of names; [`list_page`](crate::protocol::list_page) reads it. In a session that reads what others have not committed. The rows of readers
    /// do not have the name.
    pub(crate) fn list(&self, from: &ListFrom, at_most: usize) -> String {
        let locks = &self.locks;
        let readers = "CONCAT(x'ff',UNHEX(SHA2(l.`name`,256)))";
        let is_used = format!(
            "l.`connection`<>0 OR EXISTS(SELECT 1 FROM `{locks}` r \
             WHERE r.`name`>{readers} AND r.`name`<CONCAT({readers},REPEAT(x'ff',17)))"
        );
        list_statement(locks, &is_used, from, at_most)
    }

    /// Selects the holders, one or several readers; no row: the name is free. For a session that reads uncommitted
    /// data.
    pub(crate) fn holders(&self, name: &LockName) -> String {
        let (locks, readers, name) = (&self.locks, readers_prefix(name), name_literal(name));
        format!(
            "SELECT `token`,`label`,CAST(NULLIF(`expires`,0) AS SIGNED)-CAST({SERVER_MICROS} AS SIGNED),`name`={name} FROM `{locks}` \
             WHERE `name`={name} AND `connection`<>0 \
             OR `name`>{readers} AND `name`<CONCAT({readers},REPEAT(x'ff',17))"
        )
    }

    /// The token of this hold, if the server still has it. In a session that reads what others have not committed.
    pub(crate) fn held_token(&self, name: &LockName, mode: Mode, holder: HolderId) -> String {
        let key = match mode {
            Mode::Shared => reader_key(name, holder),
            _ => name_literal(name),
        };
        format!(
            "SELECT `token` FROM `{}` WHERE `name`={key} AND `connection`<>0",
            self.locks
        )
    }

    /// [`holders`](Self::holders) in a session that could not lock the row: the fourth answer. Leaves no transaction open.
    pub(crate) fn holder_after_busy(&self, name: &LockName) -> String {
        format!(
            "ROLLBACK;{NO_ROW_WAIT};{};{};COMMIT",
            try_table(&self.locks),
            self.holders(name)
        )
    }

    /// Lets go of the row. A reader's token is committed already.
    pub(crate) fn release_in(&self, name: &LockName, mode: Mode) -> String {
        match mode {
            Mode::Shared => "ROLLBACK".to_owned(),
            _ => self.release(name),
        }
    }

    /// Lets go of the row, but keeps the token, and what was written about the holder: no connection has the number 0.
    fn release(&self, name: &LockName) -> String {
        format!(
            "UPDATE `{}` SET `connection`=0 WHERE `name`={};COMMIT",
            self.locks,
            name_literal(name)
        )
    }

    /// The token that a release committed last: the second answer. Whoever holds it now has not.
    pub(crate) fn committed_token(&self, name: &LockName) -> String {
        format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SELECT `token` FROM `{}` WHERE `name`={}",
            self.locks,
            name_literal(name)
        )
    }

    /// Makes a token durable on another connection, while the row that has it is still locked: ahead of the server's
    /// clock, it would be granted again if the holder's transaction were rolled back.
    ///
    /// The table gets the last of the grant's [tokens](RESERVED_TOKENS): versions that know of no passes step by 1.
    pub(crate) fn commit_token(&self, name: &LockName, token: FencingToken) -> String {
        let last = token.as_u64().saturating_add(RESERVED_TOKENS.into());
        format!(
            "INSERT INTO `{}` (`name`,`token`) VALUES ({},{last}) \
             ON DUPLICATE KEY UPDATE `token`=GREATEST(`token`,{last})",
            self.tokens,
            name_literal(name)
        )
    }
}

/// Fails as [`TableLocked`](crate::error::SqlError::TableLocked) if nobody may lock a row of this table: without it, a row that nobody holds
/// would look like one that is held. Locks nothing.
fn try_table(table: &str) -> String {
    format!("SELECT 1 FROM `{table}` WHERE {NO_ROW} FOR UPDATE NOWAIT")
}

/// The beginning of the keys of all readers of a name. No name has the byte 0xff, as names are UTF-8. A key with the
/// whole name would be too long.
fn readers_prefix(name: &LockName) -> String {
    format!("CONCAT(x'ff',UNHEX(SHA2({},256)))", name_literal(name))
}

/// The key of a reader's row.
fn reader_key(name: &LockName, holder: HolderId) -> String {
    format!("CONCAT({},x'{holder}')", readers_prefix(name))
}

/// The least token above the floor.
fn above(floor: Option<FencingToken>) -> u64 {
    floor.map_or(0, FencingToken::as_u64).saturating_add(1)
}

pub(crate) use self::answers::{acquired, busy, holder, reader_token};

mod answers;
#[cfg(test)]
mod tests;
