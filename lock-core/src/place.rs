//! The process's place at the server: a request that the waiters of a name share, one after the other driving it.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::backend::{AcquireRequest, Attempt, Busy, DistributedLock, Hold, RequestControl};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::held::Held;
use crate::limits::Limits;
use crate::locker::Inner;
use crate::observe::{self, Asked};
use crate::plan::{Patience, Plan};
use crate::plant::{Plant, is_planted};
use crate::queue::{Answer, LastWord, Turn, Waiting};
use crate::sync::oneshot;
use crate::sync::time::Instant;
use crate::sync::{Arc, Ordering};
use crate::work::{Request, Undo, Work};

/// An acquire at the server. Dropped before it came to something, it is the next local waiter's, as it is: under way,
/// with its holder id and its place in the server's queue. Without one it is undone in the background.
pub(crate) struct Place {
    locker: Arc<Inner>,
    pub(crate) request: AcquireRequest,
    /// `None` only in a place that was passed on.
    control: Option<RequestControl>,
    under_way: Option<Request<Attempt>>,
    /// `None` once there is nothing to undo.
    turn: Option<Turn>,
    /// Whether anything was sent.
    begun: bool,
    told_busy: bool,
    /// Whether a request went out that was not answered with a refusal.
    in_doubt: bool,
    /// Whether such a one may have been granted on other terms than those of now.
    terms_in_doubt: bool,
    /// Whether the next waiter may have it: it waits, and nothing final was said of it.
    can_pass: bool,
}

impl Place {
    pub(crate) fn start(
        locker: &Arc<Inner>,
        plan: &Plan,
        patience: Patience,
        deadline: Option<Instant>,
        turn: Turn,
    ) -> Self {
        let (request, control) = plan.request(patience, deadline);
        if patience.is_patient() {
            // From the start: who comes later may wait for longer, connecting included.
            turn.shares(&request);
        }
        Self {
            locker: locker.clone(),
            request,
            control: Some(control),
            under_way: None,
            turn: Some(turn),
            begun: false,
            told_busy: false,
            in_doubt: false,
            terms_in_doubt: false,
            can_pass: patience.is_patient(),
        }
    }

    /// Another one for the same waiter; this one is undone.
    pub(crate) fn anew(&mut self, plan: &Plan, patience: Patience, deadline: Option<Instant>) {
        if let Some(turn) = self.turn.take() {
            let locker = self.locker.clone();
            *self = Self::start(&locker, plan, patience, deadline, turn);
        }
    }

    /// Asks the server, or goes on waiting for its answer.
    pub(crate) async fn attempt(&mut self) -> Result<Attempt> {
        // One that began on another runtime would not wake if nobody drives that, and would panic if it has gone.
        if !self.under_way.as_ref().is_some_and(Request::is_here) {
            self.ask();
        }
        if !self.told_busy {
            let request = self.request.clone();
            tokio::select! {
                biased;
                answer = poll_fn(|context| self.poll_attempt(context)) => return answer,
                () = request.noted_busy() => self.tell_busy(),
            }
        }
        poll_fn(|context| self.poll_attempt(context)).await
    }

    fn ask(&mut self) {
        self.begun = true;
        self.terms_in_doubt |= self.in_doubt && !self.request.was_read_as_it_stands();
        self.in_doubt = true;
        self.under_way = Some(ask(self.locker.server.backend.clone(), self.request.clone()));
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

    fn tell_busy(&mut self) {
        if !std::mem::replace(&mut self.told_busy, true) {
            observe::contended(self.request.name(), self.holder().as_deref());
        }
        self.locker.reached.store(true, Ordering::Relaxed);
        if let Some(turn) = &self.turn {
            turn.refused(self.holder());
        }
    }

    /// Who has the name, as the server said last.
    pub(crate) fn holder(&self) -> Option<Arc<str>> {
        self.request.last_busy().and_then(|busy| busy.holder)
    }

    /// What is known of the name, to a caller that came when `news` had been learned of it.
    pub(crate) fn last_word(&self, last_error: Option<Error>, news: u64) -> LastWord {
        match self.request.unreachable().or(last_error) {
            Some(error) => LastWord::Failed(error),
            None if self.told_busy => LastWord::Taken(self.holder()),
            // It went from one to the next in this process meanwhile: the server answers.
            None if self.turn.as_ref().is_some_and(|turn| turn.has_news_since(news)) => LastWord::Taken(None),
            None => LastWord::Nothing,
        }
    }

    /// What the server said before may not be true any more.
    pub(crate) fn attempt_failed(&mut self, why: &Error) {
        self.request.forget_busy();
        self.told_busy = false;
        if let Some(turn) = &self.turn {
            turn.attempt_failed(why);
        }
    }

    /// Whether a release of this process is under way, which the next attempt may overtake.
    pub(crate) fn may_overtake_release(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::may_overtake_release)
    }

    /// Returns as soon as no release of this process is under way.
    pub(crate) fn releases_answered(&self) -> impl Future<Output = ()> + use<> {
        let answered = self.turn.as_ref().map(Turn::releases_answered);
        async {
            if let Some(answered) = answered {
                // Only ever closed.
                let _ = answered.await;
            }
        }
    }

