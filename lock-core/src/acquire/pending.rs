//! The process's request at the server, which the waiters of a name share: one after the other polls it.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use super::at_server::AtServer;
use super::caller::{Caller, Wakeup};
use crate::backend::options::LockOptions;
use crate::backend::request::{RequestControl, RequestOptions, Terms};
use crate::backend::{AcquireRequest, Armed, Attempt, Busy, Hold};
use crate::backend_state::BackendState;
use crate::background::call::BackendCall;
use crate::background::keeper::Keeper;
use crate::background::undo::UndoJob;
use crate::error::{Error, Result};
use crate::hold::upgrade::Upgrade;
use crate::hold::{ActiveHold, Grant};
use crate::mutant::{Mutant, is_active};
use crate::observe::{self, BackendRequest};
use crate::options::CheckedLock;
use crate::options::wait::WaitLimit;
use crate::queue::Turn;
use crate::queue::last_word::{LastWord, Since};
use crate::sync::time::Instant;
use crate::sync::{Arc, oneshot};

/// An acquire at the server. Dropped before it came to something, it is the next local waiter's, as it is: under way,
/// with its holder id and its entry in the server's queue. Without one it is undone in the background.
pub(crate) struct PendingAcquire {
    backend: Arc<BackendState>,
    keeper: Arc<Keeper>,
    request: AcquireRequest,
    /// `None` only in one that was passed on.
    control: Option<RequestControl>,
    under_way: Option<BackendCall<Attempt>>,
    /// `None` once there is nothing to undo.
    turn: Option<Turn<Caller>>,
    state: AtServer,
    /// Whether its acquire, or the one whose request it goes on with, was counted as one that found the name taken at the server.
    was_contended: bool,
    /// The next waiter may continue it: the request waits, and its outcome is open.
    can_pass: bool,
    /// The upgrade for which it asks, which has no turn.
    upgrade: Option<Upgrade<Caller>>,
}

/// A grant of the server, and the turn that asked for it.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) turn: Turn<Caller>,
    /// The server certainly granted it on the current terms.
    pub(crate) as_asked: bool,
}

impl PendingAcquire {
    pub(crate) fn start(
        (backend, keeper): (&Arc<BackendState>, &Arc<Keeper>),
        lock: &CheckedLock,
        (wait, deadline): (WaitLimit, Option<Instant>),
        turn: Turn<Caller>,
    ) -> Self {
        let (request, control) = lock.request(wait, deadline);
        if wait.is_patient() {
            // From the start, since a later waiter may wait for longer, connecting included.
            turn.shares(&request);
        }
        Self::of((backend, keeper), (request, control), Some(turn), None)
    }

    /// The upgrade of a hold that was granted to `base`.
    pub(super) fn upgrade(
        (backend, keeper): (&Arc<BackendState>, &Arc<Keeper>),
        hold: &Arc<ActiveHold<Caller>>,
        base: &AcquireRequest,
        (wait, deadline): (WaitLimit, Option<Instant>),
    ) -> Self {
        let options = &hold.lock.options;
        // The lease continues. If the former hold was extended, the server must not end the new one earlier.
        let rest = hold.lease.valid_for();
        let options = LockOptions {
            ttl: options.ttl.max(rest.saturating_add(rest / 9)),
            ..options.clone()
        };
        let request = RequestOptions::new(hold.lock.name.clone(), Terms::until(options, deadline))
            .replacing(base)
            .waits(wait.is_patient());
        Self::of((backend, keeper), request.start(), None, Some(Upgrade::begin(hold)))
    }

    fn of(
        (backend, keeper): (&Arc<BackendState>, &Arc<Keeper>),
        (request, control): (AcquireRequest, RequestControl),
        turn: Option<Turn<Caller>>,
        upgrade: Option<Upgrade<Caller>>,
    ) -> Self {
        Self {
            backend: backend.clone(),
            keeper: keeper.clone(),
            can_pass: turn.is_some() && request.waits(),
            request,
            control: Some(control),
            under_way: None,
            turn,
            upgrade,
            state: AtServer::Nothing,
            was_contended: false,
        }
    }

    /// Another one for the same waiter; this one is undone.
    ///
    /// # Errors
    /// If it is an upgrade, which ends with the hold.
    pub(super) fn anew(&mut self, lock: &CheckedLock, wait: (WaitLimit, Option<Instant>)) -> Result<()> {
        if let Some(upgrade) = &self.upgrade {
            return Err(upgrade.lost());
        }
        if let Some(turn) = self.turn.take() {
            let (backend, keeper) = (self.backend.clone(), self.keeper.clone());
            let was_contended = self.was_contended;
            *self = Self::start((&backend, &keeper), lock, wait, turn);
            self.was_contended = was_contended;
        }
        Ok(())
    }

