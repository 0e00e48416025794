//! The turn: the right of one caller to ask the server for a name.

use std::fmt;

use super::Queues;
use super::last_word::Since;
use super::lines::{LineKind, Lines};
use super::releases::Answered;
use super::state::{LeaderState, Queue};
use super::waiter::Waiter;
use crate::backend::AcquireRequest;
use crate::error::Error;
use crate::name::LockName;
use crate::reentry::ReentryKey;
use crate::sync::time::Instant;
use crate::sync::{Arc, Weak, oneshot};

/// The right to ask the server for a name, and to hold it. Dropping the turn gives it to the next caller.
///
/// The holder of an exclusive or upgradable lock keeps it until the release. Readers and permits [detach](Self::detach)
/// their hold from it, and let the next one ask.
pub(crate) struct Turn<W: Waiter>(Option<Current<W>>);

struct Current<W: Waiter> {
    queues: Arc<Queues<W>>,
    name: LockName,
    kind: LineKind,
    number: u64,
    /// The round of the release that is under way while the turn is kept.
    release: Option<u64>,
}

/// A hold without a turn, as the lines of its name know it. Dropping it takes the hold out of them.
pub(crate) struct Detached<W: Waiter>(Option<Known<W>>);

struct Known<W: Waiter> {
    queues: Arc<Queues<W>>,
    name: LockName,
    hold: Weak<W::Hold>,
    key: Option<ReentryKey>,
}

/// A release under way that has no turn any more. Dropped when the release is over.
#[derive(Debug)]
pub(crate) struct UnansweredRelease<W: Waiter> {
    queues: Arc<Queues<W>>,
    name: LockName,
    round: u64,
}

impl<W: Waiter> Turn<W> {
    pub(super) fn new(queues: &Arc<Queues<W>>, name: &LockName, kind: LineKind, number: u64) -> Self {
        Self(Some(Current {
            queues: queues.clone(),
            name: name.clone(),
            kind,
            number,
            release: None,
        }))
    }

    /// The line to which the turn belongs.
    pub(crate) fn kind(&self) -> Option<LineKind> {
        self.0.as_ref().map(|current| current.kind)
    }

    /// The last attempt failed, and the server is asked anew.
    pub(crate) fn attempt_failed(&self, why: &Error) {
        self.change(|line, number, kind| {
            if line.is_led_by(number, kind) {
                line.leader = LeaderState::Asking;
            }
            if line.is_led_by(number, kind) || line.is_open() {
                line.failure = Some(why.clone());
            }
        });
    }

    /// The name is about to be free.
    pub(crate) fn releasing(&mut self) {
        let Some(current) = &mut self.0 else { return };
        let mut names = current.queues.0.lock();
        let Some(lines) = names.get_mut(&current.name) else {
            return;
        };
        current.release.get_or_insert_with(|| lines.releases.begin());
        let line = lines.line(current.kind);
        if line.is_led_by(current.number, current.kind) {
            line.releases();
        }
    }

    /// Counts the release as under way for as long as the result lives. The turn may go to the next caller before.
    pub(crate) fn release_goes_on(&mut self) -> Option<UnansweredRelease<W>> {
        let current = self.0.as_mut()?;
        let round = match current.release.take() {
            Some(round) => round,
            None => current.queues.0.lock().get_mut(&current.name)?.releases.begin(),
        };
        Some(UnansweredRelease {
            queues: current.queues.clone(),
            name: current.name.clone(),
            round,
        })
    }

    /// Returns a receiver that closes when all releases of this process that are under way now are answered, of any
    /// mode. `None` if none is under way. A request that is sent now may overtake them.
    pub(crate) fn releases_answered(&self) -> Option<oneshot::Receiver<()>> {
        let current = self.0.as_ref()?;
        let mut names = current.queues.0.lock();
        names.get_mut(&current.name)?.releases.all_answered()
    }

    /// Whether the server answered a request of this process since the caller came. The caller's own request is
    /// unanswered.
    pub(crate) fn has_news(&self, since: Since, request: &AcquireRequest) -> bool {
        self.change(|line, _, _| since.has_news(line.news, Some(request.made())))
            .unwrap_or_default()
    }

