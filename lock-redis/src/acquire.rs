//! One acquire, from the first request to the grant: it asks, and waits in the queue until its turn.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{AcquireRequest, Attempt, Busy};
use lock_core::{Error, ErrorKind, Result};
use lock_kit::backoff::pauses;
use lock_kit::claims::InFlight;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Client;
use crate::connection::inbox::Waiter;
use crate::connection::{Health, Room, Session};
use crate::error::Failure;
use crate::hold::RedisHold;
use crate::names::Keys;
use crate::protocol::{self, Acquired, Ask, Entry, Holder, Taken, base_ended, retired_holder, unexpected_reply};
use crate::servers::Route;

/// Asks until the name is granted or the request is given up. In between it waits: until the server wakes it, or until it
/// has to ask by itself.
pub(crate) async fn acquire(client: &Arc<Client>, request: &AcquireRequest) -> Result<Attempt> {
    let keys = Keys::new(&client.prefix, request.name());
    let mut may_have_entry = client.claims.contain(request.holder());
    let mut entry: Option<QueueEntry<'_>> = None;
    loop {
        let mut route = client.servers.route(&keys, request.given_up()).await?;
        request.note_connected();
        if request.is_given_up() {
            return given_up(&route, request, entry.as_ref()).map_err(Error::not_executed);
        }
        // One that reinstates had the name when the server forgot it, so nobody else has been granted it since.
        if let Some(why) = route.delay_error().filter(|_| !request.reinstates()) {
            if !request.waits() {
                return Err(why.not_executed());
            }
            request.note_unreachable(why);
            tokio::select! {
                () = route.fresh() => {}
                () = request.given_up() => {}
            }
            continue;
        }
        let room = match route.try_room() {
            Some(room) => Some(room),
            // The server has something of it anyway, and hardly anything more with another request.
            None if may_have_entry => None,
            // Boxed: seldom needed.
            None => match Box::pin(wait_for_room(client, &route, request)).await {
                Waited::Room(room) => Some(room),
                Waited::Ended => continue,
                Waited::GivenUp => return given_up(&route, request, None).map_err(Error::not_executed),
            },
        };
        if let Some(entry) = &entry {
            entry.waiter.clear();
        }
        let ttl = request.ttl();
        let answered_before = entry.as_ref().and_then(|entry| entry.busy.clone());
        let answered_before = answered_before.map(|busy| (route.health(), busy));
        let reporting = async move {
            if let Some((health, busy)) = answered_before {
                report(health, request, &busy, false).await;
            }
            pending::<Infallible>().await
        };
        let asking = ask(client, request, ttl, &keys, (&mut route, room), may_have_entry);
        let answer = tokio::select! {
            biased;
            answer = asking => answer?,
            never = reporting => match never {},
        };
        let taken = match answer {
            Outcome::Granted(attempt) => {
                if let Some(entry) = &mut entry {
                    entry.is_confirmed = true;
                }
                return Ok(attempt);
            }
            Outcome::Taken(taken) => taken,
            Outcome::GivenUp => return given_up(&route, request, entry.as_ref()),
        };
        let Some(ahead) = taken.ahead else {
            return Ok(Attempt::Busy(taken.busy()));
        };
        may_have_entry = true;
        let entry = entry.get_or_insert_with(|| QueueEntry::new(client, request, &keys));
        let pause = match client.servers.hears(&route, &keys) {
            true => entry.pause(&taken, ttl, ahead),
            false => UNHEARD,
        };
        if !entry.wait(&route, taken.busy(), pause).await {
            return given_up(&route, request, Some(entry));
        }
    }
}

enum Outcome {
    Granted(Attempt),
    Taken(Taken),
    GivenUp,
}

/// The result of waiting until a request may be sent.
enum Waited {
    Room(Room),
    /// The connection ended.
    Ended,
    GivenUp,
}

/// Waits until few enough acquires are unanswered.
async fn wait_for_room(client: &Client, route: &Route, request: &AcquireRequest) -> Waited {
    tokio::select! {
        biased;
        () = request.given_up() => Waited::GivenUp,
        room = route.room() => room.map_or(Waited::Ended, Waited::Room),
        never = client.servers.watch(route) => match never {},
    }
}

