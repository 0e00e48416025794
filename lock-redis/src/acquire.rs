//! Acquiring: asks, and waits in the queue until it is this request's turn.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use lock_core::backend::{AcquireRequest, Attempt, Busy, Wait};
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::client::Server;
use crate::connection::inbox::Waiting;
use crate::connection::{Health, Session};
use crate::error::Failed;
use crate::hold::RedisHold;
use crate::names::Keys;
use crate::protocol::{self, Acquired, Holder, Taken, Terms, dead, millis, unexpected};

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
        let place = millis(place_lasts(ttl, self.grace));
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
        match protocol::acquired(&answer).ok_or_else(unexpected)? {
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
        let lasts = place_lasts(ttl, grace);
        let after = look_after(lasts, taken.rest, ahead, grace, rand::random());
        if taken.holder != Holder::Foreign {
            self.pauses = None;
            return after;
        }
        let pauses = self.pauses.get_or_insert_with(|| Box::new(ask_again()));
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

/// The longest that a place lasts without a refresh; the scripts know it too.
const LONGEST_PLACE: Duration = Duration::from_secs(15);

/// How long a waiter's place lasts if it does not refresh it: no longer than its hold would.
fn place_lasts(ttl: Duration, grace: Duration) -> Duration {
    ttl.clamp(3 * grace, LONGEST_PLACE)
}

/// When a waiter asks again: in time to keep its place, and when the name becomes free unless somebody passes it on.
/// Those behind the first look a grace later each, so that not all of them come at once.
///
/// `rest` is what is left of the hold (`None`: it has no end), `ahead` how many come before, `random` from 0 to 1.
fn look_after(place: Duration, rest: Option<Duration>, ahead: u32, grace: Duration, random: f64) -> Duration {
    // The server's clock counts whole milliseconds: a hold with 0 left ends within the next.
    const TICK: Duration = Duration::from_millis(1);
    let refresh = (place / 3).mul_f64(0.8 + random / 5.0);
    match rest {
        Some(rest) => refresh.min((rest + TICK).saturating_add(grace.saturating_mul(ahead))),
        None => refresh,
    }
}

/// When to ask again who has a name, as long as that is somebody who wakes nobody: from 5 ms up to 50 ms, and with
/// jitter up to as much again.
fn ask_again() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(5))
        .with_max_delay(Duration::from_millis(50))
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LONGEST_GRACE;

    const GRACE: Duration = ms(100);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_place_lasts_as_long_as_a_hold_within_bounds() {
        assert_eq!(place_lasts(ms(10), GRACE), ms(300));
        assert_eq!(place_lasts(ms(1500), GRACE), ms(1500));
        assert_eq!(place_lasts(ms(60_000), GRACE), ms(15_000));
        assert_eq!(place_lasts(ms(10), LONGEST_GRACE), LONGEST_PLACE);
    }

    #[test]
    fn a_place_is_refreshed_three_times_in_its_life() {
        for ahead in [0, 1, 1000] {
            assert_eq!(look_after(ms(900), None, ahead, GRACE, 1.0), ms(300));
            assert_eq!(look_after(ms(900), Some(ms(60_000)), ahead, GRACE, 0.0), ms(240));
        }
    }

    #[test]
    fn the_first_looks_when_the_hold_ends_and_the_others_after_it() {
        let look = |rest, ahead| look_after(ms(15_000), Some(ms(rest)), ahead, GRACE, 1.0);
        assert_eq!([look(0, 0), look(7, 0)], [ms(1), ms(8)]);
        assert_eq!([look(7, 1), look(7, 2)], [ms(108), ms(208)]);
        assert_eq!(look(7, u32::MAX), ms(5000));
    }

    #[test]
    fn a_foreign_holder_is_asked_for_less_and_less_often_but_always_again() {
        let pauses: Vec<_> = ask_again().take(1000).collect();
        assert_eq!(pauses.len(), 1000);
        assert!((ms(4)..=ms(11)).contains(&pauses[0]), "{pauses:?}");
        assert!(
            pauses[10..].iter().all(|pause| (ms(49)..=ms(101)).contains(pause)),
            "{pauses:?}"
        );
    }
}