    /// Shares the request with all waiters of the line: it waits as long as the most patient of them. Later waiters
    /// prolong it.
    pub(crate) fn shares(&self, request: &AcquireRequest) {
        self.change(|line, _, kind| {
            request.wait_until(match kind {
                // There may be several, and their callers give them up.
                LineKind::Permits => None,
                _ => line.latest.deadline(),
            });
            if line.is_open() {
                line.request = Some(request.clone());
            }
        });
    }

    /// Notes a refusal of the server. If it concerns the whole line, callers that do not wait are refused too. `queued`
    /// is the request, if it waits at the server.
    ///
    /// The first request that waits at the server closes a line of permits. The refusal of a try says nothing about
    /// other numbers of permits.
    pub(crate) fn refused(&self, holder: Option<Arc<str>>, queued: Option<&AcquireRequest>) {
        let impatient = self.change(|line, number, kind| {
            if kind == LineKind::Permits {
                line.heard();
                if let Some(request) = queued.filter(|_| line.is_open()) {
                    line.close(number);
                    line.request = Some(request.clone());
                }
                if !line.is_led_by(number, kind) {
                    return Vec::new();
                }
            }
            line.learned(LeaderState::Refused(holder));
            line.line.drain_impatient(None)
        });
        impatient.unwrap_or_default().into_iter().for_each(W::refuse);
    }

    /// Notes that the name is held, and keeps the turn. Returns the callers that do not wait, which are refused, and
    /// the callers with the hold's re-entry key, readers included, which share the hold.
    pub(crate) fn holding(&mut self, hold: &Arc<W::Hold>, label: Option<Arc<str>>, key: Option<&ReentryKey>) -> Vec<W> {
        let Some(current) = &mut self.0 else { return Vec::new() };
        let mut names = current.queues.0.lock();
        let Some(lines) = names.get_mut(&current.name) else {
            return Vec::new();
        };
        // Passed on, if a release was under way.
        let answered = match current.release.take() {
            Some(round) => lines.releases.end(round),
            None => Answered::new(),
        };
        let line = lines.line(current.kind);
        line.learned(LeaderState::Holding(Arc::downgrade(hold), label));
        line.request = None;
        let mut chosen = line.line.drain_impatient(key);
        if let Some(key) = key {
            chosen.extend(lines.drain_readers(key));
        }
        drop(names);
        drop(answered);
        chosen
    }

    /// Notes that the hold with this turn waits for the upgrade with this number: no reader of this process passes it.
    pub(crate) fn upgrades(&self, upgrade: u64) {
        self.change(|line, _, _| line.upgrade = Some(upgrade));
    }

    /// Notes that this upgrade is undone. If it was granted, no reader of this process holds the name before the turn ends.
    pub(crate) fn upgrade_undone(&self, upgrade: u64) {
        self.change(|line, _, _| line.upgrade.take_if(|waiting| *waiting == upgrade));
    }

    /// Notes that the name is held, without a turn; the caller drops this turn next. Returns the callers that share the
    /// hold: all with its re-entry key, or else the first `at_most` readers that `joins` accepts.
    pub(crate) fn detach(
        &self,
        hold: &Arc<W::Hold>,
        key: Option<&ReentryKey>,
        (at_most, joins): (usize, impl Fn(&W) -> bool),
    ) -> Option<(Vec<W>, Detached<W>)> {
        let current = self.0.as_ref()?;
        let mut names = current.queues.0.lock();
        let lines = names.get_mut(&current.name)?;
        lines.line(current.kind).heard();
        lines.detach(current.kind, hold, key);
        let chosen = match (current.kind, key) {
            (LineKind::Permits, _) => Vec::new(),
            (_, Some(key)) => lines.drain_readers(key),
            (_, None) => lines.line(LineKind::Shared).line.drain_first(at_most, joins),
        };
        let detached = Detached(Some(Known {
            queues: current.queues.clone(),
            name: current.name.clone(),
            hold: Arc::downgrade(hold),
            key: key.cloned(),
        }));
        Some((chosen, detached))
    }

