//! The context of a case: its server, its subjects and its names.

use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{DistributedLock, LockStatus, Mode};
use lock_core::{ErrorKind, LockName};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{BackendHarness, Data, Harness, Route, Timing};
use crate::link::Link;
use crate::subject::{Ask, Subject, SubjectGuard};
use crate::verdict::{Capability, OrFail, Skip, Stop, Verdict};

mod pauses;
mod ttls;

pub(crate) use pauses::{LOOK_AGAIN, Pauses};

/// A server, a namespace of its own on it, and the means to make clients.
#[derive(Debug)]
pub(crate) struct Cx {
    harness: Arc<dyn Harness>,
    namespace: String,
    /// The path of the test, for child processes to run it.
    test: String,
    observer: OnceCell<Arc<dyn Subject>>,
}

/// The same for the cases on a raw backend.
#[derive(Debug)]
pub(crate) struct RawCx {
    cx: Cx,
    harness: Arc<dyn BackendHarness>,
    /// The mode of a case that names none.
    alone: Mode,
}

impl Cx {
    pub(crate) fn new(harness: Arc<dyn Harness>, namespace: String, test: String) -> Self {
        Self {
            harness,
            namespace,
            test,
            observer: OnceCell::new(),
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn test(&self) -> &str {
        &self.test
    }

    /// The address of the server for another process, or the reason to skip.
    pub(crate) fn address(&self) -> Result<String, Stop> {
        self.harness.address().ok_or(Stop::Skipped(Skip::OneProcess))
    }

    pub(crate) fn timing(&self) -> Timing {
        self.harness.timing()
    }

    /// The time that a busy machine may take.
    pub(crate) fn patience(&self) -> Duration {
        self.timing().patience
    }

    /// The longest round trip over which a hold must be kept.
    pub(crate) fn round_trip_percent(&self) -> u32 {
        self.timing().round_trip_percent
    }

    /// A new client.
    pub(crate) async fn subject(&self) -> Arc<dyn Subject> {
        self.harness.subject(&self.namespace, &Route::Direct).await
    }

    /// A new client behind a link.
    pub(crate) async fn subject_through(&self, link: &Link) -> Arc<dyn Subject> {
        self.harness
            .subject(&self.namespace, &Route::Through(link.clone()))
            .await
    }

    /// A new client with no server at its address.
    pub(crate) async fn subject_nowhere(&self) -> Arc<dyn Subject> {
        self.harness.subject(&self.namespace, &Route::Nowhere).await
    }

    /// A new client in another namespace of the same server.
    pub(crate) async fn subject_in(&self, namespace: &str) -> Arc<dyn Subject> {
        self.harness.subject(namespace, &Route::Direct).await
    }

    /// Acquires what must be had soon.
    pub(crate) async fn hold(&self, subject: &Arc<dyn Subject>, ask: &Ask) -> Result<Box<dyn SubjectGuard>, Stop> {
        self.hold_within(self.patience(), subject, ask).await
    }

    async fn hold_within(
        &self,
        bound: Duration,
        subject: &Arc<dyn Subject>,
        ask: &Ask,
    ) -> Result<Box<dyn SubjectGuard>, Stop> {
        let what = format!("acquire {:?}", ask.name);
        let acquired = self.within(bound, &what, subject.acquire(ask)).await?.or_fail(&what)?;
        acquired.ok_or_else(|| Stop::assertion(format!("{:?} was busy, but nobody holds it", ask.name)))
    }

    /// Fails unless the lock is busy for this client. Its holder's ttl does not end meanwhile, so that a second grant means two
    /// holders, but where a session renews.
    #[track_caller]
    pub(crate) fn ensure_busy<'a>(
        &self,
        subject: &'a Arc<dyn Subject>,
        ask: &Ask,
    ) -> impl Future<Output = Verdict> + 'a {
        self.ensure_busy_or(|message| Stop::by_ttl(message), subject, ask)
    }

