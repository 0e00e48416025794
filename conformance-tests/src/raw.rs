//! Driving a raw backend, as core does.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, DistributedLock, Hold, Lease, ReleaseOptions, ReleaseOutcome, Renewal,
};
use lock_core::{FencingToken, HoldState, Result};
use tokio::time::{Instant, sleep};

use crate::context::{RawCx, lock_name};
use crate::verdict::{OrFail, Stop, Verdict, ensure, ensure_safe};

pub(crate) use modes::{A_MOMENT, ensure_in_line, ensure_waiting, limit, permits, request_in};
pub(crate) use waiter::Waiter;

mod modes;
mod waiter;

/// A hold and the request that it came from.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) request: AcquireRequest,
    control: RequestControl,
}

/// The time before a request without an answer is repeated.
const SOON_AGAIN: Duration = Duration::from_millis(2);
/// More than the part of its ttl by which a lease ends before the server's.
const LONGEST_MARGIN: u32 = 6;
/// The first label of every request.
const ASKER: &str = "the asker";

/// Asks until it is granted, or busy for one that does not wait or nobody waits for.
pub(crate) async fn drive(backend: &dyn DistributedLock, request: &AcquireRequest) -> Result<Attempt> {
    loop {
        match backend.acquire(request).await? {
            Attempt::Busy(busy) if request.waits() && !request.is_given_up() => {
                let pause = busy.ask_again.unwrap_or(Duration::from_millis(50));
                request.note_busy(busy);
                tokio::select! {
                    () = sleep(pause) => {}
                    () = request.given_up() => {}
                }
            }
            attempt => return Ok(attempt),
        }
    }
}

impl RawCx {
    /// A request that waits for ever.
    pub(crate) fn request(&self, name: &str, ttl: Duration) -> Result<(AcquireRequest, RequestControl), Stop> {
        Ok(self.options(name, Terms::new(ttl).label(ASKER))?.start())
    }

    /// A request that does not wait.
    pub(crate) fn trying(&self, name: &str, ttl: Duration) -> Result<(AcquireRequest, RequestControl), Stop> {
        Ok(self.options(name, Terms::new(ttl))?.waits(false).start())
    }

    /// A request for the name alone: exclusive, or for the one permit there is.
    pub(crate) fn options(&self, name: &str, terms: Terms) -> Result<RequestOptions, Stop> {
        Ok(RequestOptions::new(lock_name(name)?, terms).mode(self.alone()))
    }

    /// A grant that must be had soon, of a ttl that does not end meanwhile.
    pub(crate) async fn grant(&self, backend: &Arc<dyn DistributedLock>, name: &str) -> Result<Grant, Stop> {
        self.grant_for(backend, name, self.long_ttl().await).await
    }

    /// A grant that must be had soon.
    pub(crate) async fn grant_for(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
        ttl: Duration,
    ) -> Result<Grant, Stop> {
        self.grant_to(backend, self.request(name, ttl)?).await
    }

    /// The grant that this request must be given soon.
    pub(crate) async fn grant_to(
        &self,
        backend: &Arc<dyn DistributedLock>,
        (request, control): (AcquireRequest, RequestControl),
    ) -> Result<Grant, Stop> {
        let what = format!("acquire {:?}", request.name());
        let asking = async {
            loop {
                let asked = Instant::now();
                match drive(&**backend, &request).await {
                    // On a busy machine it may come too late for its lease. Then it is asked for again, as core does.
                    Err(error) if error.is_retryable() && asked.elapsed() >= request.ttl() / 2 => {
                        sleep(SOON_AGAIN).await
                    }
                    attempt => return attempt,
                }
            }
        };
        let attempt = self.soon(&what, asking).await?.or_fail(&what)?;
        match granted(attempt, request, control)? {
            Ok(grant) => Ok(grant),
            Err(busy) => Err(Stop::assertion(format!("{what}: busy without end: {busy:?}"))),
        }
    }