/// Asks once.
async fn ask(
    client: &Arc<Client>,
    request: &AcquireRequest,
    ttl: Duration,
    keys: &Keys,
    (route, room): (&mut Route, Option<Room>),
    may_have_entry: bool,
) -> Result<Outcome> {
    let inbox = client.servers.inbox(keys);
    let entry = Entry {
        inbox: &inbox,
        lifetime: entry_lifetime(ttl, client.grace),
        may_exist: may_have_entry,
    };
    let asking = Ask::new(request, keys, ttl, &client.grace_ms, entry)?;

    let mut sending = Sending {
        in_flight: Some(client.claims.sending(request.holder(), route.generation())),
        room: room.unwrap_or_else(Room::unlimited),
    };
    let sent = request.sending();
    let reply = {
        let Sending { in_flight, room } = &mut sending;
        let in_flight = in_flight.as_mut().expect("it is taken below");
        tokio::select! {
            biased;
            reply = client.servers.ask(route, keys, &asking, in_flight, room) => reply,
            () = request.given_up() => return Ok(Outcome::GivenUp),
        }
    };
    if reply.as_ref().err().is_none_or(Failure::is_reply)
        && let Some(in_flight) = sending.in_flight.take()
    {
        in_flight.answered();
    }
    sending.room.answered();
    drop(sending);
    let reply = reply.map_err(|failure| route.lock_error(failure))?;
    match protocol::acquired(&reply).ok_or_else(unexpected_reply)? {
        Acquired::Granted(token) => {
            tokio::select! {
                biased;
                acknowledged = client.servers.acknowledge(route, keys, ttl) => acknowledged?,
                () = request.given_up() => return Ok(Outcome::GivenUp),
            }
            let armed = request.lease().arm(sent, ttl)?;
            // The request may have other terms by now, which were not sent.
            let hold = RedisHold::new(client, keys, request, (&asking.arguments, ttl), token, route);
            Ok(Outcome::Granted(Attempt::Granted(Arc::new(hold), armed)))
        }
        Acquired::Taken(taken) => Ok(Outcome::Taken(taken)),
        Acquired::Retired => Err(retired_holder()),
        Acquired::BaseEnded => Err(base_ended()),
    }
}

/// An acquire on its way. If dropped before it was sent, it leaves nothing.
struct Sending<'a> {
    in_flight: Option<InFlight<'a, u64>>,
    room: Room,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.room.is_sent()
            && let Some(in_flight) = self.in_flight.take()
        {
            in_flight.answered();
        }
    }
}

/// An entry in the queue. Unless a grant has confirmed it, dropping it leaves a claim.
struct QueueEntry<'a> {
    client: &'a Client,
    request: &'a AcquireRequest,
    waiter: Waiter<'a>,
    /// The server's last answer, unless its connection has ended since.
    busy: Option<Busy>,
    /// The pauses between requests while the holder is a foreign client, which wakes nobody.
    pauses: Option<Box<dyn Iterator<Item = Duration> + Send>>,
    is_confirmed: bool,
}

impl<'a> QueueEntry<'a> {
    fn new(client: &'a Client, request: &'a AcquireRequest, keys: &Keys) -> Self {
        Self {
            client,
            request,
            waiter: client.servers.register(keys, request.holder()),
            busy: None,
            pauses: None,
            is_confirmed: false,
        }
    }

    /// The longest pause before the next request.
    fn pause(&mut self, taken: &Taken, ttl: Duration, ahead: u32) -> Duration {
        let grace = self.client.grace;
        let lifetime = entry_lifetime(ttl, grace);
        let refresh = refresh_after(lifetime, taken.expires_in, ahead, grace, rand::random());
        if taken.holder != Holder::Foreign {
            self.pauses = None;
            return refresh;
        }
        let pauses = self.pauses.get_or_insert_with(|| Box::new(polls()));
        pauses.next().map_or(refresh, |pause| pause.min(refresh))
    }

    /// Waits until it is time to ask again. Returns false if the request was given up.
    async fn wait(&mut self, route: &Route, busy: Busy, longest: Duration) -> bool {
        let ask_again = tokio::select! {
            // First, so that core always learns that the name is taken.
            biased;
            () = report(route.health(), self.request, &busy, true) => true,
            () = self.waiter.wait(Instant::now() + longest) => true,
            () = self.request.given_up() => false,
            never = self.client.servers.watch(route) => match never {},
        };
        self.busy = (!route.has_ended()).then_some(busy);
        ask_again
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.client.claims.note(self.request.holder());
        }
    }
}

