//! The two statements that take a name.
//!
//! Parsing costs a server more than anything else in them: on MariaDB 10.11, a statement that decides all that may be the
//! case takes three times as long as an `UPDATE` of a free row. So the first statement takes a free name and does nothing
//! else, and only a request that it refuses sends the second one, which decides.

use lock_core::LockName;

use super::{
    EARLIER_CLOCK, FREE, LONGEST_MARK, LeaseStatements, LeaseTerms, MARKED, Mark, NOW, REPAIRED, TAKEN, others_wait,
};
use crate::names::name_literal;

/// True if this statement has granted the name, for the assignments behind that of the token. A new token is larger
/// than all reserved ones, and a row's token is not.
const GRANTED: &str = "`token`>`last_token`";

impl LeaseStatements {
    /// Takes the name if its row says that nobody has it and nobody waits; [`granted`](super::granted) reads the answer. Otherwise
    /// it does nothing: then [`acquire`](Self::acquire) decides.
    ///
    /// After the clock was set back, an end or a mark that is ahead of it keeps this statement from taking the name, though
    /// the other one may grant it.
    pub(crate) fn take_free(&self, name: &LockName, terms: &LeaseTerms) -> String {
        let (holder, label, ttl) = (terms.holder, &terms.label, terms.ttl.as_micros());
        let (next, last) = (terms.next_token("`last_token`+1"), terms.last_token("`token`"));
        format!(
            "UPDATE `{}` SET `token`=LAST_INSERT_ID({next}),`last_token`={last},`label`={label},`term`={ttl},\
             `holder`='{holder}',`expires`={NOW}+{ttl} WHERE `name`={} \
             AND GREATEST(`expires`,`wanted`)<={EARLIER_CLOCK}",
            self.leases,
            name_literal(name)
        )
    }

    /// Locks the row of a name for a transaction, if there is one. Fails at once if it is locked.
    pub(crate) fn lock_row_at_once(&self, name: &LockName) -> String {
        format!(
            "SELECT 1 FROM `{}` WHERE `name`={} FOR UPDATE NOWAIT",
            self.leases,
            name_literal(name)
        )
    }

    /// Takes the name if nobody has it, and if it is not kept for a waiter; [`acquired`](super::acquired) reads the answer. If
    /// it is refused and waits, it marks the row for so long as the waiter, unless another one has.
    ///
    /// The assignments are made from left to right. The token comes first, and tells the others whether the name is
    /// [granted](GRANTED); if it is not, it is cut to what was reserved, in case somebody has changed the row. All that
    /// decide by holder, expiry and waiter come before these, and the expiry comes after the holder and the term.
    pub(crate) fn acquire(&self, name: &LockName, terms: &LeaseTerms, mark: Option<Mark>) -> String {
        let leases = &self.leases;
        let (name, holder, label) = (name_literal(name), terms.holder, &terms.label);
        let ttl = terms.ttl.as_micros();
        let (first, next) = (terms.next_token("1"), terms.next_token("`last_token`+1"));
        let last = terms.last_token("`token`");
        let others_wait = others_wait(terms.holder);
        let mine = format!("`holder`='{holder}'");
        let rest = format!("IF({FREE},`wanted`-{NOW},GREATEST(0,LEAST(`expires`-{NOW},`term`)))");
        let mut taken = format!("{TAKEN}|{rest}");
        let mut marks = format!("`wanted`=IF({GRANTED},0,`wanted`)");
        if let Some(Mark { lasts, sleeper }) = mark {
            let lasts = lasts.as_micros().min(u128::from(LONGEST_MARK));
            let enough = lasts / 8 * 7;
            // If nobody else waits, another holder is the reason of the refusal.
            taken += &format!("|IF({others_wait},0,{MARKED})");
            // A mark that lasts for long enough stays as it is: an answer that changes nothing writes nothing.
            marks = format!(
                "`waiter`=IF({GRANTED} OR {mine} OR {others_wait},`waiter`,'{holder}'),\
                 `sleeper`=IF(`waiter`<=>'{holder}',{sleeper},`sleeper`),\
                 `wanted`=CASE WHEN {GRANTED} THEN 0 WHEN {mine} OR NOT `waiter`<=>'{holder}' \
                 OR `wanted` BETWEEN {NOW}+{enough} AND {NOW}+{LONGEST_MARK} THEN `wanted` ELSE {NOW}+{lasts} END"
            );
        }
        format!(
            "INSERT INTO `{leases}` (`name`,`holder`,`label`,`term`,`expires`,`token`,`last_token`) \
             VALUES ({name},'{holder}',{label},{ttl},{NOW}+{ttl},LAST_INSERT_ID({first}),{last}) \
             ON DUPLICATE KEY UPDATE \
             `token`=CASE WHEN {FREE} AND NOT {others_wait} THEN LAST_INSERT_ID({next}) \
             WHEN {mine} AND `expires`>{NOW} THEN LAST_INSERT_ID(`token`) \
             ELSE LEAST(`token`,`last_token`)+0*LAST_INSERT_ID({taken}) END,\
             `label`=IF({GRANTED},{label},`label`),\
             `term`=CASE WHEN {GRANTED} THEN {ttl} WHEN {mine} AND `expires`>{NOW} THEN GREATEST(`term`,{ttl}) ELSE `term` END,\
             {marks},\
             `holder`=IF({GRANTED},'{holder}',IF({FREE},NULL,`holder`)),\
             `expires`=CASE WHEN {GRANTED} THEN {NOW}+{ttl} WHEN {mine} THEN GREATEST({REPAIRED},{NOW}+{ttl}) ELSE {REPAIRED} END,\
             `last_token`=IF({GRANTED},{last},`last_token`)"
        )
    }
}
