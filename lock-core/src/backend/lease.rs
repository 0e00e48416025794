//! The lease: until when a hold counts as held, by this process's clock.

use std::fmt;
use std::time::Duration;

pub use self::state::{Ended, HoldState};

use self::driven::Driven;
use self::record::{Phase, Record};

use super::rules;
use super::sent_at::SentAt;
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::{Mutant, is_active};
use crate::name::LockName;
use crate::sync::time::{Instant, sleep, sleep_until};
use crate::sync::{Arc, Mutex, MutexGuard, Notify};
use crate::time::LeaseInstant;

/// Until when a hold counts as held, by this process's monotonic clock.
///
/// A lease exists before anything is sent. A backend arms it with every answer that grants or extends the hold:
///
/// ```
/// # use std::time::Duration;
/// # use lock_core::LockName;
/// # use lock_core::backend::{Lease, SentAt};
/// # fn send_and_await_the_answer() {}
/// # fn main() -> Result<(), lock_core::Error> {
/// # let lease = Lease::new(LockName::new("a")?);
/// let ttl = Duration::from_secs(10);
/// let sent = SentAt::now(); // before sending, never after
/// send_and_await_the_answer();
/// let armed = lease.arm(sent, ttl)?; // the proof that a grant or a renewal needs
/// # drop(armed); Ok(()) }
/// ```
///
/// The end of a lease only moves forward; that of a fixed lease is set once. A lease that has ended is lost for good: every
/// read compares its end with the clock. Clones are the same lease.
///
/// The time during which the machine was suspended counts on Linux and Android; elsewhere it is not known. Every read
/// includes it at once. A task that waits for the end of a hold learns of it about a second after the machine resumed; a
/// task that waits for the end of a lease that core does not keep, as late as the runtime's timer, which stood still.
#[derive(Clone)]
pub struct Lease(Arc<Shared>);

struct Shared {
    name: LockName,
    fixed: bool,
    record: Mutex<Record>,
    changed: Notify,
}

/// The proof that a lease was armed, without which there is no grant and no renewal. Core refuses a grant with the proof
/// of another lease than the request's.
#[derive(Debug)]
pub struct Armed(Lease);

impl Lease {
    /// A lease that nothing has armed yet. Core makes the one that a request carries.
    pub fn new(name: LockName) -> Self {
        Self::with_end(name, false)
    }

    /// A lease whose end is set by its first arming and never moves.
    pub fn fixed(name: LockName) -> Self {
        Self::with_end(name, true)
    }

    fn with_end(name: LockName, fixed: bool) -> Self {
        let record = Mutex::new(Record {
            phase: Phase::Unarmed,
            term_end: None,
            session_end: None,
            session_term: None,
            maximum_end: None,
            armed_from: None,
            heard_of: None,
            suspected: None,
            failure: None,
            driven: Driven::default(),
            lost: None,
            lost_in_release: None,
            was_lost_in_time: false,
            watcher: None,
        });
        Self(Arc::new(Shared {
            name,
            fixed,
            record,
            changed: Notify::new(),
        }))
    }

    /// Sets the end of the lease to `ttl`, less a tenth, after `sent`. An end that is later already stays. Clears a
    /// suspicion that is older than `sent`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], retryable, when a first answer comes so late that nothing is left of its lease:
    /// the lease stays unarmed, and the same request may be sent again. [`ErrorKind::Lost`] when the lease is over.
    pub fn arm(&self, sent: SentAt, ttl: Duration) -> Result<Armed> {
        let now = LeaseInstant::now();
        let mut record = self.lock(now);
        let end = rules::lease_ends(record.term_end, sent.at, ttl, self.0.fixed);
        match record.phase {
            Phase::Unarmed
                if rules::has_expired(record.session_end.map_or(end, |session_end| session_end.min(end)), now) =>
            {
                let message = format!("the server's answer took longer than the lease of {ttl:?}");
                return Err(Error::new(ErrorKind::Unavailable, message).with_name(&self.0.name));
            }
            Phase::Unarmed => {
                record.phase = Phase::Live;
                record.term_end = Some(end);
            }
            Phase::Live => record.term_end = Some(end),
            Phase::Releasing if is_active(Mutant::AnswerRevives) => record.phase = Phase::Live,
            Phase::Releasing | Phase::Released => {
                return Err(Error::new(ErrorKind::Lost, "the hold was released meanwhile").with_name(&self.0.name));
            }
            Phase::Lost(cause) => return Err(self.lost(&record, cause).into()),
        }
        record.driven.look(now);
        record.trust(sent);
        record.armed_from = record.armed_from.max(Some(sent.at));
        drop(record);
        self.0.changed.notify_waiters();
        Ok(Armed(self.clone()))
    }

    /// Records that the session to which the hold is bound lives until `ttl`, less a tenth, after `sent`, unless it is
    /// known to live longer already. The lease ends with the session at the latest. For a fixed lease, whose own end no
    /// arming moves. Clears a suspicion that is older than `sent`. Call it before the lease is armed and whenever the
    /// session is known to live on.
    pub fn bind_to_session(&self, sent: SentAt, ttl: Duration) {
        let mut record = self.lock(LeaseInstant::now());
        if matches!(record.phase, Phase::Unarmed | Phase::Live) {
            record.session_end = Some(rules::lease_ends(record.session_end, sent.at, ttl, false));
            record.session_term = Some(ttl);
            record.trust(sent);
            drop(record);
            self.0.changed.notify_waiters();
        }
    }