    /// One try: a grant, or who has it.
    pub(crate) async fn try_once(
        &self,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
    ) -> Result<Result<Grant, Busy>, Stop> {
        let (request, control) = self.trying(name, self.long_ttl().await)?;
        let attempt = self.soon("try", backend.acquire(&request)).await?.or_fail("try")?;
        granted(attempt, request, control)
    }

    /// Fails if the name is granted to this client. Its holder's ttl does not end meanwhile, so that a grant means two holders,
    /// but where a session renews.
    pub(crate) async fn ensure_taken(&self, backend: &Arc<dyn DistributedLock>, name: &str) -> Verdict {
        self.ensure_taken_or(|message| Stop::by_ttl(message), backend, name)
            .await
    }

    /// The same beside a hold whose ttl may be over on a busy machine: then a grant does not mean two holders.
    pub(crate) async fn ensure_taken_beside(
        &self,
        first: &Grant,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
    ) -> Verdict {
        let stop = |message| Stop::second(first.is_live(), message);
        self.ensure_taken_or(stop, backend, name).await
    }

    async fn ensure_taken_or(
        &self,
        stop: impl FnOnce(String) -> Stop,
        backend: &Arc<dyn DistributedLock>,
        name: &str,
    ) -> Verdict {
        match self.try_once(backend, name).await? {
            Err(_) => Ok(()),
            Ok(grant) => Err(stop(format!(
                "{name:?} was granted to a second one, token {}",
                grant.token()
            ))),
        }
    }

    /// Asks once more for what a request has already: it is the same grant.
    pub(crate) async fn ensure_granted_again(&self, backend: &Arc<dyn DistributedLock>, grant: &Grant) -> Verdict {
        let asking = self.soon("the repeated acquire", backend.acquire(&grant.request));
        match asking.await?.or_fail("acquire again")? {
            Attempt::Granted(again, _) => ensure!(
                again.token() == grant.token(),
                "token {} became {}",
                grant.token(),
                again.token()
            ),
            other => return Err(Stop::assertion(format!("the holder itself was answered {other:?}"))),
        }
        Ok(())
    }

    /// Whether the hold is still its holder's. A renewal says so, or the repeated acquire where core never renews.
    pub(crate) async fn is_kept(&self, backend: &Arc<dyn DistributedLock>, grant: &Grant) -> Result<bool, Stop> {
        if is_renewed(backend) {
            return grant.renew(self.long_ttl().await).await;
        }
        let asking = self.soon("the repeated acquire", backend.acquire(&grant.request));
        let again = asking.await?.or_fail("acquire again")?;
        Ok(matches!(again, Attempt::Granted(hold, _) if hold.token() == grant.token()))
    }

    /// Fails if a renewal, where core renews, says that the hold is still its holder's.
    pub(crate) async fn ensure_not_renewed(
        &self,
        backend: &Arc<dyn DistributedLock>,
        grant: &Grant,
        when: &str,
    ) -> Verdict {
        if is_renewed(backend) {
            ensure!(!grant.renew(self.long_ttl().await).await?, "renewed {when}");
        }
        Ok(())
    }

    /// Abandons until it is answered, as core does.
    pub(crate) async fn abandoned(&self, backend: &Arc<dyn DistributedLock>, request: &AcquireRequest) -> Verdict {
        let abandoning = async {
            while backend.abandon(request).await.is_err() {
                sleep(SOON_AGAIN).await;
            }
        };
        self.soon("an abandon to be answered", abandoning).await
    }
}

/// A grant out of an attempt, or who has it.
pub(crate) fn granted(
    attempt: Attempt,
    request: AcquireRequest,
    control: RequestControl,
) -> Result<Result<Grant, Busy>, Stop> {
    match attempt {
        Attempt::Granted(hold, _) => {
            let state = request.lease().state();
            ensure!(
                state != HoldState::Released,
                "a grant came with a lease that nothing armed"
            );
            Ok(Ok(Grant::new(hold, request, control)))
        }
        Attempt::Busy(busy) => Ok(Err(busy)),
        other => Err(Stop::assertion(format!("an answer that nobody knows: {other:?}"))),
    }
}

