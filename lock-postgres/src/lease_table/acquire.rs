//! Acquiring: one request that takes the name or says how long it stays taken, and the wait in between.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, SentAt};
use lock_core::{Error, ErrorKind, Result};
use lock_kit::lease_rows::LeaseHold;
use lock_kit::pacing::Wakes;
use lock_kit::requests::{check_not_given_up, note_silence, unless_given_up};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;

use super::Shared;
use super::waits::Wakeup;
use crate::connection::{Connection, Parameters, Statement};
use crate::error::{SERVER, SqlError, silent};
use crate::names::{id_of, name_bytes};
use crate::protocol::NO_PLACE;
use crate::protocol::answers::{Acquired, Taken, acquired, column, shared, taken};
use crate::protocol::sharing::Entry;
use crate::protocol::terms::{Kind, LeaseTerms, as_micros};

/// The most repetitions of a statement that failed for reasons which a repetition cures.
const MAX_RETRIES: u32 = 20;
/// How long the stand-by waits for the one whose turn it is.
const GRACE: Duration = Duration::from_millis(100);

/// The server's decision.
enum Asked {
    Granted(Attempt),
    Taken(Taken),
}

/// When a request was sent, and the answer to it.
type Answered = (SentAt, Acquired);

impl Shared {
    /// Asks until the name is granted or the request is given up. In between it waits in the queue: until another client calls
    /// it, or until it has to ask by itself.
    pub(super) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let mut free = 0;
        loop {
            let begun = Instant::now();
            let taken = match note_silence(request, self.ask_on(request), silent).await? {
                Asked::Granted(attempt) => return Ok(attempt),
                Asked::Taken(taken) => taken,
            };
            let busy = match &taken.label {
                Some(label) => Busy::new().with_holder(label.clone()),
                None => Busy::new(),
            };
            if !request.waits() {
                return Ok(Attempt::Busy(busy));
            }
            let woken = self.waits.refused(request.holder(), begun.elapsed());
            request.note_busy(busy.clone());
            self.listener.start(&self.waits);
            if !taken.is_queued && !self.enter_queue(request).await? {
                // It was freed meanwhile.
                free += 1;
                if free > MAX_RETRIES {
                    return Err(refused_again_and_again());
                }
                continue;
            }
            free = 0;
            let wakes = match (self.listener.may_hear(), self.listener.hears()) {
                (true, true) => Wakes::Release,
                (true, false) => Wakes::Connection,
                (false, _) => Wakes::Turn,
            };
            let pause = self.waits.pause(request.holder(), taken.rest, wakes);
            tokio::select! {
                biased;
                () = request.given_up() => return Ok(Attempt::Busy(busy)),
                () = called(&woken) => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Asks until the server decides.
    async fn ask_on(self: &Arc<Self>, request: &AcquireRequest) -> Result<Asked> {
        Kind::of(request.mode())?;
        for _ in 0..MAX_RETRIES {
            let connection = unless_given_up(request, SERVER, self.asking.connection()).await?;
            request.note_connected();
            // Whatever is granted must be kept and ended.
            unless_given_up(request, SERVER, self.keeping.connection()).await?;
            check_not_given_up(request, SERVER)?;
            let terms = LeaseTerms::new(request)?;
            let was_used = connection.was_used();
            let ask = self.ask(request, &terms, &connection);
            match self.with_row(&connection, request.name(), ask).await {
                Ok((sent, acquired)) => match acquired {
                    Acquired::Granted(token) => {
                        self.waits.remove(request.holder());
                        self.clean_up_if_due();
                        let armed = request.lease().arm(sent, terms.ttl)?;
                        let hold = LeaseHold::new(self, request, token, terms.reserved(token));
                        return Ok(Asked::Granted(Attempt::Granted(Arc::new(hold), armed)));
                    }
                    Acquired::Taken(taken) => {
                        if taken.is_too_long {
                            // If it fails, the next refusal tries again.
                            let parameters: Parameters<'_> = &[&terms.name];
                            let cut = connection.query(&self.statements.cut, parameters, self.limit());
                            drop(self.with_row(&connection, request.name(), cut).await);
                        }
                        return Ok(Asked::Taken(taken));
                    }
                    Acquired::Unknown => {}
                },
                Err(error) if error.is_transient() || error.is_unprepared() => {}
                Err(error) if error.is_missing_table() => self.prepare(&connection).await?,
                // The server had closed it while it was idle. Under the same holder id it does no harm twice.
                Err(error) if error.is_disconnect() && was_used => {
                    if request.waits() {
                        request.note_unreachable(error.into_lock_error());
                    }
                }
                Err(error) => return Err(error.into_lock_error()),
            }
        }
        Err(refused_again_and_again())
    }

    /// Asks once. A request that was never refused tries the shortest statement first.
    async fn ask(
        &self,
        request: &AcquireRequest,
        terms: &LeaseTerms,
        connection: &Arc<Connection>,
    ) -> Result<Answered, SqlError> {
        let place = self.waits.place(request.holder());
        if !terms.kind.is_exclusive() {
            return self.ask_to_share(request, terms, place, connection).await;
        }
        let (ttl, least) = (terms.ttl_micros(), terms.least);
        let take: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &terms.name,
            &terms.holder,
            &terms.label,
            &ttl,
            &least,
            &terms.at_least,
            &terms.reserved_after,
        ];
        if place.is_none() && self.prepares() {
            let (sent, rows) = self.send(request, connection, &self.statements.take, &take).await?;
            if let Some(token) = taken(&rows)? {
                return Ok((sent, Acquired::Granted(token)));
            }
        }
        if place.is_none() {
            let (sent, rows) = self.send(request, connection, &self.statements.ask, &take).await?;
            let acquired = acquired(&rows)?;
            // Only kept for those who wait, and perhaps for nobody who still does.
            if !matches!(&acquired, Acquired::Taken(taken) if !taken.is_held) {
                return Ok((sent, acquired));
            }
        }
        let (place, lasts) = (
            place.unwrap_or(NO_PLACE),
            as_micros(self.waits.entry_lasts(request.holder())),
        );
        let turn: Vec<_> = take.into_iter().chain([&place as _, &lasts as _]).collect();
        let (sent, rows) = self.send(request, connection, &self.statements.turn, &turn).await?;
        let acquired = acquired(&rows)?;
        let has_place = match &acquired {
            Acquired::Granted(_) => true,
            Acquired::Taken(taken) => taken.is_queued,
            // Its row is gone, as after the promotion of a standby that lacks it. Only a request without a place makes one.
            Acquired::Unknown => false,
        };
        if !has_place && place != NO_PLACE {
            self.waits.set_place(request.holder(), None);
        }
        Ok((sent, acquired))
    }

    async fn ask_to_share(
        &self,
        request: &AcquireRequest,
        terms: &LeaseTerms,
        place: Option<i64>,
        connection: &Arc<Connection>,
    ) -> Result<Answered, SqlError> {
        let entry = request.waits().then(|| Entry {
            channel: self.listener.channel(),
            lasts: as_micros(self.waits.entry_lasts(request.holder())),
        });
        let sql = self.statements.share(terms, place, entry);
        let (sent, rows) = self
            .claim(request, connection, connection.run(&sql, self.limit()))
            .await?;
        let shared = shared(&rows)?;
        match shared.acquired {
            // Others may share it as well.
            Acquired::Granted(_) if shared.is_wanted => self.begin_call(connection, request.name()),
            Acquired::Granted(_) | Acquired::Unknown => {}
            Acquired::Taken(_) if request.waits() => self.waits.set_place(request.holder(), shared.place),
            Acquired::Taken(_) => {}
        }
        Ok((sent, shared.acquired))
    }

    /// Enters the queue. False if the name is free by now.
    async fn enter_queue(&self, request: &AcquireRequest) -> Result<bool> {
        let connection = unless_given_up(request, SERVER, self.asking.connection()).await?;
        let kind = Kind::of(request.mode())?;
        let (name, holder) = (name_bytes(request.name()), id_of(request.holder()));
        let label = request.label();
        let label = crate::names::label_bytes(label.as_deref());
        let lasts = as_micros(self.waits.entry_lasts(request.holder()));
        let parameters: Parameters<'_> = &[
            &name,
            &holder,
            &label,
            &lasts,
            &self.listener.channel(),
            &kind.kind,
            &kind.permits,
            &kind.of,
        ];
        let enter = self.send(request, &connection, &self.statements.queue, parameters);
        let entered = self.with_row(&connection, request.name(), enter).await;
        let (_, rows) = match entered {
            Ok(entered) => entered,
            Err(error) if error.is_transient() || error.is_unprepared() || error.is_missing_table() => {
                return Ok(false);
            }
            Err(error) => return Err(error.into_lock_error()),
        };
        let place = rows.first().map(|row| column::<i64>(row, 0, "place")).transpose();
        let place = place.map_err(SqlError::into_lock_error)?;
        self.waits.set_place(request.holder(), place);
        Ok(place.is_some())
    }