    /// From here on core renews it, which has this ttl.
    pub(crate) fn renewed_by_core(&self, ttl: Duration) {
        self.0.record.lock().driven.ttl = Some(ttl);
    }

    /// Core sends a renewal.
    pub(crate) fn renewing(&self) {
        let now = LeaseInstant::now();
        self.0.record.lock().driven.look(now);
    }

    /// Returns the state of the hold now. A lease that was never armed counts as released.
    pub fn state(&self) -> HoldState {
        let record = self.lock(LeaseInstant::now());
        match record.phase {
            Phase::Live if record.suspected.is_some() => HoldState::Suspect,
            Phase::Live => HoldState::Held,
            Phase::Unarmed | Phase::Releasing | Phase::Released => HoldState::Released,
            Phase::Lost(cause) => HoldState::Lost(self.lost(&record, cause)),
        }
    }

    /// Returns the time for which the lease still lasts; zero if it has ended.
    pub fn valid_for(&self) -> Duration {
        let now = LeaseInstant::now();
        let record = self.lock(now);
        match (record.phase, record.end()) {
            (Phase::Live, Some(end)) => end.saturating_duration_since(now),
            _ => Duration::ZERO,
        }
    }

    /// Waits until the hold has ended, and says how. A lease that is never armed never ends.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn ended(&self) -> Ended {
        loop {
            // Hears of each change from here on.
            let changed = self.0.changed.notified();
            let end = {
                let record = self.lock(LeaseInstant::now());
                match record.phase {
                    Phase::Released => return Ended::Released,
                    Phase::Lost(cause) => return Ended::Lost(self.lost(&record, cause)),
                    Phase::Unarmed => None,
                    Phase::Live | Phase::Releasing => record.end(),
                }
            };
            match end {
                None => changed.await,
                Some(end) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(end.by_runtime()) => {}
                },
            }
        }
    }

    /// Waits until the lease lasts for no longer than this.
    pub(crate) async fn lasts_at_most(&self, left: Duration) {
        loop {
            // Hears of each change from here on, also of a suspension of the machine.
            let changed = self.0.changed.notified();
            let more = self.valid_for().saturating_sub(left);
            if more.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep(more) => {}
            }
        }
    }

    /// Ends the lease because the hold is about to be released. False if there is nothing left to release.
    ///
    /// A guard may be dropped anywhere: outside a runtime this reads the system's clock, even if Tokio's time is paused.
    pub(crate) fn begin_release(&self) -> bool {
        let mut record = self.lock(LeaseInstant::now_anywhere());
        if record.phase != Phase::Live {
            return false;
        }
        record.phase = Phase::Releasing;
        record.forget_maximum();
        let watcher = record.watcher.take();
        drop(record);
        drop(watcher);
        true
    }

    /// The release is over, as far as it ever will be.
    pub(crate) fn finish_release(&self) {
        let mut record = self.0.record.lock();
        if record.phase == Phase::Releasing {
            record.phase = Phase::Released;
            drop(record);
            self.0.changed.notify_waiters();
        }
    }

    /// The end of the lease.
    pub(crate) fn ends_at(&self) -> Option<LeaseInstant> {
        self.0.record.lock().end()
    }

    /// The time for which a hold lasts that asked for `ttl` and is not renewed: at most the term of its session.
    pub(crate) fn term(&self, ttl: Duration) -> Duration {
        let session = self.0.record.lock().session_term;
        session.map_or(ttl, |session| session.min(ttl))
    }

    /// The end of the lease by the runtime's clock, for timers.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.0.record.lock().end().map(LeaseInstant::by_runtime)
    }

    /// The sending time, by the runtime's clock, of the latest request whose answer armed the lease.
    pub(crate) fn armed_from(&self) -> Option<Instant> {
        self.0.record.lock().armed_from.map(LeaseInstant::by_runtime)
    }

    /// Whether the backend armed this lease, and not another one.
    pub(crate) fn is_proved_by(&self, armed: &Armed) -> bool {
        Arc::ptr_eq(&self.0, &armed.0.0)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.lock(LeaseInstant::now()).phase == Phase::Live
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.0.record.lock().suspected.is_some()
    }

    /// Has everybody who waits for the end look at the clock: the timers that they set may be late.
    pub(crate) fn look_again(&self) {
        self.0.changed.notify_waiters();
    }

    /// The record as it stands at `now`: a lease whose end has passed is over, whether anybody saw it or not.
    fn lock(&self, now: LeaseInstant) -> MutexGuard<'_, Record> {
        let mut record = self.0.record.lock();
        if record.end().is_some_and(|end| rules::has_expired(end, now)) {
            match record.phase {
                Phase::Live => {
                    let cause = record.cause_of_end();
                    self.set_lost(&mut record, cause, now);
                }
                // The release is unanswered, but the lease is over.
                Phase::Releasing => {
                    record.phase = Phase::Released;
                    self.0.changed.notify_waiters();
                }
                Phase::Unarmed | Phase::Released | Phase::Lost(_) => {}
            }
        }
        record
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.0.record.lock();
        f.debug_struct("Lease")
            .field("name", &self.0.name)
            .field("fixed", &self.0.fixed)
            .field("phase", &record.phase)
            .field("suspect", &record.suspected.is_some())
            .finish_non_exhaustive()
    }
}

mod driven;
mod inherit;
mod loss;
mod maximum;
mod record;
mod rest_on;
mod state;
mod suspicion;
#[cfg(test)]
mod tests;