    /// Asks the server, or goes on waiting for its answer.
    pub(crate) async fn attempt(&mut self) -> Result<Attempt> {
        // One that began on another runtime would not wake if nobody drives that, and would panic if it has gone.
        if !self.under_way.as_ref().is_some_and(BackendCall::is_here) {
            self.ask();
        }
        loop {
            let (request, was_taken) = (self.request.clone(), self.state.is_taken());
            tokio::select! {
                biased;
                answer = poll_fn(|context| self.poll_attempt(context)) => return answer,
                () = request.noted(!was_taken) => match was_taken {
                    false => self.note_taken(self.state.noted(true)),
                    true => self.note_unreachable(),
                }
            }
        }
    }

    fn ask(&mut self) {
        self.state = self.state.asked(!self.request.was_read_as_it_stands());
        let (backend, request) = (self.backend.lock.clone(), self.request.clone());
        // A future of its own, so that it can go on when its caller has gone.
        self.under_way = Some(BackendCall::new(async move {
            observe::requested(BackendRequest::Acquire);
            backend.acquire(&request).await
        }));
    }

    fn poll_attempt(&mut self, context: &mut Context<'_>) -> Poll<Result<Attempt>> {
        let Some(under_way) = &mut self.under_way else {
            return Poll::Pending;
        };
        let answer = under_way.poll(context);
        if answer.is_ready() {
            self.under_way = None;
        }
        answer
    }

    fn note_taken(&mut self, state: AtServer) {
        let was_taken = self.state.is_taken();
        self.state = state;
        self.backend.note_reached();
        if let Some(turn) = &self.turn {
            // Once for each acquire: after an outage the server says again that the name is taken.
            if !was_taken && !std::mem::replace(&mut self.was_contended, true) {
                observe::contended(self.request.name(), self.holder().as_deref());
            }
            let queued = Some(&self.request).filter(|request| request.waits());
            turn.refused(self.holder(), queued);
        }
    }

    /// The server cannot be reached, so "taken" is no longer the last known state.
    fn note_unreachable(&mut self) {
        self.state = self.state.noted(false);
        if let (Some(turn), Some(why)) = (&self.turn, self.request.unreachable()) {
            turn.attempt_failed(&why);
        }
    }

    /// The label of the holder in the server's last answer.
    pub(crate) fn holder(&self) -> Option<Arc<str>> {
        self.request.last_busy().and_then(|busy| busy.holder)
    }

    /// The last that is known of the name, for a caller whose time is up.
    pub(crate) fn last_word(&self, last_error: Option<Error>, since: Since) -> LastWord {
        let is_taken = self.state.is_taken();
        // The error of an attempt is older than the answer to the next attempt.
        match self.request.unreachable().or(last_error.filter(|_| !is_taken)) {
            Some(error) => LastWord::Failed(error),
            None if is_taken => LastWord::Taken(self.holder()),
            None => match &self.turn {
                Some(turn) if turn.has_news(since, &self.request) => LastWord::Taken(None),
                _ => LastWord::Nothing,
            },
        }
    }

    /// True if the server was ever reached. A connection that was cut before the first answer counts.
    pub(crate) fn was_reached(&self) -> bool {
        if self.request.was_connected() {
            self.backend.note_reached();
        }
        self.backend.was_reached()
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.request.is_given_up()
    }

    /// The server refused.
    pub(crate) fn refused(&mut self, busy: Busy) {
        self.request.note_busy(busy);
        self.note_taken(AtServer::Refused);
    }

    /// The attempt failed: the server's earlier answers may be outdated.
    pub(crate) fn attempt_failed(&mut self, why: &Error) {
        self.request.forget_busy();
        self.state = match self.request.was_certainly_not_sent(why) {
            true => AtServer::Nothing,
            false => self.state.noted(false),
        };
        if let Some(turn) = &self.turn {
            turn.attempt_failed(why);
        }
    }

    /// The request was given up before the server answered: its earlier answers still count.
    pub(crate) fn unanswered(&mut self, why: &Error) {
        if !self.state.is_taken() && self.request.was_certainly_not_sent(why) {
            self.state = AtServer::Nothing;
        }
    }

    /// The server has nothing of this request any more, and its answers are over.
    pub(crate) fn nothing_left(&mut self) {
        self.request.forget_busy();
        self.state = AtServer::Nothing;
    }

