//! Acquiring: asks, and waits in the queue until it is this request's turn.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::connection::inbox::Waiting;
use crate::connection::{Health, Session};
use crate::error::Failed;
use crate::hold::{RedisHold, Server, millis, unexpected};
use crate::names::Keys;
use crate::protocol::reply::{self, Acquired, Holder, Taken};
use crate::{backoff, look, protocol};

impl Server {
    /// Asks until the name is ours or nobody waits for it any more, and sleeps in between: until the server tells it to
    /// look, or it has to by itself.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let keys = Keys::new(&self.prefix, request.name());
        let mut may_have_place = self.doubts.knows(request.holder());
        let mut place: Option<Place<'_>> = None;
        loop {
            let session = self.connection.session(request.given_up()).await?;
            request.note_connected();
            if request.is_given_up() {
                return last_word(&session, place.as_ref()).map_err(Error::not_executed);
            }
            if let Some(place) = &place {
                place.waiting.forget();
            }
            let ttl = request.ttl();
            let taken = match self.ask(request, ttl, &keys, &session, may_have_place).await? {
                Asked::Granted(attempt) => {
                    if let Some(place) = &mut place {
                        place.is_confirmed = true;
                    }
                    return Ok(attempt);
                }
                Asked::Taken(taken) => taken,
                Asked::GivenUp => return last_word(&session, place.as_ref()),
            };
            let Some(ahead) = taken.ahead else {
                return Ok(Attempt::Busy(taken.busy()));
            };
            may_have_place = true;
            let place = place.get_or_insert_with(|| Place::new(self, request));
            let after = place.look_after(&taken, ttl, ahead);
            if !place.wait(&session, taken.busy(), after).await {
                return last_word(&session, Some(place));
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
            Wait::No => (&protocol::ACQUIRE, &arguments[..4]),
            _ if may_have_place => (&protocol::CONFIRM, &arguments[..]),
            _ => (&protocol::ACQUIRE, &arguments[..]),
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
    /// The server's last answer, unless its connection has ended since.
    busy: Option<Busy>,
    /// How soon to ask again as long as the holder wakes nobody.
    pauses: Option<Box<dyn Iterator<Item = Duration> + Send>>,
    is_confirmed: bool,
}

impl<'a> Place<'a> {
    fn new(server: &'a Server, request: &'a AcquireRequest) -> Self {
        Self {
            server,
            request,
            waiting: server.inbox.listen(request.holder()),
            busy: None,
            pauses: None,
            is_confirmed: false,
        }
    }

    fn look_after(&mut self, taken: &Taken, ttl: Duration, ahead: u32) -> Duration {
        let grace = self.server.grace;
        let lasts = look::place_lasts(ttl, grace);
        let after = look::look_after(lasts, taken.rest, ahead, grace, rand::random());
        if taken.holder != Holder::Foreign {
            self.pauses = None;
            return after;
        }
        let pauses = self.pauses.get_or_insert_with(|| Box::new(backoff::ask_again()));
        pauses.next().map_or(after, |pause| pause.min(after))
    }

    /// Sleeps until it is time to ask again. False when nobody waits any more.
    async fn wait(&mut self, session: &Session, busy: Busy, longest: Duration) -> bool {
        let goes_on = tokio::select! {
            // First, so that core always learns of the refusal.
            biased;
            () = follow(session, self.request, &busy) => true,
            () = self.waiting.look_at(Instant::now() + longest) => true,
            () = self.request.given_up() => false,
            never = self.server.connection.attend() => match never {},
        };
        self.busy = (!session.is_over()).then_some(busy);
        goes_on
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.server.doubts.note_place(self.request.holder());
        }
    }
}

/// Reports to core whether the server can be asked while a request waits over this session. Returns when that is over.
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

pub(crate) fn dead() -> Error {
    Error::new(ErrorKind::Unexpected, "this holder id was abandoned or released before")
}

/// The answer to a request that nobody waits for any more: busy if that was the server's last word and there is no trouble
/// with the connection since.
fn last_word(session: &Session, place: Option<&Place<'_>>) -> Result<Attempt> {
    let error = || Error::new(ErrorKind::Unavailable, "given up before Redis had answered");
    match (session.trouble(), place.and_then(|place| place.busy.clone())) {
        (Some(why), _) => Err(error().with_source(why)),
        (None, Some(busy)) => Ok(Attempt::Busy(busy)),
        (None, None) => Err(error()),
    }
}