/// Reports to core whether the server can be asked, while a request that was answered before waits over this session or asks again.
/// `is_news` is whether core has yet to learn that the name is taken. Returns when the session ends.
async fn report(mut health: watch::Receiver<Health>, request: &AcquireRequest, busy: &Busy, mut is_news: bool) {
    loop {
        let now = health.borrow_and_update().clone();
        match now {
            Health::Healthy if is_news => request.note_busy(busy.clone()),
            Health::Healthy => {}
            Health::Silent(why) => request.note_unreachable(why),
            Health::Ended(why) => return request.note_unreachable(why),
        }
        is_news = true;
        // Cannot fail: the session has the sender.
        let _ = health.changed().await;
    }
}

/// The result of a request that was given up: busy if that was the server's last answer and the connection works since.
fn given_up(session: &Session, request: &AcquireRequest, entry: Option<&QueueEntry<'_>>) -> Result<Attempt> {
    let error = || Error::new(ErrorKind::Unavailable, "given up before Redis had answered");
    match (session.failure(), entry.and_then(|entry| entry.busy.clone())) {
        (Some(why), _) => {
            // Not reported yet if it failed while the request was on its way.
            request.note_unreachable(why.clone());
            Err(error().with_source(why))
        }
        (None, Some(busy)) => Ok(Attempt::Busy(busy)),
        (None, None) => Err(error()),
    }
}

/// The pause of a waiter whose channel ended before the waiter was registered, so that its end woke nobody.
const UNHEARD: Duration = Duration::from_millis(20);

/// The longest that a queue entry lasts without a refresh. The scripts have the same constant.
const LONGEST_ENTRY: Duration = Duration::from_secs(15);

/// The time for which a queue entry lasts without a refresh: at most as long as the waiter's hold would.
fn entry_lifetime(ttl: Duration, grace: Duration) -> Duration {
    ttl.clamp(3 * grace, LONGEST_ENTRY)
}

/// The pause before a waiter that nobody wakes asks again: in time to keep its entry, and when the hold expires. Each
/// waiter behind the first one asks a grace later than the one before it, so that they do not ask all at once.
///
/// `expires_in` is the rest of the hold (`None`: it has no end), `ahead` the number of entries before this one, and
/// `random` a number from 0 to 1.
fn refresh_after(
    lifetime: Duration,
    expires_in: Option<Duration>,
    ahead: u32,
    grace: Duration,
    random: f64,
) -> Duration {
    // The server's clock counts whole milliseconds: a hold with 0 left ends within the next.
    const TICK: Duration = Duration::from_millis(1);
    let refresh = (lifetime / 3).mul_f64(0.8 + random / 5.0);
    match expires_in {
        Some(rest) => refresh.min((rest + TICK).saturating_add(grace.saturating_mul(ahead))),
        None => refresh,
    }
}

/// The pauses between requests as long as the holder is a foreign client, which wakes nobody: from 5 ms up to 50 ms, and
/// with jitter up to as much again.
fn polls() -> impl Iterator<Item = Duration> + Send {
    pauses(Duration::from_millis(5), Duration::from_millis(50))
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
    fn a_entry_lifetime_as_long_as_a_hold_within_bounds() {
        assert_eq!(entry_lifetime(ms(10), GRACE), ms(300));
        assert_eq!(entry_lifetime(ms(1500), GRACE), ms(1500));
        assert_eq!(entry_lifetime(ms(60_000), GRACE), ms(15_000));
        assert_eq!(entry_lifetime(ms(10), LONGEST_GRACE), LONGEST_ENTRY);
    }

    #[test]
    fn an_entry_is_refreshed_three_times_in_its_life() {
        for ahead in [0, 1, 1000] {
            assert_eq!(refresh_after(ms(900), None, ahead, GRACE, 1.0), ms(300));
            assert_eq!(refresh_after(ms(900), Some(ms(60_000)), ahead, GRACE, 0.0), ms(240));
        }
    }

    #[test]
    fn the_first_asks_when_the_hold_ends_and_the_others_after_it() {
        let after = |rest, ahead| refresh_after(ms(15_000), Some(ms(rest)), ahead, GRACE, 1.0);
        assert_eq!([after(0, 0), after(7, 0)], [ms(1), ms(8)]);
        assert_eq!([after(7, 1), after(7, 2)], [ms(108), ms(208)]);
        assert_eq!(after(7, u32::MAX), ms(5000));
    }

    #[test]
    fn a_foreign_holder_is_asked_for_less_and_less_often_but_always_again() {
        let pauses: Vec<_> = polls().take(1000).collect();
        assert_eq!(pauses.len(), 1000);
        assert!((ms(4)..=ms(11)).contains(&pauses[0]), "{pauses:?}");
        assert!(
            pauses[10..].iter().all(|pause| (ms(49)..=ms(101)).contains(pause)),
            "{pauses:?}"
        );
    }
}