/// Whether a holder may still rely on this lease.
pub(crate) fn is_live(lease: &Lease) -> bool {
    matches!(lease.state(), HoldState::Held | HoldState::Suspect)
}

/// Whether core renews a hold of this backend, or extends it. Where the session renews and `extend` is not declared, it never does.
pub(crate) fn is_renewed(backend: &Arc<dyn DistributedLock>) -> bool {
    let capabilities = backend.capabilities();
    capabilities.extend || !capabilities.session_renewal
}

impl Grant {
    pub(crate) fn new(hold: Arc<dyn Hold>, request: AcquireRequest, control: RequestControl) -> Self {
        Self { hold, request, control }
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.hold.token()
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.request.lease()
    }

    /// Whether this process may still rely on the hold.
    pub(crate) fn is_live(&self) -> bool {
        is_live(self.lease())
    }

    /// Fails if this process still relies on the hold, which is over at the server: another one may have the name.
    #[track_caller]
    pub(crate) fn ensure_over(&self, when: &str) -> Verdict {
        ensure_safe!(
            !self.is_live(),
            "{when}, and two believe that they hold it: {:?} is left of the first",
            self.lease().valid_for()
        );
        Ok(())
    }

    /// Nobody wants it any more.
    pub(crate) fn give_up(&self) {
        self.control.give_up();
    }

    /// Releases what must still be ours.
    pub(crate) async fn release(&self) -> Verdict {
        let ends = Instant::now() + self.lease().valid_for();
        let released = match self.hold.release(ReleaseOptions::default()).await.or_fail("release") {
            Ok(ReleaseOutcome::Released) => return Ok(()),
            Ok(outcome) => Stop::assertion(format!("a release of a live hold answered {outcome:?}")),
            Err(stop) => stop,
        };
        Err(released.explained_if(Instant::now() >= ends))
    }

    /// Repeats a release until it is answered, as core does.
    pub(crate) async fn released(&self, cx: &RawCx) -> Result<ReleaseOutcome, Stop> {
        self.released_with(cx, ReleaseOptions::default()).await
    }

    pub(crate) async fn released_with(&self, cx: &RawCx, how: ReleaseOptions) -> Result<ReleaseOutcome, Stop> {
        let releasing = async {
            loop {
                match self.hold.release(how).await {
                    Ok(outcome) => return outcome,
                    Err(_unknown) => sleep(SOON_AGAIN).await,
                }
            }
        };
        cx.soon("a release to be answered", releasing).await
    }

    /// Renews a hold of this ttl, which was asked for at `asked`. On a busy machine its lease, which is shorter by a margin, may be
    /// over by the time of the answer.
    pub(crate) async fn renew_live(&self, asked: Instant, ttl: Duration) -> Verdict {
        let renewed = self.renew(ttl).await;
        if asked.elapsed() < ttl - ttl / LONGEST_MARGIN {
            ensure!(renewed?, "a renewal of a live hold said that it was lost");
        }
        Ok(())
    }

    /// Fails unless this was so of a hold that only renewals keep. If it is over, a machine that stood still explains that.
    #[track_caller]
    pub(crate) fn ensure_kept(&self, is_so: bool, message: &str) -> Verdict {
        match is_so {
            true => Ok(()),
            false => Err(Stop::assertion(message).explained_if(!self.is_live())),
        }
    }

    /// Renews, and whether it was still ours.
    pub(crate) async fn renew(&self, ttl: Duration) -> Result<bool, Stop> {
        let renewed = self.hold.renew(ttl).await.or_fail("renew");
        let renewed = renewed.map_err(|stop| stop.explained_if(!self.is_live()))?;
        Ok(matches!(renewed, Renewal::Renewed(_)))
    }
}