    /// Sends what may leave something of this holder id at the server. Without an answer it leaves a claim.
    async fn send(
        &self,
        request: &AcquireRequest,
        connection: &Arc<Connection>,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<(SentAt, Vec<Row>), SqlError> {
        self.claim(
            request,
            connection,
            connection.query(statement, parameters, self.limit()),
        )
        .await
    }

    async fn claim<T>(
        &self,
        request: &AcquireRequest,
        connection: &Arc<Connection>,
        sending: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<(SentAt, T), SqlError> {
        let in_flight = self.claims.sending(request.holder(), connection.number);
        let sent = request.sending();
        let answer = sending.await;
        if answer.as_ref().err().is_none_or(SqlError::is_not_executed) {
            in_flight.answered();
        }
        Ok((sent, answer?))
    }
}

/// Waits until it is the waiter's turn, or a little after it was the stand-by's.
async fn called(woken: &Wakeup) {
    tokio::select! {
        biased;
        () = woken.turn.notified() => {}
        () = async {
            woken.stand_by.notified().await;
            sleep(GRACE).await;
        } => {}
    }
}

fn refused_again_and_again() -> Error {
    let message = "the PostgreSQL server refuses to change the lock's row again and again: see who locks it";
    Error::new(ErrorKind::Unavailable, message)
}