    /// The same beside a hold whose ttl may be over on a busy machine: then a second grant does not mean two holders.
    #[track_caller]
    pub(crate) fn ensure_busy_beside<'a>(
        &self,
        first: &'a dyn SubjectGuard,
        subject: &'a Arc<dyn Subject>,
        ask: &Ask,
    ) -> impl Future<Output = Verdict> + 'a {
        self.ensure_busy_or(|message| Stop::second(first.believes(), message), subject, ask)
    }

    #[track_caller]
    fn ensure_busy_or<'a>(
        &self,
        stop: impl FnOnce(String) -> Stop + 'a,
        subject: &'a Arc<dyn Subject>,
        ask: &Ask,
    ) -> impl Future<Output = Verdict> + 'a {
        let (ask, at) = (ask.clone().trying(), Location::caller());
        async move {
            match subject.acquire(&ask).await.or_fail("try")? {
                None => Ok(()),
                Some(guard) => Err(stop(format!(
                    "{:?} was granted to a second one, token {} (at {at})",
                    ask.name,
                    guard.token()
                ))),
            }
        }
    }

    /// Takes the hold of this name away from its holder.
    pub(crate) async fn take_away(&self, name: &str) {
        self.harness.take_away(&self.namespace, name).await;
    }

    pub(crate) async fn restart(&self, data: Data) {
        self.harness.restart(data).await;
    }

    pub(crate) fn auxiliary_names(&self, name: &str) -> Vec<String> {
        self.harness.auxiliary_names(&self.namespace, name)
    }

    /// A client that holds nothing, to look at the server.
    pub(crate) async fn observer(&self) -> &Arc<dyn Subject> {
        self.observer
            .get_or_init(|| self.harness.observer(&self.namespace))
            .await
    }

    /// Who has the name, as a client of its own sees it.
    pub(crate) async fn status(&self, name: &str) -> Result<LockStatus, Stop> {
        let observer = self.observer().await;
        let is_paused = self.timing().paused;
        let asked = async {
            let mut pauses = Pauses::new();
            loop {
                match observer.status(name).await {
                    // A busy machine may answer too late, and a quorum not know it for a moment.
                    Err(error) if error.is_retryable() && !is_paused => pauses.pass().await,
                    status => return status,
                }
            }
        };
        match timeout(self.patience(), asked).await {
            Ok(status) => status.or_fail("ask for the status"),
            // Once more, so that the error says why.
            Err(_) => observer.status(name).await.or_fail("ask for the status"),
        }
    }

    /// The label of the name's holder, if the server knows it.
    pub(crate) async fn holder_of(&self, name: &str) -> Result<Option<Arc<str>>, Stop> {
        let holders = self.status(name).await?.holders;
        Ok(holders.first().and_then(|holder| holder.label.clone()))
    }

    /// Whether anybody has the name.
    pub(crate) async fn is_held(&self, name: &str) -> Result<bool, Stop> {
        Ok(self.status(name).await?.is_held())
    }

    /// Waits until nobody holds the name and nobody waits for it, and proves it by taking it once. That must be soon: nothing has to
    /// expire before.
    #[track_caller]
    pub(crate) fn until_free<'a>(&'a self, name: &'a str, after: &'a str) -> impl Future<Output = Verdict> + 'a {
        let at = Location::caller();
        async move { self.ensure_freed(name, self.freed_soon().await, after, at).await }
    }

    /// The same within this time.
    #[track_caller]
    pub(crate) fn until_free_by<'a>(
        &'a self,
        name: &'a str,
        bound: Duration,
        after: &'a str,
    ) -> impl Future<Output = Verdict> + 'a {
        let at = Location::caller();
        async move { self.ensure_freed(name, bound, after, at).await }
    }

    async fn ensure_freed(&self, name: &str, bound: Duration, after: &str, at: &Location<'_>) -> Verdict {
        let observer = self.observer().await;
        let free = async {
            let mut pauses = Pauses::new();
            loop {
                match observer.status(name).await {
                    Ok(status) if !status.is_held() && status.waiting.unwrap_or(0) == 0 => return Ok(()),
                    // A quorum may not know who has the name while something is undone.
                    Err(error) if !error.is_retryable() => return Err(error),
                    _ => pauses.pass().await,
                }
            }
        };
        match timeout(bound, free).await {
            Ok(free) => free.or_fail("ask for the status")?,
            Err(_) => {
                let status = observer.status(name).await;
                let message = format!("{name:?} is not free {bound:?} after {after}: {status:?} (at {at})");
                return Err(Stop::assertion(message));
            }
        }
        let ask = self.ask(name).await;
        let guard = self.hold_within(bound.min(self.patience()), observer, &ask).await?;
        guard.released().await
    }

    /// Waits until so many places wait at the server, where it knows. Else it gives them the time to begin: a status without the
    /// number of waiters is all that the contract asks for, and a subject reports nothing else from which to tell that it waits.
    pub(crate) async fn until_places(&self, name: &str, places: usize) -> Verdict {
        let counted = async {
            let mut pauses = Pauses::new();
            while let Some(waiting) = self.status(name).await?.waiting {
                if waiting >= places {
                    return Ok(());
                }
                pauses.pass().await;
            }
            sleep(10 * LOOK_AGAIN).await;
            Ok(())
        };
        self.soon("the next one to wait at the server", counted).await?
    }

    /// Waits until a client whose link is cut knows it.
    pub(crate) async fn until_cut_off(&self, client: &Arc<dyn Subject>) -> Verdict {
        let noticed = async {
            let mut pauses = Pauses::new();
            while client.status("anything").await.is_ok() {
                pauses.pass().await;
            }
        };
        self.soon("the client to notice that it is cut off", noticed).await
    }

    /// Awaits a future that must end soon, or the case fails.
    #[track_caller]
    pub(crate) fn soon<'a, T>(
        &self,
        what: &'a str,
        doing: impl Future<Output = T> + 'a,
    ) -> impl Future<Output = Result<T, Stop>> + 'a {
        self.within(self.patience(), what, doing)
    }

    /// Awaits a future that must end within this time, or the case fails.
    #[track_caller]
    pub(crate) fn within<'a, T>(
        &self,
        bound: Duration,
        what: &'a str,
        doing: impl Future<Output = T> + 'a,
    ) -> impl Future<Output = Result<T, Stop>> + 'a {
        let at = Location::caller();
        async move {
            match timeout(bound, doing).await {
                Ok(done) => Ok(done),
                Err(_) => Err(Stop::assertion(format!("not done within {bound:?}: {what} (at {at})"))),
            }
        }
    }

    /// The end of a case whose capability is not declared: skipped, if its option was rejected.
    pub(crate) fn undeclared<T>(&self, capability: Capability, refused: lock_core::Result<T>) -> Stop {
        match refused {
            Ok(_) => Stop::assertion(format!("{capability:?} is not declared, yet its option was accepted")),
            Err(error) if error.kind() == ErrorKind::Unsupported => Stop::Skipped(Skip::Undeclared(capability)),
            Err(error) => {
                let kind = error.kind();
                Stop::assertion(format!(
                    "{capability:?} is not declared, yet its option was refused as {kind:?}: {error}"
                ))
            }
        }
    }
}

