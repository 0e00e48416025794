//! Acquiring: asks, and waits in the queue until it is this request's turn.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::connection::{Health, Session};
use crate::error::Failed;
use crate::hold::{RedisHold, Server, millis, unexpected};
use crate::inbox::Waiting;
use crate::keys::Keys;
use crate::reply::{self, Acquired, Holder, Taken};
use crate::{backoff, look, script};

impl Server {
    /// Asks until the name is ours or nobody waits for it any more, and sleeps in between: until the server tells it to
    /// look, or it has to by itself.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let keys = Keys::new(&self.prefix, request.name());
        let mut may_have_place = self.doubts.knows(request.holder());
        let mut place: Option<Place<'_>> = None;
        let mut last_busy: Option<Busy> = None;
        let mut foreign = None;
        loop {
            let session = self.connection.session(request.given_up()).await?;
            request.note_connected();
            if request.is_given_up() {
                return given_up(&session, last_busy);
            }
            if let Some(place) = &place {
                place.waiting.forget();
            }
            let ttl = request.ttl();
            let taken = match self.ask(request, ttl, &keys, &session, may_have_place).await? {
                Asked::Granted(attempt) => {
                    if let Some(place) = place {
                        place.confirmed();
                    }
                    return Ok(attempt);
                }
                Asked::Taken(taken) => taken,
                Asked::GivenUp => return given_up(&session, last_busy),
            };
            let (ahead, rest) = (taken.ahead, taken.rest);
            let is_foreign = taken.holder == Holder::Foreign;
            let busy = match taken.holder.label() {
                Some(label) => Busy::new().with_holder(label),
                None => Busy::new(),
            };
            let Some(ahead) = ahead else {
                return Ok(Attempt::Busy(busy));
            };
            may_have_place = true;
            let place = place.get_or_insert_with(|| Place::new(self, request));
            let mut after = look::look_after(
                look::place_lasts(ttl, self.grace),
                rest,
                ahead,
                self.grace,
                rand::random(),
            );
            // That one wakes nobody.
            let pauses = foreign.take().filter(|_| is_foreign);
            if is_foreign {
                let mut pauses = pauses.unwrap_or_else(backoff::ask_again);
                after = after.min(pauses.next().unwrap_or(after));
                foreign = Some(pauses);
            }
            last_busy = Some(busy.clone());
            tokio::select! {
                () = place.waiting.look_at(Instant::now() + after) => {}
                () = follow(&session, request, &busy) => {}
                () = request.given_up() => return given_up(&session, last_busy),
                never = self.connection.attend() => match never {},
            }
            if session.is_over() {
                last_busy = None;
            }
        }
    }

    async fn ask(
        self: &Arc<Self>,
        request: &AcquireRequest,
        ttl: Duration,
        keys: &Keys,
        session: &Session,
        may_have_place: bool,
    ) -> Result<Asked> {
        let (holder, terms) = (request.holder().to_string(), Terms::of(request, ttl));
        let place = millis(look::place_lasts(ttl, self.grace));
        let arguments = [
            &*holder,
            &*terms.ttl,
            &*terms.label,
            &*terms.floor,
            self.inbox.channel(),
            &*place,
            &*self.grace_ms,
            if may_have_place { "1" } else { "" },
        ];
        let (script, arguments) = match request.wait() {
            Wait::No => (&script::ACQUIRE, &arguments[..4]),
            _ if may_have_place => (&script::CONFIRM, &arguments[..]),
            _ => (&script::ACQUIRE, &arguments[..]),
        };

        let keys_of_lock = keys.all();
        let unanswered = self.doubts.sending(request.holder(), session.generation());
        let sent = request.sending();
        let answer = tokio::select! {
            biased;
            answer = self.connection.run(session, script, &keys_of_lock, arguments) => answer,
            () = request.given_up() => return Ok(Asked::GivenUp),
        };
        if answer.as_ref().err().is_none_or(Failed::is_answer) {
            unanswered.answered();
        }
        let answer = answer.map_err(|failed| self.connection.explain(failed))?;
        match reply::acquired(&answer).ok_or_else(unexpected)? {
            Acquired::Granted(token) => {
                let armed = request.lease().arm(sent, ttl)?;
                let hold = RedisHold::new(self, keys, request, token, session);
                Ok(Asked::Granted(Attempt::Granted(Arc::new(hold), armed)))
            }
            Acquired::Taken(taken) => Ok(Asked::Taken(taken)),
            Acquired::Dead => Err(dead()),
        }
    }
}

enum Asked {
    Granted(Attempt),
    Taken(Taken),
    GivenUp,
}

/// Reports what is known of the server while a request waits over this session, until that is over.
async fn follow(session: &Session, request: &AcquireRequest, busy: &Busy) {
    let mut health = session.health();
    loop {
        let now = health.borrow_and_update().clone();
        match now {
            Health::Well => request.note_busy(busy.clone()),
            Health::Silent(why) => request.note_unreachable(why),
            Health::Over(why) => return request.note_unreachable(why),
        }
        // Cannot fail: the session has the sender.
        let _ = health.changed().await;
    }
}

/// Nobody waits any more: the server's last word was that the name is taken, unless there is trouble since.
fn given_up(session: &Session, last_busy: Option<Busy>) -> Result<Attempt> {
    let what = "given up before Redis had answered";
    match (session.trouble(), last_busy) {
        (Some(why), _) => Err(Error::new(ErrorKind::Unavailable, what).with_source(why)),
        (None, Some(busy)) => Ok(Attempt::Busy(busy)),
        (None, None) => Err(Error::new(ErrorKind::Unavailable, what)),
    }
}

/// The terms of a request at one moment, as the scripts take them.
pub(crate) struct Terms {
    pub(crate) ttl: String,
    pub(crate) label: String,
    pub(crate) floor: String,
}

impl Terms {
    pub(crate) fn of(request: &AcquireRequest, ttl: Duration) -> Self {
        Self {
            ttl: millis(ttl),
            label: request.label().map_or_else(String::new, |label| format!(" {label}")),
            floor: request.token_floor().map_or(0, u64::from).to_string(),
        }
    }
}

/// A place in the queue, and an ear for what the server says of it. What is not confirmed is remembered.
struct Place<'a> {
    server: &'a Server,
    request: &'a AcquireRequest,
    waiting: Waiting<'a>,
    confirmed: bool,
}

impl<'a> Place<'a> {
    fn new(server: &'a Server, request: &'a AcquireRequest) -> Self {
        Self {
            server,
            request,
            waiting: server.inbox.listen(request.holder()),
            confirmed: false,
        }
    }

    fn confirmed(mut self) {
        self.confirmed = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.confirmed {
            self.server.doubts.note_place(self.request.holder());
        }
    }
}

pub(crate) fn dead() -> Error {
    Error::new(ErrorKind::Unexpected, "this holder id was abandoned or released before")
}
