//! The backend: one request for each call, another one after each wait.

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, Capabilities, Change, DistributedLock, HolderId, ListFrom, ListPage, LockStatus,
    Mode, Revoke, Revoked, SentAt,
};
use lock_core::memory::Acquire;
use lock_core::{Error, ErrorKind, FencingToken, Guarantee, LockName, Result, Verdict};
use tokio::time::sleep;

use super::client::{Client, LOOK_AGAIN};
use super::hold::ReferenceHold;
use super::server::ReferenceServer;
use super::state::{Reply, Request};
use crate::link::Link;
use crate::mutant::Mutant;

/// The ttl of a hold whose expiry is set later.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// A client of a [`ReferenceServer`].
#[derive(Debug)]
pub struct ReferenceBackend {
    client: Client,
    mutant: Option<Mutant>,
    /// The holder id of all acquires, for the mutant that has one.
    only_id: HolderId,
    /// The acquires under way, for the mutant that takes a dropped one for one of them.
    under_way: Mutex<HashSet<HolderId>>,
    /// The acquires that were answered, for the mutant that undoes no others.
    answered: Mutex<HashSet<HolderId>>,
    /// Held while an acquire is being undone, for the mutant whose acquires wait for that.
    undoing: tokio::sync::Mutex<()>,
}

impl ReferenceBackend {
    pub(super) fn new(server: Arc<ReferenceServer>, link: Link, mutant: Option<Mutant>) -> Self {
        Self {
            client: Client::new(server, link, mutant),
            mutant,
            only_id: HolderId::random(),
            under_way: Mutex::default(),
            answered: Mutex::default(),
            undoing: tokio::sync::Mutex::default(),
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn holder(&self, request: &AcquireRequest) -> HolderId {
        match self.mutant {
            Some(Mutant::HolderIdPerClient) => self.only_id,
            Some(Mutant::HolderIdPerTry) => HolderId::random(),
            _ => request.holder(),
        }
    }

    fn is_first(&self, request: &AcquireRequest) -> bool {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.insert(request.holder())
    }

    fn is_over(&self, request: &AcquireRequest) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&request.holder());
    }

    fn is_answered(&self, request: &AcquireRequest) -> bool {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.contains(&request.holder())
    }

    fn note_answer(&self, request: &AcquireRequest) {
        if !self.has(Mutant::UnansweredIsNotUndone) {
            return;
        }
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.insert(request.holder());
    }

    /// One question, its answer, and the moment just before it was sent.
    async fn ask_once(&self, request: &AcquireRequest, ask: &Request) -> Result<(Reply, SentAt)> {
        if self.has(Mutant::SendingWithoutAConnection) {
            let _marked = request.sending();
        }
        let connection = self.client.connect()?;
        let sent_at_its_answer = self.has(Mutant::SentAtItsAnswer);
        let before = (!sent_at_its_answer).then(|| request.sending());
        let mut ask = ask.clone();
        if self.has(Mutant::PermitsCountedByTheClient) && matches!(ask.mode(), Mode::Permits(_)) {
            let counted = ask.clone();
            ask.is_counted = self.client.put(move |server| server.would_admit(&counted)).await?;
        }
        if self.has(Mutant::StateWrittenBack) {
            let name = ask.name.clone();
            let state = self.client.put(move |server| server.take_state(&name)).await?;
            let name = ask.name.clone();
            self.client.put(move |server| server.write_state(&name, state)).await?;
        }
        let second_request = self.has(Mutant::ExpiryByASecondRequest).then(|| ask.clone());
        if second_request.is_some() {
            ask.acquire.ttl = FOR_EVER;
        }
        let of_effect = self.has(Mutant::GrantCountsFromItsEffect);
        let asking = self.client.ask(connection, move |server| {
            let reply = server.acquire(&ask)?;
            Ok((reply, of_effect.then(SentAt::now)))
        });
        let answer = tokio::select! {
            answer = asking => answer,
            // It was asked, so the outcome is unknown.
            () = long_given_up(request) => Err(Error::new(ErrorKind::Unavailable, "given up before the answer")),
        };
        let answer = answer.map_err(|error| match sent_at_its_answer {
            true => error.not_executed(),
            false => error,
        })?;
        let (reply, of_effect) = answer;
        self.note_answer(request);
        if let (Reply::Granted(_), Some(ask)) = (&reply, second_request) {
            self.client.put(move |server| server.set_expiry(&ask)).await?;
        }
        let before = before.filter(|_| !self.has(Mutant::GrantCountsFromTheReply));
        Ok((reply, of_effect.or(before).unwrap_or_else(|| request.sending())))
    }