impl RawCx {
    pub(crate) fn new(harness: Arc<dyn BackendHarness>, namespace: String, test: String) -> Self {
        Self {
            cx: Cx::new(harness.clone(), namespace, test),
            harness,
            alone: Mode::Exclusive,
        }
    }

    /// The same where a case that names no mode asks for names in this one.
    pub(crate) fn alone_by(mut self, mode: Mode) -> Self {
        self.alone = mode;
        self
    }

    /// The mode in which a case that names none asks for a name.
    pub(crate) fn alone(&self) -> Mode {
        self.alone
    }

    /// A new client.
    pub(crate) async fn backend(&self) -> Arc<dyn DistributedLock> {
        self.harness.backend(self.namespace(), &Route::Direct).await
    }

    /// A new client that has reached the server: what it asks for next takes an answer and no more.
    pub(crate) async fn connected(&self) -> Result<Arc<dyn DistributedLock>, Stop> {
        let client = self.backend().await;
        self.connect(&client).await?;
        Ok(client)
    }

    /// Lets the client reach the server. On a busy machine a handshake may take longer than a client waits for it: then once more.
    pub(crate) async fn connect(&self, client: &Arc<dyn DistributedLock>) -> Verdict {
        let end = Instant::now() + self.patience();
        loop {
            match self.soon("connect", client.connect()).await? {
                Err(error) if error.is_retryable() && Instant::now() < end => sleep(LOOK_AGAIN).await,
                connected => return connected.or_fail("connect"),
            }
        }
    }

    /// A new client behind a link.
    pub(crate) async fn backend_through(&self, link: &Link) -> Arc<dyn DistributedLock> {
        self.harness
            .backend(self.namespace(), &Route::Through(link.clone()))
            .await
    }

    /// A new client with no server at its address.
    pub(crate) async fn backend_nowhere(&self) -> Arc<dyn DistributedLock> {
        self.harness.backend(self.namespace(), &Route::Nowhere).await
    }
}

impl Deref for RawCx {
    type Target = Cx;

    fn deref(&self) -> &Cx {
        &self.cx
    }
}

/// A name that is one.
pub(crate) fn lock_name(name: &str) -> Result<LockName, Stop> {
    LockName::new(name).or_fail("make a name")
}
