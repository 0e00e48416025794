//! Statements that find and delete dead rows.

use std::time::Duration;

use super::{FREE, LeaseStatements, NOW};
use crate::names::hex;

impl LeaseStatements {
    /// So many names after this one, in order, and whether each is dead: nobody has had it, and no token of it was given, for
    /// so long by the server's clock.
    pub(crate) fn rows_after(&self, name: &[u8], count: usize, retention: Duration) -> String {
        format!(
            "SELECT `name`,CAST({} AS SIGNED) FROM `{}` WHERE `name`>{} ORDER BY `name` LIMIT {count}",
            dead(retention),
            self.leases,
            hex(name)
        )
    }

    /// Deletes the row of this name if it is still dead: then it matches a row. One at a time, so that no two statements wait
    /// for each other.
    pub(crate) fn delete_dead(&self, name: &[u8], retention: Duration) -> String {
        format!(
            "DELETE FROM `{}` WHERE `name`={} AND {}",
            self.leases,
            hex(name),
            dead(retention)
        )
    }

    /// Deletes nothing, but needs the permission to.
    pub(crate) fn check_delete(&self) -> [String; 2] {
        [&self.leases, &self.holders].map(|table| format!("DELETE FROM `{table}` WHERE `name`=x''"))
    }

    /// So many holders after this one, in order, whose holds ended so long ago.
    pub(crate) fn dead_holders_after(&self, name: &[u8], holder: &[u8], count: usize, retention: Duration) -> String {
        let (name, retention) = (hex(name), retention.as_micros());
        format!(
            "SELECT `name`,`holder` FROM `{}` WHERE `name`>={name} AND (`name`>{name} OR `holder`>{}) \
             AND `expires`<{NOW}-{retention} ORDER BY `name`,`holder` LIMIT {count}",
            self.holders,
            hex(holder)
        )
    }

    /// Deletes the row of this holder if it has not been used again: then it matches a row.
    pub(crate) fn delete_dead_holder(&self, name: &[u8], holder: &[u8], retention: Duration) -> String {
        format!(
            "DELETE FROM `{}` WHERE `name`={} AND `holder`={} AND `expires`<{NOW}-{}",
            self.holders,
            hex(name),
            hex(holder),
            retention.as_micros()
        )
    }
}

/// Whether the row may be deleted. A token that is as young as that, or ahead of the clock, would be given again once the
/// clock is set back.
fn dead(retention: Duration) -> String {
    let retention = retention.as_micros();
    format!("({FREE} AND `expires`<{NOW}-{retention} AND `last_token`<{NOW}-{retention})")
}
