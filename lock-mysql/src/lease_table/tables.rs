//! The checks of the server before the first lock: its tables, which are made if they are missing and refused if they cannot
//! lock rows, and the permissions.

use lock_core::{Error, ErrorKind, Result};

use super::Shared;
use crate::connection::{ConnectionGroup, Member};
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::protocol::column;
use crate::tables::lease_tables;

/// Selects, in the second column, whether `SYSDATE` runs during a statement. The first column takes about a
/// millisecond. It is no `SLEEP`, since that might last for as long as the clock is set back meanwhile.
const PASSING_TIME: &str = "SELECT CAST(BENCHMARK(10000,RAND()) AS SIGNED),CAST(SYSDATE(6)<>NOW(6) AS SIGNED)";

impl Shared {
    /// Reaches the server, makes the tables and checks that all that a lock needs is permitted.
    pub(super) async fn connect(&self) -> Result<()> {
        self.keeping.make_ready(None).await?;
        self.asking.open_in_background();
        let member = self.keeping.member(None).await?;
        self.prepare(&self.keeping, &member).await?;
        for sql in self.statements.check_permissions() {
            self.run(&self.keeping, &member, sql)
                .await
                .map_err(SqlError::into_lock_error)?;
        }
        Ok(())
    }

    /// Makes sure that the tables are there and lock rows.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], with the statements for an administrator, if one is missing and may not be made;
    /// [`ErrorKind::Misconfigured`] if one is of an engine without row locks, if the session is not as it was set up, if `SYSDATE`
    /// is not the present, or if settings by which a crash loses leases are [refused](crate::Checks::Refuse).
    pub(super) async fn prepare(&self, group: &ConnectionGroup, member: &Member) -> Result<()> {
        self.check_session(group, member).await?;
        let tables = lease_tables(&self.config.table);
        let prepared = probe::prepare_tables(&tables, member.session(), self.config.response_timeout).await;
        prepared.map_err(RequestError::into_lock_error)?;
        let limit = self.config.response_timeout;
        let checked = probe::check_durability(&self.config, member.session(), limit).await;
        self.set_survives_crash(checked.map_err(RequestError::into_lock_error)?);
        self.set_prepared(true);
        Ok(())
    }

    /// If a proxy gives each statement another connection of the server, clocks differ by their time zones, and no connection
    /// can be found to end what it executes. With another meaning of `SYSDATE`, a statement that has waited for its row would
    /// cut a hold that began meanwhile.
    async fn check_session(&self, group: &ConnectionGroup, member: &Member) -> Result<()> {
        let set_up = probe::asks_for_set_up(member.session().identity());
        let answer = self.run(group, member, format!("{PASSING_TIME},{set_up}")).await;
        let answer = answer.map_err(SqlError::into_lock_error)?;
        let missing = || SqlError::UnexpectedAnswer("clock").into_lock_error();
        let row = answer.result.rows.first().ok_or_else(missing)?;
        probe::check_set_up(row, 2).map_err(RequestError::into_lock_error)?;
        let passes: i64 = column(row, 1, "clock").map_err(SqlError::into_lock_error)?;
        if passes == 0 {
            let message = "the MySQL server's option sysdate-is-now would end leases too early: start it without";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }
}
