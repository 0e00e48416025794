//! Acquire requests: [`AcquireRequest`] as a backend sees it, and its constructors for core, tests and a backend over
//! backends.

use std::fmt;
use std::time::Duration;

pub use self::options::RequestOptions;
pub use self::terms::Terms;

use super::holder::HolderId;
use super::lease::Lease;
use super::options::LockOptions;
use super::sent_at::SentAt;
use super::{Busy, Mode};
use crate::error::Error;
use crate::name::LockName;
use crate::sync::time::{Instant, sleep_until};
use crate::sync::{Arc, AtomicBool, Mutex, Notify, Ordering};
use crate::token::FencingToken;

/// One acquisition: the name, the holder id, the terms and how long to wait. Clones are the same request. Made by
/// [`RequestOptions::start`].
///
/// [`ttl`](Self::ttl), [`label`](Self::label) and [`time_left`](Self::time_left) may change while it waits. Read them just
/// before each send, and not after it: core takes the values that were last read for those that were sent. A caller that takes over a
/// request on other terms has its hold renewed at once.
#[derive(Clone)]
pub struct AcquireRequest(Arc<Shared>);

/// The caller's end of an [`AcquireRequest`]: it changes the terms, and gives the request up. Dropping it gives it up. After
/// a grant it has no effect.
#[derive(Debug)]
pub struct RequestControl(AcquireRequest);

struct Shared {
    holder: HolderId,
    /// The options at the start. [`State::terms`] has those of the terms that have changed since.
    started_as: RequestOptions,
    lease: Lease,
    made: Instant,
    state: Mutex<State>,
    changed: Notify,
    connected: AtomicBool,
    /// Whether any request of this holder id may have reached the server.
    was_sent: AtomicBool,
}

struct State {
    terms: Terms,
    /// The longest ttl that it has ever had.
    longest_ttl: Duration,
    /// The number of changes of ttl, minimum or label, and the change at which each was last read.
    changes: u32,
    ttl_read: u32,
    label_read: u32,
    /// `None` until the backend reads the minimum: until then a read of the ttl counts for it.
    minimum_read: Option<u32>,
    busy: Option<Busy>,
    /// Why the server cannot be asked at the moment, as the backend reported it after the last answer.
    unreachable: Option<Error>,
    given_up: bool,
}

impl State {
    /// Whether the last answer was that the name is taken.
    fn is_taken(&self) -> bool {
        self.busy.is_some() && self.unreachable.is_none()
    }
}

