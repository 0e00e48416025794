//! The tables, which are made if they are missing and refused if they cannot lock rows, and the permissions.

use lock_core::Result;

use super::Shared;
use crate::connection::Member;
use crate::error::{RequestError, SqlError};
use crate::probe;
use crate::tables::lease_tables;

impl Shared {
    /// Reaches the server, makes the tables, checks that all that a lock needs is permitted, and checks the server anew: its settings
    /// may have changed since the connection was made.
    pub(super) async fn connect(&self) -> Result<()> {
        let (keeping, asking) = tokio::join!(self.keeping.make_ready(None), self.asking.member(None));
        keeping?;
        // The one that keeps holds may still lead to a server that nobody acquires from any more.
        let member = asking?;
        self.server.check(member.session(), &self.config).await?;
        self.prepare(&member).await?;
        for sql in self.statements.check_permissions() {
            self.run(&self.asking, &member, sql)
                .await
                .map_err(SqlError::into_lock_error)?;
        }
        Ok(())
    }

    /// Makes sure that the tables are there and lock rows.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](lock_core::ErrorKind::Denied), with the statements for an administrator, if one is missing and may not be
    /// made; [`ErrorKind::Misconfigured`](lock_core::ErrorKind::Misconfigured) if one is of an engine without row locks.
    pub(super) async fn prepare(&self, member: &Member) -> Result<()> {
        let tables = lease_tables(&self.config.table);
        let prepared = probe::prepare_tables(&tables, member.session(), self.config.response_timeout).await;
        prepared.map_err(RequestError::into_lock_error)?;
        self.set_prepared(true);
        Ok(())
    }
}
