//! Readers: transactions that share the lock of a name's row.

use std::time::Duration;

use lock_core::FencingToken;
use lock_core::backend::AcquireRequest;

use super::Shared;
use crate::connection::Session;
use crate::error::RequestError;
use crate::protocol::row_lock::{Acquired, reader_token};
use crate::protocol::{Answer, column};

impl Shared {
    /// Shares the row; `None` if there is no such row yet. Three round trips: the row's lock, which a reader that waited for it
    /// has already, a token, and the proof that the row is still shared, by which the lease is armed.
    pub(super) async fn take_shared(
        &self,
        session: &Session,
        request: &AcquireRequest,
        ttl: Duration,
    ) -> Result<Option<(Answer, Acquired)>, RequestError> {
        let limit = self.client.response_timeout();
        request.sending();
        let sql = self.statements.share_nowait(request.name());
        let answer = session.run(sql, Some(ttl), limit).await?;
        let Some(row) = answer.row(0) else {
            return Ok(None);
        };
        let token = self.next_reader_token(request, column(row, 0, "token")?).await?;
        let label = request.label();
        let sql = self
            .statements
            .enter_reader(request.name(), request.holder(), token, label.as_deref());
        request.sending();
        let answer = session.run(sql, Some(ttl), limit).await?;
        Ok(Some((answer, Acquired { token, ahead: false })))
    }

    /// `row`: the token of the row that is shared.
    async fn next_reader_token(&self, request: &AcquireRequest, row: u64) -> Result<FencingToken, RequestError> {
        let sql = self.statements.reader_token(request.name(), row, request.token_floor());
        match self.client.control.execute(sql, None).await {
            Ok(answer) => Ok(reader_token(&answer)?),
            // They say nothing about the name's row: the caller would take one for another holder.
            Err(RequestError::Sql(error))
                if !error.is_deadlock() && !error.is_missing_table() && !error.is_read_only() =>
            {
                Err(error.into_lock_error().into())
            }
            Err(error) => Err(error),
        }
    }
}
