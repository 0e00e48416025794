//! Renewals of holds that share a name, and of those whose row somebody has locked.

use std::time::Duration;

use lock_core::LockName;
use lock_core::backend::HolderId;

use super::{CLOCK, KINDS};
use crate::error::SqlError;
use crate::names::name_literal;
use crate::protocol::lease_table::answers::held;
use crate::protocol::lease_table::{LeaseStatements, NOW, Rows, list, skip_locked};
use crate::protocol::{HoldRenewal, RenewalStatements, StatementResult};

impl RenewalStatements for LeaseStatements {
    fn together(&self, ttl: Duration, holds: &[HoldRenewal]) -> Vec<String> {
        match holds.first().is_some_and(|first| first.is_shared) {
            true => self.renew_shared(ttl, holds, Rows::SkipLocked).into(),
            false => vec![self.renew(ttl, holds, Rows::SkipLocked)],
        }
    }

    fn alone(&self, hold: &HoldRenewal) -> Vec<String> {
        self.renew_at_once(hold.ttl, hold)
    }

    /// Exclusive holds are only counted. If some are missing, none of them is known to be renewed: a question which these are
    /// would be answered by the server's clock of a later moment, and that may have been set back since.
    fn renewed(&self, holds: &[HoldRenewal], result: &StatementResult) -> Result<Vec<bool>, SqlError> {
        if !holds.iter().any(|hold| hold.is_shared) {
            return Ok(vec![result.matched == holds.len() as u64; holds.len()]);
        }
        let held = held(result)?;
        let is_held = |hold: &HoldRenewal| held.iter().any(|held| held == hold.holder.to_string().as_bytes());
        Ok(holds.iter().map(is_held).collect())
    }
}

impl LeaseStatements {
    /// Renews holds that share names, for the same time, and says which of them there are. The names' rows are locked in
    /// order, and each before its holders.
    pub(crate) fn renew_shared(&self, ttl: Duration, renewals: &[HoldRenewal], rows: Rows) -> [String; 3] {
        let ttl = ttl.as_micros();
        let (leases, holders) = (&self.leases, &self.holders);
        let names = list(renewals, |renewal| name_literal(&renewal.name));
        let ids = list(renewals, |renewal| format!("'{}'", renewal.holder));
        let both = format!("`{leases}` l STRAIGHT_JOIN `{holders}` h ON h.`name`=l.`name` AND h.`holder` IN ({ids})");
        let of_names = format!("l.`name` IN ({names}) AND l.`holder` IN {KINDS} AND l.`expires`>{NOW}");
        let renewed = |table| {
            format!(
                "{table}.`term`=GREATEST({table}.`term`,{ttl}),\
                 {table}.`expires`=GREATEST(LEAST({table}.`expires`,{CLOCK}+{table}.`term`),@until)"
            )
        };
        let set = format!("{},{}", renewed("h"), renewed("l"));
        let update = match rows {
            Rows::Locked => format!("UPDATE {both} AND h.`expires`>{NOW} SET {set} WHERE {of_names}"),
            Rows::SkipLocked => {
                let skips = skip_locked(renewals);
                let free =
                    format!("SELECT h.`name`,h.`holder` FROM {both} AND h.`expires`>{NOW} WHERE {of_names}{skips}");
                // With the name's row before those of its holders, MySQL 9 updates one holder of each name.
                format!(
                    "UPDATE ({free}) f STRAIGHT_JOIN `{holders}` h ON h.`name`=f.`name` AND h.`holder`=f.`holder` \
                     STRAIGHT_JOIN `{leases}` l ON l.`name`=f.`name` SET {set}"
                )
            }
        };
        [
            format!("SET @until={NOW}+{ttl}"),
            update,
            // Not by the clock, which may be set back in between: a hold that had ended would count.
            format!("SELECT h.`holder` FROM {both} AND h.`expires`>=@until WHERE {of_names}"),
        ]
    }

    /// A transaction that renews a hold, and fails at once if somebody has locked one of its rows. The last statement is that
    /// of [`renew`](Self::renew) or [`renew_shared`](Self::renew_shared).
    pub(crate) fn renew_at_once(&self, ttl: Duration, renewal: &HoldRenewal) -> Vec<String> {
        let mut statements = vec![self.lock_row_at_once(&renewal.name)];
        let renewals = std::slice::from_ref(renewal);
        match renewal.is_shared {
            true => {
                statements.push(self.lock_holder_at_once(&renewal.name, renewal.holder));
                statements.extend(self.renew_shared(ttl, renewals, Rows::Locked));
            }
            false => statements.push(self.renew(ttl, renewals, Rows::Locked)),
        }
        statements
    }

    /// Locks the row of a holder that shares a name, for a transaction that has the name's row. Fails at once if it is locked.
    fn lock_holder_at_once(&self, name: &LockName, holder: HolderId) -> String {
        format!(
            "SELECT 1 FROM `{}` WHERE `name`={} AND `holder`='{holder}' FOR UPDATE NOWAIT",
            self.holders,
            name_literal(name)
        )
    }
}
