//! Ending whatever a holder id has, or may still get by an acquire that is under way.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, HolderId, Mode, Revoke, Revoked, SentAt};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};

use super::Shared;
use crate::connection::{Connection, Parameters, Supervisor, TextRows};
use crate::error::SqlError;
use crate::names::{Id, name_bytes};
use crate::protocol::answers::{column, duration, flag, flags, revoked, told};
use crate::protocol::sharing::End;
use crate::protocol::terms::as_micros;

/// What an end has found.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    was_held: bool,
    /// Whether somebody waits.
    is_wanted: bool,
}

impl Shared {
    /// Retires the request's holder id.
    pub(super) async fn abandon(self: &Arc<Self>, request: &AcquireRequest) -> Result<()> {
        let (name, holder) = (request.name(), request.holder());
        self.stop_waiting(holder);
        // Nothing was ever sent, so there is nothing to undo.
        if self.asking.is_unused() && self.keeping.is_unused() {
            return Ok(());
        }
        let connection = self.keeping.connection().await?;
        let buries = self.claims.may_overtake(holder, &connection.number());
        let is_exclusive = request.mode() == Mode::Exclusive && !self.downgrades.contains(holder);
        let ended = match is_exclusive && !buries {
            true => self.end(&connection, name, holder).await?,
            false => {
                let keep_for = None;
                self.end_any(&connection, name, holder, End { buries, keep_for })
                    .await?
            }
        };
        self.claims.remove(holder);
        if ended.is_wanted {
            self.call(&connection, name).await;
        }
        Ok(())
    }

    /// Ends a hold and retires its holder id. Returns whether it was there.
    pub(super) async fn release(
        self: &Arc<Self>,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        let connection = match self.asking.idle() {
            Some(connection) => connection,
            None => self.keeping.connection().await?,
        };
        if self.claims.may_overtake(holder, &connection.number()) {
            // One transaction: if it fails, the hold is as it was.
            return self.release_any(&connection, name, holder, keep_for).await;
        }
        let (name_, id, rest) = (name_bytes(name), Id::from(holder), keep_for.map_or(0, as_micros));
        let parameters: Parameters<'_> = &[&name_, &id, &rest];
        let release = connection.query(&self.statements.release, parameters, self.limit());
        let released = self.with_row(&connection, name, release).await;
        let rows = unless_missing(released)?;
        let ended = match flag(&rows, 0).map_err(SqlError::into_lock_error)? {
            Some(is_wanted) => Ended {
                was_held: true,
                is_wanted,
            },
            None => Ended::default(),
        };
        self.claims.remove(holder);
        if ended.is_wanted {
            self.call(&connection, name).await;
        }
        Ok(ended.was_held)
    }

    /// The same for a hold that shares the name, or is about to.
    pub(super) async fn release_shared(
        &self,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        let connection = self.keeping.connection().await?;
        self.release_any(&connection, name, holder, keep_for).await
    }

    async fn release_any(
        &self,
        connection: &Connection,
        name: &LockName,
        holder: HolderId,
        keep_for: Option<Duration>,
    ) -> Result<bool> {
        let buries = self.claims.may_overtake(holder, &connection.number());
        let ended = self.end_any(connection, name, holder, End { buries, keep_for }).await?;
        self.claims.remove(holder);
        if ended.is_wanted {
            self.call(connection, name).await;
        }
        Ok(ended.was_held)
    }

