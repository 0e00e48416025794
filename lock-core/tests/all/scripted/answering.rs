//! How a request runs: its answer, and what is counted of it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use lock_core::backend::{AcquireRequest, Armed, Lease, SentAt};
use lock_core::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::{Answer, Request, Script};

impl Script {
    pub(super) fn answer(&self, request: Request) -> Option<Answer> {
        self.answers.lock().unwrap().get_mut(&request)?.pop_front()
    }

    pub(super) async fn run<T>(
        &self,
        request: Request,
        answer: Option<Answer>,
        not_held: Option<T>,
        effect: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let here = || Handle::try_current().ok().map(|runtime| runtime.id());
        let began = here();
        let mut cut = Cut(self, request, true);
        let mut asked = pin!(self.ask(answer, not_held, effect));
        let answer = poll_fn(|context| {
            self.moved.fetch_add(usize::from(here() != began), Ordering::SeqCst);
            // If this panics, it was not dropped half-way.
            cut.2 = false;
            let answer = asked.as_mut().poll(context);
            cut.2 = answer.is_pending();
            answer
        })
        .await?;
        match self.is_lost() {
            true => Err(failure()),
            false => Ok(answer),
        }
    }

    async fn ask<T>(
        &self,
        answer: Option<Answer>,
        not_held: Option<T>,
        effect: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.yields().await;
        match answer {
            Some(Answer::Fail) => return Err(failure()),
            Some(Answer::FailAfter(time)) => {
                sleep(time).await;
                return Err(failure());
            }
            Some(Answer::Deny) => return Err(Error::new(ErrorKind::Denied, "scripted refusal")),
            Some(Answer::NotExecuted | Answer::NotSent) => return Err(failure().not_executed()),
            Some(Answer::NotHeld) => return Ok(not_held.expect("a request that finds a hold")),
            Some(Answer::Hang) => {
                self.hang().await;
                return Err(failure());
            }
            Some(Answer::Panic | Answer::PanicAtOnce) => panic!("planned, before the effect"),
            Some(Answer::DoAfter(time)) => sleep(time).await,
            _ => {}
        }
        let effect = effect.await;
        self.yields().await;
        match answer {
            Some(Answer::DoThenFail) => Err(failure()),
            Some(Answer::DoThenFailAfter(time)) => {
                drop(effect);
                sleep(time).await;
                Err(failure())
            }
            Some(Answer::DoThenHang) => {
                drop(effect);
                self.hang().await;
                Err(failure())
            }
            Some(Answer::DoThenPanic) => panic!("planned, after the effect"),
            Some(Answer::DoThenHold) => {
                self.hang().await;
                effect
            }
            Some(Answer::DoThenWait(time)) => {
                sleep(time).await;
                effect
            }
            _ => effect,
        }
    }

    pub(super) async fn yields(&self) {
        let mut left = self.yields;
        poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    async fn hang(&self) {
        struct Hung<'a>(&'a AtomicUsize);
        impl Drop for Hung<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.hung.fetch_add(1, Ordering::SeqCst);
        let _hung = Hung(&self.hung);
        self.let_go.notified().await;
    }

    fn is_lost(&self) -> bool {
        let mut losses = self.losses.lock().unwrap();
        match &mut *losses {
            Some((left, is_lost)) if *left > 0 && is_lost() => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// It came, with its first poll.
    pub(super) fn sent(&self, request: Request) {
        let mut log = self.log.lock().unwrap();
        log.sent.push(request);
        *log.count.entry(request).or_default() += 1;
        match request {
            Request::Acquire => drop(log.first_acquire.get_or_insert_with(Instant::now)),
            Request::Renew => {
                let since = log.first_acquire.expect("an acquire came before");
                log.renewals.push(since.elapsed());
            }
            Request::Release => log
                .released_on
                .extend(Handle::try_current().map(|runtime| runtime.id())),
            Request::Abandon | Request::Downgrade | Request::Status => {}
        }
    }
}

/// That the request's lease was armed, unless it is to be another.
pub(super) fn proof(answer: Option<Answer>, request: &AcquireRequest, armed: Armed) -> Result<Armed> {
    match answer {
        Some(Answer::ArmsAnotherLease) => Lease::new(request.name().clone()).arm(SentAt::now(), request.ttl()),
        _ => Ok(armed),
    }
}

fn failure() -> Error {
    Error::new(ErrorKind::Unavailable, "scripted failure")
}

/// Counts a request that is dropped half-way.
struct Cut<'a>(&'a Script, Request, bool);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if self.2 {
            *self.0.log.lock().unwrap().cut.entry(self.1).or_default() += 1;
        }
    }
}