    /// Fails all callers in the queue: each would get the same error.
    pub(crate) fn fail_all(&self, error: &Error) {
        for waiter in self.change(|line, _, _| line.line.drain()).unwrap_or_default() {
            waiter.fail(error.clone());
        }
    }

    /// Whether anybody waits for the turn.
    pub(crate) fn is_awaited(&self) -> bool {
        self.change(|line, _, _| !line.line.is_empty()).unwrap_or_default()
    }

    /// Takes the first caller that is still there out of the queue. `None` while this process also waits in another
    /// mode.
    pub(crate) fn next(&self) -> Option<W> {
        let current = self.0.as_ref()?;
        let mut names = current.queues.0.lock();
        let lines = names.get_mut(&current.name)?;
        match lines.is_awaited_in_other_modes() {
            true => None,
            false => lines.line(current.kind).line.take_first(|_| true, |_| true),
        }
    }

    /// Takes the first caller that waits out of the queue, if it `may` continue the request. Returns it with the
    /// request's new deadline.
    pub(crate) fn next_patient(&self, may: impl FnOnce(&W) -> bool) -> Option<(W, Option<Instant>)> {
        self.change(|line, _, kind| {
            let next = line.line.take_first(W::is_patient, may)?;
            let deadline = match kind {
                LineKind::Permits => None,
                _ => line.latest.deadline(),
            };
            Some((next, deadline))
        })?
    }

    /// Puts a caller before all others.
    pub(crate) fn put_first(&self, waiter: W) {
        self.change(|line, _, _| line.line.push_front(waiter));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Queue<W>, u64, LineKind) -> T) -> Option<T> {
        let current = self.0.as_ref()?;
        let mut names = current.queues.0.lock();
        let line = names.get_mut(&current.name)?.line(current.kind);
        Some(change(line, current.number, current.kind))
    }
}

impl<W: Waiter> Drop for Turn<W> {
    fn drop(&mut self) {
        let Some(current) = self.0.take() else { return };
        let mut ended = Some((current.number, current.release));
        while let Some((waiter, number)) = current.queues.pass_on(&current.name, current.kind, ended.take()) {
            match waiter.take_turn(Self::new(&current.queues, &current.name, current.kind, number)) {
                // The caller has gone. Its turn must not pass itself on as well.
                Err(mut unused) => {
                    unused.0.take();
                    ended = Some((number, None));
                }
                // Several turns may have become free, not only this one.
                Ok(()) if current.kind == LineKind::Permits => {}
                Ok(()) => return,
            }
        }
    }
}

impl<W: Waiter> Detached<W> {
    /// Notes that the hold is being released: no caller may share it any more.
    pub(crate) fn releasing(mut self) -> Option<UnansweredRelease<W>> {
        let known = self.0.take()?;
        let mut names = known.queues.0.lock();
        let lines = names.get_mut(&known.name)?;
        let round = lines.releases.begin();
        known.strike_off(lines);
        drop(names);
        Some(UnansweredRelease {
            queues: known.queues,
            name: known.name,
            round,
        })
    }
}

impl<W: Waiter> Known<W> {
    fn strike_off(&self, lines: &mut Lines<W>) {
        lines.strike_off(&self.hold, self.key.as_ref());
    }
}

impl<W: Waiter> Drop for Detached<W> {
    fn drop(&mut self) {
        let Some(known) = self.0.take() else { return };
        known.queues.change(&known.name, |lines| known.strike_off(lines));
    }
}

impl<W: Waiter> Drop for UnansweredRelease<W> {
    fn drop(&mut self) {
        let answered = self.queues.change(&self.name, |lines| lines.releases.end(self.round));
        // Outside the lock.
        drop(answered);
    }
}

impl<W: Waiter> fmt::Debug for Turn<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turn = self.0.as_ref().map(|current| (&current.name, current.kind));
        f.debug_tuple("Turn").field(&turn).finish()
    }
}