    async fn end_any(&self, connection: &Connection, name: &LockName, holder: HolderId, how: End) -> Result<Ended> {
        let sql = self.statements.end_any(name, holder, how);
        let ended = self
            .with_row(connection, name, connection.run(&sql, self.limit()))
            .await;
        let (was_held, is_wanted) = match ended {
            Err(error) if error.is_missing_table() => (false, false),
            rows => {
                let rows = rows.map_err(SqlError::into_lock_error)?;
                if told(&rows).is_none() {
                    // Somebody deleted the row while this waited for it, so there is no tombstone.
                    let message = "the lock's row was deleted meanwhile: try again";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                flags(&rows)
            }
        };
        Ok(Ended { was_held, is_wanted })
    }

    /// Runs a text about a hold, and returns when it was sent. It may be executed twice: if the server had closed the connection
    /// while it was idle, this runs it over another one.
    pub(super) async fn keep(&self, name: &LockName, sql: &str) -> Result<(SentAt, TextRows)> {
        let mut connection = self.keeping.connection().await?;
        let (was_used, mut sent) = (connection.was_used(), SentAt::now());
        let mut rows = self
            .with_row(&connection, name, connection.run(sql, self.limit()))
            .await;
        if was_used && rows.as_ref().is_err_and(SqlError::is_disconnect) {
            connection = self.keeping.connection().await?;
            sent = SentAt::now();
            rows = self
                .with_row(&connection, name, connection.run(sql, self.limit()))
                .await;
        }
        match rows {
            // The hold went with its table.
            Err(error) if error.is_missing_table() => Ok((sent, TextRows::new())),
            rows => Ok((sent, rows.map_err(SqlError::into_lock_error)?)),
        }
    }

    /// Calls those whose turn it is, if there is a connection, and waits until the server has done so.
    pub(super) async fn call_over(&self, supervisor: &Supervisor, name: &LockName) {
        if let Ok(connection) = supervisor.connection().await {
            self.call(&connection, name).await;
        }
    }

    /// Ends what this id has. Only for one whose acquires were all answered, or came over the same connection.
    async fn end(&self, connection: &Arc<Connection>, name: &LockName, holder: HolderId) -> Result<Ended> {
        let (name_, id) = (name_bytes(name), Id::from(holder));
        let parameters: Parameters<'_> = &[&name_, &id];
        let end = connection.query(&self.statements.end, parameters, self.limit());
        read(self.with_row(connection, name, end).await)
    }

    /// Ends the hold with this token, whoever has it.
    pub(super) async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let connection = self.keeping.connection().await?;
        let (name_, token_) = (name_bytes(name), token);
        let token = i64::try_from(token.as_u64()).unwrap_or(i64::MAX);
        let (is_now, nobody) = (how != Revoke::AtLeaseEnd, Id::from(HolderId::random()));
        let parameters: Parameters<'_> = &[&name_, &token, &is_now, &nobody];
        let revoke = connection.query(&self.statements.revoke, parameters, self.limit());
        let rows = unless_missing(self.with_row(&connection, name, revoke).await)?;
        let Some(row) = rows.first() else {
            return self.revoke_shared(&connection, name, token_, how).await;
        };
        let read = |row| Ok((column(row, 0, "rest of a hold")?, column(row, 1, "rest of a hold")?));
        let (left, is_wanted): (i64, bool) = read(row).map_err(SqlError::into_lock_error)?;
        if is_now && is_wanted {
            self.call(&connection, name).await;
        }
        Ok(Revoked::done(duration(left)))
    }
}

impl Shared {
    async fn revoke_shared(
        &self,
        connection: &Connection,
        name: &LockName,
        token: FencingToken,
        how: Revoke,
    ) -> Result<Revoked> {
        let sql = self.statements.revoke_shared(name, token, how);
        let ended = self
            .with_row(connection, name, connection.run(&sql, self.limit()))
            .await;
        let rows = match ended {
            Err(error) if error.is_missing_table() => return Ok(Revoked::NotHeld),
            rows => rows.map_err(SqlError::into_lock_error)?,
        };
        let Some((left, is_wanted)) = revoked(&rows).map_err(SqlError::into_lock_error)? else {
            return Ok(Revoked::NotHeld);
        };
        if how != Revoke::AtLeaseEnd && is_wanted {
            self.call(connection, name).await;
        }
        Ok(Revoked::done(left))
    }
}

fn read(ended: Result<Vec<tokio_postgres::Row>, SqlError>) -> Result<Ended> {
    let rows = unless_missing(ended)?;
    let flags = flag(&rows, 0).and_then(|held| Ok((held, flag(&rows, 1)?)));
    let (was_held, is_wanted) = flags.map_err(SqlError::into_lock_error)?;
    Ok(Ended {
        was_held: was_held.unwrap_or(false),
        is_wanted: is_wanted.unwrap_or(false),
    })
}

/// Without a table there is nothing.
pub(super) fn unless_missing(answer: Result<Vec<tokio_postgres::Row>, SqlError>) -> Result<Vec<tokio_postgres::Row>> {
    match answer {
        Err(error) if error.is_missing_table() => Ok(Vec::new()),
        answer => answer.map_err(SqlError::into_lock_error),
    }
}
