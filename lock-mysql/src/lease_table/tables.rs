//! The checks of the server before the first lock: its tables, which are made if they are missing and refused if they cannot
//! lock rows, and the permissions.

use lock_core::{Error, ErrorKind, Result};

use super::Shared;
use crate::connection::{Lane, Member};
use crate::error::SqlError;
use crate::protocol::column;
use crate::protocol::lease_table::LeaseStatements;
use crate::schema::{self, Table};

/// How often MySQL may say that those who make the same table at the same time are in each other's way.
const DEADLOCKS: usize = 20;

/// Whether `SYSDATE` goes on while a statement runs: the second column. The first one takes about a millisecond, and is no
/// `SLEEP`, since that might last for as long as the clock is set back meanwhile.
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
    /// [`ErrorKind::Denied`], with the statement for an administrator, if one is missing and may not be made;
    /// [`ErrorKind::Misconfigured`] if one is of an engine without row locks, or if `SYSDATE` is not the present.
    pub(super) async fn prepare(&self, lane: &Lane, member: &Member) -> Result<()> {
        self.check_clock(lane, member).await?;
        for Table { name, create } in schema::lease_tables(self.config.table()) {
            let found = self.run(lane, member, LeaseStatements::engine(&name)).await;
            let found = found.map_err(SqlError::into_lock_error)?;
            match found.result.rows.first() {
                Some(row) => {
                    let engine: Option<Vec<u8>> =
                        column(row, 0, "engine of the table").map_err(SqlError::into_lock_error)?;
                    if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case(b"InnoDB")) {
                        let message =
                            format!("table `{name}` must be of the engine InnoDB: run ALTER TABLE … ENGINE=InnoDB");
                        return Err(Error::new(ErrorKind::Misconfigured, message));
                    }
                }
                None => self.create(lane, member, &name, create).await?,
            }
        }
        self.set_prepared(true);
        Ok(())
    }

    /// With another meaning of `SYSDATE`, a statement that has waited for its row would cut a hold that began meanwhile.
    async fn check_clock(&self, lane: &Lane, member: &Member) -> Result<()> {
        let answer = self.run(lane, member, PASSING_TIME.to_owned()).await;
        let answer = answer.map_err(SqlError::into_lock_error)?;
        let missing = || SqlError::UnexpectedAnswer("clock").into_lock_error();
        let row = answer.result.rows.first().ok_or_else(missing)?;
        let passes: i64 = column(row, 1, "clock").map_err(SqlError::into_lock_error)?;
        if passes == 0 {
            let message = "the MySQL server's option sysdate-is-now would end leases too early: start it without";
            return Err(Error::new(ErrorKind::Misconfigured, message));
        }
        Ok(())
    }

    async fn create(&self, lane: &Lane, member: &Member, table: &str, sql: String) -> Result<()> {
        let mut created = self.run(lane, member, sql.clone()).await;
        for _ in 0..DEADLOCKS {
            if !created.as_ref().is_err_and(SqlError::is_deadlock) {
                break;
            }
            created = self.run(lane, member, sql.clone()).await;
        }
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.is_denied() => {
                let message = format!(
                    "table `{table}` is missing and the MySQL user may not create it: run \"{sql};\" and grant the user \
                     SELECT, INSERT and UPDATE on it"
                );
                Err(Error::new(ErrorKind::Denied, message).with_source(error))
            }
            Err(error) => Err(error.into_lock_error()),
        }
    }
}