    async fn asked(&self, request: &AcquireRequest) -> Result<Attempt> {
        let first_label = request.label();
        loop {
            if request.is_given_up() && !self.has(Mutant::AbandonedIdsComeBack) {
                return Err(Error::new(ErrorKind::Unavailable, "given up before anything was sent"));
            }
            let freed = self.client.server.freed.notified();
            let mut acquire = Acquire::new(request);
            acquire.wanted.holder = self.holder(request);
            if self.has(Mutant::TermsOfTheFirstAsking) {
                acquire.label.clone_from(&first_label);
            }
            let ask = Request {
                name: request.name().clone(),
                acquire,
                waits: request.waits(),
                is_counted: false,
            };
            let (label, expires_in) = match self.ask_once(request, &ask).await {
                Ok((Reply::Granted(token), sent)) => {
                    self.client.note_held(&ask.name, request.lease());
                    let armed = request.lease().arm(sent, ask.acquire.ttl)?;
                    if self.has(Mutant::TermsReadAfterTheAnswer) {
                        let _ = (request.ttl(), request.label());
                    }
                    let hold = ReferenceHold::new(self.client.clone(), ask, token, request.lease().clone());
                    return Ok(Attempt::Granted(Arc::new(hold), armed));
                }
                Ok((Reply::Busy { label, expires_in }, _)) => (label, expires_in),
                Err(_) if self.has(Mutant::UnknownIsBusy) => (None, LOOK_AGAIN),
                Err(_) if self.has(Mutant::OutageIsNotReported) && request.last_busy().is_some() => {
                    sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let busy = match label {
                Some(label) => Busy::new().with_holder(label),
                None => Busy::new(),
            };
            if !request.waits() || request.is_given_up() {
                return Ok(Attempt::Busy(busy));
            }
            request.note_busy(busy);
            let is_deaf = self.has(Mutant::WaitingReadersAreNotWoken) && request.mode() == Mode::Shared;
            let pause = match self.mutant {
                Some(
                    Mutant::ReleaseWakesNobody
                    | Mutant::WaitingReadersAreNotWoken
                    | Mutant::DowngradeWakesNobody
                    | Mutant::LeavingWaiterWakesNobody
                    | Mutant::OneWaiterForAllPermits,
                ) => expires_in,
                Some(Mutant::NobodyLooksAfterAnExpiry) => Duration::MAX,
                _ => expires_in.min(LOOK_AGAIN),
            };
            tokio::select! {
                () = freed, if !is_deaf => {}
                // Never zero, which a hold of some mutants has left: on a paused clock no time would pass.
                () = sleep(pause.max(Duration::from_millis(1))) => {}
                () = request.given_up() => {}
            }
        }
    }
}

#[async_trait]
impl DistributedLock for ReferenceBackend {
    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::default()
            .extend()
            .fixed_lease()
            .fifo()
            .pass()
            .minimum_hold()
            .ordered()
            .durable_tokens()
            .any_floor()
            .follow()
            .shared()
            .upgradable()
            .downgrade()
            .list()
            .revoke()
            .revoke_now()
            .permits(u32::MAX);
        let mut declared = all;
        declared.pass &= !self.has(Mutant::PassUndeclared);
        declared.minimum_hold &= !self.has(Mutant::MinimumNotRefused);
        declared
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        match guarantee {
            Guarantee::ServerCrash | Guarantee::ConnectionLoss | Guarantee::NoEviction => Verdict::Yes,
            _ => Verdict::unknown("there is one server, and no clock but its own", "use another one"),
        }
    }

    async fn connect(&self) -> Result<()> {
        let anything = LockName::new("anything")?;
        self.status(&anything).await.map(drop)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if self.has(Mutant::UndosComeFirst) {
            drop(self.undoing.lock().await);
        }
        if !self.has(Mutant::DroppedAcquireIsUnderWay) {
            return self.asked(request).await;
        }
        if !self.is_first(request) {
            return Err(Error::new(ErrorKind::Unavailable, "this acquire is under way already"));
        }
        let attempt = self.asked(request).await;
        self.is_over(request);
        attempt
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        let _alone = match self.has(Mutant::UndosComeFirst) {
            true => {
                let alone = self.undoing.lock().await;
                sleep(2 * LOOK_AGAIN).await;
                Some(alone)
            }
            false => None,
        };
        if self.has(Mutant::ConnectsWithoutEnd) {
            connect_in_a_task();
        }
        if self.has(Mutant::UnansweredIsNotUndone) && !self.is_answered(request) {
            return Ok(());
        }
        let (name, holder, replaces) = (request.name().clone(), self.holder(request), request.replaces());
        self.client
            .put(move |server| server.abandon(&name, holder, replaces))
            .await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let name = name.clone();
        self.client.put(move |server| server.status(&name)).await
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, Change)> {
        let name = name.clone();
        self.client.put(move |server| server.follow(&name)).await
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        let from = from.clone();
        self.client.put(move |server| server.list(&from, at_most)).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        let (asked, is_read_first) = (name.clone(), self.has(Mutant::RevokeWritesWhatItRead));
        let read = self.client.put(move |server| server.end_of(&asked, token)).await?;
        if is_read_first {
            sleep(LOOK_AGAIN).await;
        }
        let (name, read) = (name.clone(), read.filter(|_| is_read_first));
        self.client
            .put(move |server| server.revoke(&name, token, how, read))
            .await
    }
}

/// Spawns tasks until the runtime keeps one.
fn connect_in_a_task() {
    loop {
        let task = tokio::spawn(pending::<()>());
        if !task.is_finished() {
            task.abort();
            return;
        }
        // A runtime that drops its tasks has no timers any more. Nothing ends this thread: it uses no processor meanwhile.
        thread::sleep(LOOK_AGAIN);
    }
}

/// Leaves the server some time to answer after the request was given up.
async fn long_given_up(request: &AcquireRequest) {
    request.given_up().await;
    sleep(LOOK_AGAIN).await;
}