    pub(crate) fn refused(&mut self, busy: Busy) {
        self.in_doubt = false;
        self.terms_in_doubt = false;
        self.request.note_busy(busy);
        self.tell_busy();
    }

    /// Nothing stays behind at the server.
    pub(crate) fn nothing_left(&mut self) {
        self.begun = false;
    }

    /// It came to nothing, for everybody else in the queue as well where `is_everybodys`.
    pub(crate) fn failed(&mut self, error: &Error, is_everybodys: bool) {
        self.can_pass = false;
        if let Some(turn) = self.turn.take_if(|_| is_everybodys) {
            turn.fail_all(error);
        }
    }

    /// What was granted, on the terms that the server last read.
    ///
    /// # Errors
    /// When the backend did not arm the lease.
    pub(crate) fn into_guard(
        mut self,
        plan: &Plan,
        (patience, deadline): (Patience, Option<Instant>),
        hold: Arc<dyn Hold>,
    ) -> Result<Granted> {
        // Until here it is undone, also when this panics.
        let token = hold.token();
        let lease = self.request.lease().clone();
        let Some(turn) = self.turn.take_if(|_| lease.end().is_some()) else {
            self.can_pass = false;
            let message = "the backend granted without arming the lease of the request";
            return Err(Error::new(ErrorKind::Unexpected, message).with_name(&plan.name));
        };
        self.begun = false;
        let terms_as_planned =
            !self.terms_in_doubt && self.request.was_read_as_it_stands() && self.request.is_fixed() == plan.fixed;
        let held = |plan, turn| {
            Held::new(
                (hold, token, lease),
                plan,
                &self.locker.server,
                Arc::downgrade(&self.locker.keeper),
                (turn, 0),
            )
        };
        // Where nothing can be handed over, a place in the server's queue is worth more than a label: the first renewal
        // comes at once, and the ttl with it.
        let keeps_it = !self.locker.server.capabilities.hand_over
            && self.request.is_fixed() == plan.fixed
            && plan.minimum.is_none();
        if terms_as_planned || keeps_it {
            let held = held(plan.clone(), turn);
            let guard = held.clone().begin(&self.locker.keeper);
            if !terms_as_planned {
                self.locker.keeper.schedule(&held, Instant::now());
            }
            return Ok(Granted::Guard(guard));
        }
        let (answer, receiver) = oneshot::channel();
        // Before the hold is one that may be lost, and the turn be gone.
        turn.put_first(Waiting {
            plan: plan.clone(),
            patience,
            deadline,
            answer,
        });
        // Nobody has had it: no minimum has begun, and it is no hand-over to somebody else.
        let unused = Plan {
            minimum: None,
            limits: Limits {
                hand_overs: u32::MAX,
                ..plan.limits
            },
            ..plan.clone()
        };
        Ok(Granted::OnOtherTerms(held(unused, turn), receiver))
    }

    /// This place, elsewhere; what stays here is nothing.
    fn moved(&mut self) -> Box<Self> {
        Box::new(Self {
            locker: self.locker.clone(),
            request: self.request.clone(),
            control: self.control.take(),
            // One that panicked is gone, and asked anew.
            under_way: self.under_way.take().filter(Request::is_alive),
            turn: self.turn.take(),
            begun: std::mem::take(&mut self.begun),
            told_busy: self.told_busy,
            in_doubt: self.in_doubt,
            terms_in_doubt: self.terms_in_doubt,
            can_pass: self.can_pass,
        })
    }

    /// Whether another waiter has it now.
    fn pass_on(&mut self) -> bool {
        while let Some((next, deadline)) = self.turn.as_ref().and_then(Turn::next_patient) {
            if let Some(control) = &self.control {
                control.set_terms(next.plan.terms(deadline));
            }
            match next.answer.send(Answer::Place(self.moved())) {
                // It has gone; what was moved comes back.
                Err(Answer::Place(mut place)) => std::mem::swap(self, &mut *place),
                _ => return true,
            }
        }
        false
    }

    fn undo(&mut self) {
        if let Some(control) = self.control.take() {
            control.give_up();
        }
        let turn = self.turn.take();
        if self.under_way.is_none() && !self.request.was_sent() {
            return; // there is nothing to undo
        }
        if let Some(turn) = &turn {
            turn.releasing();
        }
        self.locker.keeper.push(Work::Undo(Undo {
            backend: self.locker.server.backend.clone(),
            request: self.request.clone(),
            attempt: self.under_way.take(),
            turn,
        }));
    }
}

/// What a grant comes to.
pub(crate) enum Granted {
    Guard(Guard),
    /// The terms were those of a waiter that has gone; its own come with a hand-over, or the turn to ask anew.
    OnOtherTerms(Arc<Held>, oneshot::Receiver<Answer>),
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_planted(Plant::LeavesLateGrant) {
            return;
        }
        if self.begun && !(self.can_pass && self.pass_on()) {
            self.undo();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.request).finish()
    }
}

/// A future of its own, so that it can go on when its caller has gone.
fn ask(backend: Arc<dyn DistributedLock>, request: AcquireRequest) -> Request<Attempt> {
    Request::new(async move {
        observe::asked(Asked::Acquire);
        backend.acquire(&request).await
    })
}