impl AcquireRequest {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.started_as.name
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.options().mode
    }

    /// The id under which the server records the hold. It is the same at every attempt of this request.
    pub fn holder(&self) -> HolderId {
        self.0.holder
    }

    /// The holder id of the upgradable hold that this request replaces, if it is an upgrade.
    pub fn replaces(&self) -> Option<HolderId> {
        self.0.started_as.replaces.as_ref().map(|(holder, _)| *holder)
    }

    /// Returns `true` if the hold is never renewed.
    pub fn is_fixed(&self) -> bool {
        self.options().fixed_lease
    }

    /// Returns `true` if the acquire waits for a name that is taken, until it is [given up](Self::given_up). If not,
    /// the answer is [`Busy`], and no queue entry is left at the server.
    pub fn waits(&self) -> bool {
        self.0.started_as.waits
    }

    /// The grant's token must be larger than this one, if there is one.
    pub fn token_floor(&self) -> Option<FencingToken> {
        self.options().token_floor
    }

    /// The grant's token is to be this one, or the one after the last token of the name if that is larger. The server's clock
    /// has no part in it. Of backends that declare [`any_floor`](super::Capabilities::any_floor) alone; others ignore it.
    pub fn token_at_least(&self) -> Option<FencingToken> {
        self.0.started_as.token_at_least
    }

    /// Returns `true` if the request restores a hold that the server forgot while its own lease was live. Nobody else
    /// can have had the name there since. So a server that gives no grants for a while, because it may have lost data,
    /// grants this one.
    pub fn reinstates(&self) -> bool {
        self.0.started_as.reinstates
    }

    /// Returns the number of tokens that the grant may reserve: the grant's own token and those that follow it. A
    /// backend whose holds can be [passed on](super::Hold::pass) gives all later grants larger tokens than these; other
    /// backends ignore it.
    pub fn reserve(&self) -> u32 {
        self.0.started_as.reserve
    }

    /// Returns `true` if the [status](super::DistributedLock::status) must show the grant's token, as observers of an
    /// election need it. A backend whose status always shows tokens ignores this.
    pub fn shows_token(&self) -> bool {
        self.options().shows_token
    }

    /// As it was started, for the options that never change.
    fn options(&self) -> &LockOptions {
        &self.0.started_as.terms.options
    }

    /// The lease that a grant arms.
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// Marks the moment just before this request goes out, from which the lease that a grant arms is counted.
    ///
    /// Call it when the connection is there and nothing has to be waited for any more, and before every request that may leave
    /// anything of this holder id at the server. Core does not abandon a request for which it was never called, if its acquire failed as
    /// [not executed](crate::Error::not_executed).
    pub fn sending(&self) -> SentAt {
        self.0.was_sent.store(true, Ordering::SeqCst);
        SentAt::now()
    }

    /// Reports that there is a connection to a server that serves. If it is cut before the first answer, an acquire that
    /// may wait tries again; without this it fails, as one that never reached its server.
    pub fn note_connected(&self) {
        self.0.connected.store(true, Ordering::Relaxed);
    }

    /// The wanted TTL, as of now.
    pub fn ttl(&self) -> Duration {
        let mut state = self.0.state.lock();
        state.ttl_read = state.changes;
        state.terms.options.ttl
    }

    /// For how long the name must stay taken at least, as of now: also if the holder's process ends before that. Core sets it only if
    /// the backend declares [`Capabilities::minimum_hold`](super::Capabilities::minimum_hold). The ttl is at least as long, so that a
    /// backend whose holds last for their ttl need not read it.
    pub fn minimum(&self) -> Option<Duration> {
        let mut state = self.0.state.lock();
        state.minimum_read = Some(state.changes);
        state.terms.options.minimum_hold
    }

    /// The holder's label, as of now.
    pub fn label(&self) -> Option<Arc<str>> {
        let mut state = self.0.state.lock();
        state.label_read = state.changes;
        state.terms.options.label.clone()
    }

    /// Returns the time that the request may still take, or `None` without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let deadline = self.0.state.lock().terms.deadline;
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns `true` if the request was given up: the deadline has passed, or the caller has left.
    pub fn is_given_up(&self) -> bool {
        let state = self.0.state.lock();
        state.given_up || state.terms.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits until the request is given up. A backend that waits at its server then returns [`Busy`] soon, and core calls
    /// [`abandon`](super::DistributedLock::abandon).
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn given_up(&self) {
        loop {
            // Hears of each change from here on.
            let changed = self.0.changed.notified();
            if self.is_given_up() {
                return;
            }
            let deadline = self.0.state.lock().terms.deadline;
            match deadline {
                None => changed.await,
                Some(deadline) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(deadline) => {}
                },
            }
        }
    }

    /// Reports that the server found the name taken, while the acquire keeps waiting. An acquire that does not wait
    /// returns [`Attempt::Busy`](super::Attempt::Busy) instead.
    pub fn note_busy(&self, busy: Busy) {
        let mut state = self.0.state.lock();
        state.busy = Some(busy);
        state.unreachable = None;
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Reports that the server cannot be reached at the moment, while the acquire keeps waiting: the connection over
    /// which it waits has ended or is silent, or no new one can be made. If the caller's time is up before the next
    /// [`note_busy`](Self::note_busy), it gets [`Unavailable`](crate::ErrorKind::Unavailable) with the cause `why`.
    /// Without this report it would get [`TimedOut`](crate::ErrorKind::TimedOut).
    pub fn note_unreachable(&self, why: Error) {
        self.0.state.lock().unreachable = Some(why);
        self.0.changed.notify_waiters();
    }

    /// The server's last answer that the name is taken, if it gave one.
    pub fn last_busy(&self) -> Option<Busy> {
        self.0.state.lock().busy.clone()
    }

    /// The moment when the request was made.
    pub(crate) fn made(&self) -> Instant {
        self.0.made
    }

    /// Whether there ever was a connection over which to send the request.
    pub(crate) fn was_connected(&self) -> bool {
        self.0.connected.load(Ordering::Relaxed)
    }

    /// Completes at the next change of this request: of its terms, of the reported state of the server, or because it
    /// was given up. For a backend over backends, which waits at one of them.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.changed.notified()
    }

    /// Returns the reason why the server cannot be reached, if the backend [reported](Self::note_unreachable) one after
    /// the server's last answer.
    pub fn unreachable(&self) -> Option<Error> {
        self.0.state.lock().unreachable.clone()
    }

    /// Returns `true` if its acquire, which failed with `why`, certainly left nothing at the server: the error [says
    /// so](crate::Error::not_executed), and nothing was ever [sent](Self::sending).
    pub fn was_certainly_not_sent(&self, why: &Error) -> bool {
        why.is_not_executed() && !self.0.was_sent.load(Ordering::SeqCst)
    }

    /// Its options as of now, with the longest TTL that it has had.
    pub(crate) fn longest_options(&self) -> LockOptions {
        let state = self.0.state.lock();
        LockOptions {
            ttl: state.longest_ttl,
            label: state.terms.options.label.clone(),
            minimum_hold: state.terms.options.minimum_hold,
            ..self.options().clone()
        }
    }

    /// For how long whatever it left at the server may live.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.0.state.lock().longest_ttl
    }

    /// Whether the values of ttl, minimum and label that were last read are still current.
    pub(crate) fn was_read_as_it_stands(&self) -> bool {
        let state = self.0.state.lock();
        let read = [
            state.ttl_read,
            state.label_read,
            state.minimum_read.unwrap_or(state.ttl_read),
        ];
        read.iter().all(|read| *read == state.changes)
    }

    /// Puts its deadline off until then; `None` for ever.
    pub(crate) fn wait_until(&self, deadline: Option<Instant>) {
        let mut state = self.0.state.lock();
        let later = match (state.terms.deadline, deadline) {
            (Some(now), Some(deadline)) => Some(now.max(deadline)),
            _ => None,
        };
        if state.terms.deadline != later {
            state.terms.deadline = later;
            drop(state);
            self.0.changed.notify_waiters();
        }
    }

    /// Forgets the last answer, which may be outdated.
    pub(crate) fn forget_busy(&self) {
        self.0.state.lock().busy = None;
    }

    /// Waits until the last word is that the name is taken, or, with `false`, until it is not that.
    pub(crate) async fn noted(&self, taken: bool) {
        loop {
            let changed = self.0.changed.notified();
            if self.0.state.lock().is_taken() == taken {
                return;
            }
            changed.await;
        }
    }
}

impl RequestControl {
    /// Changes TTL, minimum hold, label and deadline of the request to those of `terms`. Its other options stay.
    pub fn set_terms(&self, terms: Terms) {
        let mut state = self.0.0.state.lock();
        if terms.options.changes(&state.terms.options) {
            state.changes += 1;
        }
        state.longest_ttl = state.longest_ttl.max(terms.options.ttl);
        state.terms = terms;
        drop(state);
        self.0.0.changed.notify_waiters();
    }

    /// Gives the request up.
    pub fn give_up(&self) {
        self.0.0.state.lock().given_up = true;
        self.0.0.changed.notify_waiters();
    }
}

impl Drop for RequestControl {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("name", &self.0.started_as.name)
            .field("holder", &self.0.holder)
            .field("mode", &self.mode())
            .field("waits", &self.0.started_as.waits)
            .field("fixed", &self.is_fixed())
            .finish_non_exhaustive()
    }
}

mod options;
mod terms;
#[cfg(test)]
mod tests;
