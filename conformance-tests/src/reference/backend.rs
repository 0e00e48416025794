//! The client: one message for each call, another one after each wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, HandOver, Hold, HolderId, Lease, LockStatus,
    ReleaseOptions, ReleaseOutcome, Renewal, Wait,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tokio::time::{sleep, timeout};

use super::server::ReferenceServer;
use super::state::{Answer, Ask};
use crate::link::Link;
use crate::linked::round_trip;
use crate::mutants::Defect;

/// How long a waiter sleeps at the most, for it may miss being woken.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long to wait for an answer before its outcome counts as unknown.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of a [`ReferenceServer`].
#[derive(Debug)]
pub struct ReferenceBackend {
    server: Arc<ReferenceServer>,
    link: Link,
    defect: Option<Defect>,
    /// Only the one that has one id per client uses it.
    client: HolderId,
}

#[derive(Debug)]
struct ReferenceHold {
    server: Arc<ReferenceServer>,
    link: Link,
    defect: Option<Defect>,
    ask: Ask,
    token: FencingToken,
    lease: Lease,
}

impl ReferenceBackend {
    pub(super) fn new(server: Arc<ReferenceServer>, link: Link, defect: Option<Defect>) -> Self {
        Self {
            server,
            link,
            defect,
            client: HolderId::random(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn holder(&self, request: &AcquireRequest) -> HolderId {
        match self.defect {
            Some(Defect::HolderIdPerClient) => self.client,
            Some(Defect::HolderIdPerTry) => HolderId::random(),
            _ => request.holder(),
        }
    }

    /// One question and its answer.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&ReferenceServer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        put(&self.server, &self.link, question).await
    }
}

async fn put<T: Send + 'static>(
    server: &Arc<ReferenceServer>,
    link: &Link,
    question: impl FnOnce(&ReferenceServer) -> Result<T> + Send + 'static,
) -> Result<T> {
    let server = server.clone();
    let answer = timeout(RESPONSE_TIMEOUT, round_trip(link, async move { question(&server) })).await;
    answer.unwrap_or_else(|_| {
        let message = format!("the server did not answer within {RESPONSE_TIMEOUT:?}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

#[async_trait]
impl DistributedLock for ReferenceBackend {
    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::default()
            .extend()
            .fixed_lease()
            .fifo()
            .hand_over()
            .minimum_hold()
            .durable_tokens();
        let mut declared = all;
        declared.hand_over &= !self.has(Defect::HandOverUndeclared);
        declared.minimum_hold &= !self.has(Defect::MinimumNotRefused);
        declared
    }

    async fn connect(&self) -> Result<()> {
        let anything = LockName::new("anything")?;
        self.ask(move |server| server.status(anything.as_str())).await.map(drop)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let first_label = request.label();
        loop {
            if request.is_given_up() && !self.has(Defect::AbandonedIdsComeBack) {
                return Err(Error::new(ErrorKind::Unavailable, "given up before anything was sent"));
            }
            let freed = self.server.freed.notified();
            let ask = Ask {
                name: request.name().as_str().to_owned(),
                holder: self.holder(request),
                ttl: request.ttl(),
                label: if self.has(Defect::TermsOfTheFirstAsking) {
                    first_label.clone()
                } else {
                    request.label()
                },
                floor: request.token_floor(),
                waits: request.wait() != Wait::No,
            };
            let (asked, sent) = (ask.clone(), request.sending());
            let answer = tokio::select! {
                answer = self.ask(move |server| server.acquire(&asked)) => answer,
                // It was asked, so the outcome is unknown.
                () = long_given_up(request) => Err(Error::new(ErrorKind::Unavailable, "given up before the answer")),
            };
            let (label, expires_in) = match answer {
                Ok(Answer::Granted(token)) => {
                    let sent = if self.has(Defect::GrantCountsFromTheReply) {
                        request.sending()
                    } else {
                        sent
                    };
                    let armed = request.lease().arm(sent, ask.ttl)?;
                    let (server, link, lease) = (self.server.clone(), self.link.clone(), request.lease().clone());
                    let hold = ReferenceHold {
                        server,
                        link,
                        defect: self.defect,
                        ask,
                        token,
                        lease,
                    };
                    return Ok(Attempt::Granted(Arc::new(hold), armed));
                }
                Ok(Answer::Busy { label, expires_in }) => (label, expires_in),
                Err(_) if self.has(Defect::UnknownIsBusy) => (None, LOOK_AGAIN),
                Err(error) => return Err(error),
            };
            let busy = match label {
                Some(label) => Busy::new().with_holder(label),
                None => Busy::new(),
            };
            if request.wait() == Wait::No || request.is_given_up() {
                return Ok(Attempt::Busy(busy));
            }
            request.note_busy(busy);
            let pause = match self.defect {
                Some(Defect::ReleaseWakesNobody) => expires_in,
                Some(Defect::NobodyLooksAfterAnExpiry) => Duration::MAX,
                _ => expires_in.min(LOOK_AGAIN),
            };
            tokio::select! {
                () = freed => {}
                () = sleep(pause) => {}
                () = request.given_up() => {}
            }
        }
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let (name, holder) = (request.name().clone(), self.holder(request));
        self.ask(move |server| server.abandon(name.as_str(), holder)).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let name = name.clone();
        self.ask(move |server| server.status(name.as_str())).await
    }
}

/// Leaves the server some time to answer after the request was given up.
async fn long_given_up(request: &AcquireRequest) {
    request.given_up().await;
    sleep(LOOK_AGAIN).await;
}

impl ReferenceHold {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// What is asked for the one that has it next.
    fn next(&self, request: &AcquireRequest) -> Ask {
        let (ttl, label) = match self.has(Defect::HandOverOnTheGiversTerms) {
            true => (self.ask.ttl, self.ask.label.clone()),
            false => (request.ttl(), request.label()),
        };
        Ask {
            name: self.ask.name.clone(),
            holder: match self.has(Defect::HolderIdPerClient) {
                true => self.ask.holder,
                false => request.holder(),
            },
            ttl,
            label,
            floor: request
                .token_floor()
                .filter(|_| !self.has(Defect::HandOverIgnoresTheFloor)),
            waits: false,
        }
    }
}

#[async_trait]
impl Hold for ReferenceHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let ask = Ask {
            ttl,
            ..self.ask.clone()
        };
        let sent = self.lease.sending();
        let renewed = put(&self.server, &self.link, move |server| server.renew(&ask)).await?;
        let late = self.has(Defect::RenewalCountsFromTheReply);
        let sent = if late { self.lease.sending() } else { sent };
        Ok(match renewed {
            true => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        let (name, holder) = (self.ask.name.clone(), self.ask.holder);
        let releasing = put(&self.server, &self.link, move |server| {
            server.release(&name, holder, how.keep_for)
        });
        Ok(match releasing.await? {
            true => ReleaseOutcome::Released,
            false => ReleaseOutcome::AlreadyLost,
        })
    }

    async fn hand_over(&self, next: &AcquireRequest) -> Result<HandOver> {
        let (giver, ask, sent) = (self.ask.holder, self.next(next), next.sending());
        let next_ask = ask.clone();
        let handed_over = if self.has(Defect::HandOverLetsGo) {
            self.release(ReleaseOptions::default()).await?;
            let asking = put(&self.server, &self.link, move |server| server.acquire(&next_ask));
            match asking.await? {
                Answer::Granted(token) => Some(token),
                Answer::Busy { .. } => return Ok(HandOver::Yielded),
            }
        } else {
            put(&self.server, &self.link, move |server| {
                server.hand_over(giver, &next_ask)
            })
            .await?
        };
        let Some(token) = handed_over else {
            return Ok(HandOver::AlreadyLost);
        };
        let late = self.has(Defect::HandOverCountsFromTheReply);
        let armed = next.lease().arm(if late { next.sending() } else { sent }, ask.ttl)?;
        let (server, link, lease) = (self.server.clone(), self.link.clone(), next.lease().clone());
        let hold = Self {
            server,
            link,
            defect: self.defect,
            ask,
            token,
            lease,
        };
        Ok(HandOver::Granted(Arc::new(hold), armed))
    }
}