    /// It came to nothing, for everybody else in the queue as well where `is_everybodys`.
    pub(crate) fn failed(&mut self, error: &Error, is_everybodys: bool) {
        self.can_pass = false;
        if let Some(turn) = self.turn.take_if(|_| is_everybodys) {
            turn.fail_all(error);
        }
    }

    /// Is closed as soon as all releases of this process are answered that the next attempt may overtake, if there are any.
    pub(crate) fn releases_answered(&self) -> Option<oneshot::Receiver<()>> {
        self.turn.as_ref()?.releases_answered()
    }

    /// Accepts the server's grant.
    ///
    /// # Errors
    /// If the backend armed another lease. Then the grant is undone.
    pub(crate) fn granted(mut self, hold: Arc<dyn Hold>, armed: &Armed) -> Result<Granted> {
        // Until here it is undone, also when this panics.
        let grant = Grant::new(&self.request, hold, armed).inspect_err(|_| self.can_pass = false)?;
        let turn = self.turn.take().expect("whoever drives an acquire has the turn");
        let other_terms = matches!(self.state, AtServer::Unanswered { other_terms: true, .. });
        self.state = AtServer::Nothing;
        Ok(Granted {
            grant,
            turn,
            as_asked: !other_terms && self.request.was_read_as_it_stands(),
        })
    }

    /// The server granted the upgrade.
    ///
    /// # Errors
    /// If the backend armed another lease, or if the hold has ended. Then the grant is undone.
    pub(super) fn upgraded(mut self, hold: Arc<dyn Hold>, armed: &Armed) -> Result<()> {
        // Until the upgrade is settled it is undone, also when this panics.
        let grant = Grant::new(&self.request, hold, armed)?;
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.granted(grant)?;
        }
        self.state = AtServer::Nothing;
        Ok(())
    }

    /// This acquire, elsewhere; what stays here is nothing.
    fn moved(&mut self) -> Box<Self> {
        Box::new(Self {
            backend: self.backend.clone(),
            keeper: self.keeper.clone(),
            request: self.request.clone(),
            control: self.control.take(),
            // One that panicked is gone, and asked anew.
            under_way: self.under_way.take().filter(BackendCall::is_alive),
            turn: self.turn.take(),
            upgrade: self.upgrade.take(),
            state: std::mem::replace(&mut self.state, AtServer::Nothing),
            // It goes to another acquire, which has waited in this process until now.
            was_contended: self.was_contended,
            can_pass: self.can_pass,
        })
    }

    /// Passes the request to another waiter. Returns `false` if there is none.
    fn pass_on(&mut self) -> bool {
        while let Some((next, deadline)) = self.next_patient() {
            if let Some(control) = &self.control {
                control.set_terms(next.lock.terms(deadline));
            }
            if let Some(turn) = &self.turn {
                // One that came meanwhile may wait for longer.
                turn.shares(&self.request);
            }
            match next.wakeup.send(Wakeup::Pending(self.moved())) {
                // The waiter has gone, so the request comes back.
                Err(Wakeup::Pending(mut pending)) => std::mem::swap(self, &mut *pending),
                _ => return true,
            }
        }
        false
    }

    /// The first that waits, if it may have the request.
    fn next_patient(&self) -> Option<(Caller, Option<Instant>)> {
        let turn = self.turn.as_ref()?;
        turn.next_patient(|next| next.lock.options.may_go_on_with(&self.request))
    }

    fn undo(&mut self) {
        if let Some(control) = self.control.take() {
            control.give_up();
        }
        let (mut turn, under_way) = (self.turn.take(), self.under_way.take());
        if let Some(turn) = &mut turn {
            turn.releasing();
        }
        let undo = UndoJob::new(&self.backend.lock, self.request.clone(), under_way, turn);
        self.keeper.push(match self.upgrade.take() {
            Some(upgrade) => upgrade.undone_by(undo),
            None => Box::new(undo),
        });
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if is_active(Mutant::LeavesLateGrant) {
            return;
        }
        // The turn, or the hold of an upgrade, may be the parent's although the server has nothing of it.
        let has_something = self.state != AtServer::Nothing || self.turn.is_some() || self.upgrade.is_some();
        if has_something && self.keeper.has_forked() {
            // It is the parent's, and so are its locks.
            return std::mem::forget((self.control.take(), self.under_way.take(), self.turn.take()));
        }
        if self.state != AtServer::Nothing && !(self.can_pass && self.pass_on()) {
            self.undo();
        }
    }
}

impl fmt::Debug for PendingAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingAcquire").field(&self.request).finish()
    }
}
