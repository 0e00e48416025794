//! The statement that takes a name, or says how long it stays taken.

use lock_core::LockName;

use super::{FREE, LONGEST_MARK, LeaseStatements, LeaseTerms, MARKED, Mark, NOW, REPAIRED, TAKEN, others_wait};
use crate::names::name_literal;

impl LeaseStatements {
    /// Takes the name if nobody has it, and if it is not kept for a waiter; [`acquired`] reads the answer. If it is refused
    /// and waits, it marks the row for so long as the waiter, unless another one has.
    ///
    /// The assignments are made from left to right: all that decide by holder, expiry and waiter come before these, and the
    /// expiry comes after the holder and the term.
    pub(crate) fn acquire(&self, name: &LockName, terms: &LeaseTerms, mark: Option<Mark>) -> String {
        let leases = &self.leases;
        let (name, holder, label) = (name_literal(name), terms.holder, &terms.label);
        let ttl = terms.ttl.as_micros();
        let first = terms.next_token("1");
        let last_of_first = terms.last_token(&first);
        let next = terms.next_token("`last_token`+1");
        let last = terms.last_token("`token`");
        let others_wait = others_wait(terms.holder);
        let mine = format!("`holder`='{holder}'");
        let takes = format!("({FREE} AND NOT {others_wait})");
        let rest = format!("IF({FREE},`wanted`-{NOW},GREATEST(0,LEAST(`expires`-{NOW},`term`)))");
        let refused = format!("{FREE} OR {mine} OR {others_wait}");
        let mut taken = format!("{TAKEN}|{rest}");
        let mut marks = String::new();
        if let Some(Mark { lasts, sleeper }) = mark {
            let lasts = lasts.as_micros().min(u128::from(LONGEST_MARK));
            let enough = lasts / 8 * 7;
            taken += &format!("|IF({refused},0,{MARKED})");
            // A mark that lasts for long enough stays as it is: an answer that changes nothing writes nothing.
            marks = format!(
                "`sleeper`=IF({refused},`sleeper`,{sleeper}),\
                 `waiter`=IF({refused},`waiter`,'{holder}'),\
                 `wanted`=CASE WHEN {others_wait} THEN `wanted` WHEN {FREE} THEN 0 WHEN {mine} THEN `wanted` \
                 WHEN `wanted` BETWEEN {NOW}+{enough} AND {NOW}+{LONGEST_MARK} THEN `wanted` ELSE {NOW}+{lasts} END,"
            );
        }
        format!(
            "INSERT INTO `{leases}` (`name`,`holder`,`label`,`expires`,`term`,`token`,`last_token`) \
             VALUES ({name},'{holder}',{label},{NOW}+{ttl},{ttl},LAST_INSERT_ID({first}),{last_of_first}) \
             ON DUPLICATE KEY UPDATE \
             `token`=CASE WHEN {takes} THEN LAST_INSERT_ID({next}) \
             WHEN {mine} AND NOT {FREE} THEN LAST_INSERT_ID(`token`) \
             ELSE `token`+0*LAST_INSERT_ID({taken}) END,\
             `last_token`=IF({takes},{last},`last_token`),\
             `label`=IF({takes},{label},`label`),\
             `term`=CASE WHEN {takes} THEN {ttl} WHEN {mine} AND NOT {FREE} THEN GREATEST(`term`,{ttl}) ELSE `term` END,\
             {marks}`holder`=IF({takes},'{holder}',IF({FREE},NULL,`holder`)),\
             `expires`=IF({mine},GREATEST({REPAIRED},{NOW}+{ttl}),{REPAIRED})",
        )
    }
}
