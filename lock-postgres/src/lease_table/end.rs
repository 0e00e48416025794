//! Ending whatever a holder id has, or may still get by an acquire that is under way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, Mode, Revoke, Revoked, SentAt};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio_postgres::Row;

use super::Shared;
use crate::connection::{Connection, Parameters, Statement, TextRows};
use crate::error::{SqlError, unless_missing};
use crate::names::{id_of, name_bytes};
use crate::protocol::answers::{column, duration, flag, flags, revoked, told};
use crate::protocol::sharing::End;
use crate::protocol::terms::{as_micros, signed};

impl Shared {
    /// Retires the request's holder id.
    pub(super) async fn abandon(self: &Arc<Self>, request: &AcquireRequest) -> Result<()> {
        let (name, holder) = (request.name(), request.holder());
        self.waits.remove(holder);
        // Nothing was ever sent, so there is nothing to undo.
        if self.asking.is_unused() && self.keeping.is_unused() {
            return Ok(());
        }
        let connection = self.keeping.connection().await?;
        let is_exclusive = request.mode() == Mode::Exclusive && !self.downgrades.contains(holder);
        if !is_exclusive || self.claims.may_overtake(holder, &connection.number) {
            return self.end_any(&connection, name, holder, None).await.map(drop);
        }
        let rows = self
            .query_row(
                &connection,
                name,
                &self.statements.end,
                &[&name_bytes(name), &id_of(holder)],
            )
            .await?;
        let is_wanted = flag(&rows, 1).map_err(SqlError::into_lock_error)?;
        self.retire(&connection, name, holder, is_wanted == Some(true)).await;
        Ok(())
    }

    /// Ends an exclusive hold and retires its holder id. Returns whether it was there.
    pub(super) async fn release_exclusive(
        &self,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        let connection = match self.asking.idle() {
            Some(connection) => connection,
            None => self.keeping.connection().await?,
        };
        if self.claims.may_overtake(holder, &connection.number) {
            // One transaction: if it fails, the hold is as it was.
            return self.end_any(&connection, name, holder, keep_for).await;
        }
        let (id, rest) = (id_of(holder), keep_for.map_or(0, as_micros));
        let parameters: Parameters<'_> = &[&name_bytes(name), &id, &rest];
        let rows = self
            .query_row(&connection, name, &self.statements.release, parameters)
            .await?;
        let is_wanted = flag(&rows, 0).map_err(SqlError::into_lock_error)?;
        self.retire(&connection, name, holder, is_wanted == Some(true)).await;
        Ok(is_wanted.is_some())
    }

    /// Ends whatever this id has in any table, and retires it. Returns whether it had the name.
    pub(super) async fn end_any(
        &self,
        connection: &Connection,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        let buries = self.claims.may_overtake(holder, &connection.number);
        let sql = self.statements.end_any(name, holder, End { buries, keep_for });
        let (was_held, is_wanted) = match self.run_on_row(connection, name, &sql).await {
            // Somebody deleted the row while this waited for it, so there is no tombstone.
            Ok(rows) if told(&rows).is_none() => {
                let message = "the lock's row was deleted meanwhile: try again";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            rows => flags(&unless_missing(rows)?),
        };
        self.retire(connection, name, holder, is_wanted).await;
        Ok(was_held)
    }

    /// The server has ended whatever this id had. `is_wanted`: somebody waits for the name.
    async fn retire(&self, connection: &Connection, name: &LockName, holder: HolderId, is_wanted: bool) {
        self.claims.remove(holder);
        if is_wanted {
            self.call(connection, name).await;
        }
    }

    /// Runs a text about a hold, and returns when it was sent. It may be executed twice: if the server had closed the connection
    /// while it was idle, this runs it over another one.
    pub(super) async fn keep(&self, name: &LockName, sql: &str) -> Result<(SentAt, TextRows)> {
        let connection = self.keeping.connection().await?;
        let (was_used, mut sent) = (connection.was_used(), SentAt::now());
        let mut rows = self.run_on_row(&connection, name, sql).await;
        if was_used && rows.as_ref().is_err_and(SqlError::is_disconnect) {
            let connection = self.keeping.connection().await?;
            sent = SentAt::now();
            rows = self.run_on_row(&connection, name, sql).await;
        }
        // The hold went with its table.
        Ok((sent, unless_missing(rows)?))
    }

    /// Ends the hold with this token, whoever has it.
    pub(super) async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let connection = self.keeping.connection().await?;
        let (number, is_now) = (signed(token.as_u64()), how != Revoke::AtLeaseEnd);
        let nobody = id_of(HolderId::random());
        let parameters: Parameters<'_> = &[&name_bytes(name), &number, &is_now, &nobody];
        let rows = self
            .query_row(&connection, name, &self.statements.revoke, parameters)
            .await?;
        let revoked = match rows.first() {
            Some(row) => {
                let read = |row| Ok((column(row, 0, "rest of a hold")?, column(row, 1, "rest of a hold")?));
                read(row).map(|(left, is_wanted)| Some((duration(left), is_wanted)))
            }
            None => {
                let sql = self.statements.revoke_shared(name, token, how);
                revoked(&unless_missing(self.run_on_row(&connection, name, &sql).await)?)
            }
        };
        let Some((left, is_wanted)) = revoked.map_err(SqlError::into_lock_error)? else {
            return Ok(Revoked::NotHeld);
        };
        if is_now && is_wanted {
            self.call(&connection, name).await;
        }
        Ok(Revoked::done(left))
    }

    /// Runs a text that locks this name's row.
    async fn run_on_row(&self, connection: &Connection, name: &LockName, sql: &str) -> Result<TextRows, SqlError> {
        self.with_row(connection, name, connection.run(sql, self.limit())).await
    }

    /// Runs a statement that locks this name's row. Without a table there is nothing.
    pub(super) async fn query_row(
        &self,
        connection: &Arc<Connection>,
        name: &LockName,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>> {
        let query = connection.query(statement, parameters, self.limit());
        unless_missing(self.with_row(connection, name, query).await)
    }
}
