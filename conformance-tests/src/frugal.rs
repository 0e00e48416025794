//! Backends that do no more than the contract asks for: no case may ask more of them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, Lease, ListFrom, ListPage, LockStatus,
    ReleaseOptions, ReleaseOutcome, Renewal, Revoke, Revoked,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, LostCause, Result};
use tokio::time::sleep;

use crate::case::{Body, Case};
use crate::cases;
use crate::harness::{BackendHarness, Data, Harness, NoServer, Route, ServerUse, Timing};
use crate::raw::is_live;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::subject::{LockerSubject, Subject};
use crate::verdict::{Outcome, Stop};

/// What a backend leaves out.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// All capabilities.
    Plain,
    /// `extend` and what goes with it. Its session renews, and core calls no renewal.
    Session,
}

const LONGEST_TTL: Duration = Duration::from_secs(30);

/// The reference with a short longest ttl, which it lets nobody exceed, and with a status that shows the holders and their tokens alone.
#[derive(Debug)]
struct Frugal(Arc<dyn DistributedLock>, Kind);

#[derive(Debug)]
struct FrugalHold(Arc<dyn Hold>, Kind);

#[derive(Debug)]
struct FrugalHarness(ReferenceHarness, Kind);

#[async_trait]
impl DistributedLock for Frugal {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = match self.1 {
            Kind::Plain => Capabilities::default(),
            Kind::Session => self.0.capabilities().session_renewal(),
        };
        (capabilities.extend, capabilities.fixed_lease, capabilities.upgradable) = (false, false, false);
        capabilities.longest_ttl = LONGEST_TTL;
        capabilities
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        check(request.ttl())?;
        Ok(match self.0.acquire(request).await? {
            Attempt::Granted(hold, armed) => Attempt::Granted(FrugalHold::new(hold, request.lease(), self.1), armed),
            attempt => attempt,
        })
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.0.abandon(request).await
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let mut status = self.0.status(name).await?;
        (status.waiting, status.waiters) = (None, None);
        for holder in &mut status.holders {
            (holder.label, holder.expires_in, holder.mode) = (None, None, None);
            (holder.since, holder.id) = (None, None);
        }
        Ok(status)
    }

    async fn follow(&self, name: &LockName) -> Result<(LockStatus, lock_core::backend::Change)> {
        let (_, change) = self.0.follow(name).await?;
        Ok((self.status(name).await?, change))
    }

    async fn list(&self, from: &ListFrom, at_most: usize) -> Result<ListPage> {
        self.0.list(from, at_most).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, how: Revoke) -> Result<Revoked> {
        self.0.revoke(name, token, how).await
    }
}

impl FrugalHold {
    fn new(hold: Arc<dyn Hold>, lease: &Lease, kind: Kind) -> Arc<Self> {
        if matches!(kind, Kind::Session) {
            tokio::spawn(keep(hold.clone(), lease.clone()));
        }
        Arc::new(Self(hold, kind))
    }
}

/// Renews a hold as long as it lasts.
async fn keep(hold: Arc<dyn Hold>, lease: Lease) {
    // The lease is shorter than the hold by a margin.
    let ttl = lease.valid_for() * 6 / 5;
    while is_live(&lease) {
        let (hold, lease) = (hold.clone(), lease.clone());
        tokio::spawn(async move {
            match hold.renew(ttl).await {
                Ok(Renewal::Renewed(_)) => {}
                Ok(_) => lease.lose(LostCause::NotHeld),
                Err(error) => lease.suspect_because(error),
            }
        });
        sleep(ttl / 6).await;
    }
}

#[async_trait]
impl Hold for FrugalHold {
    fn token(&self) -> FencingToken {
        self.0.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        match self.1 {
            Kind::Plain => {
                check(ttl)?;
                self.0.renew(ttl).await
            }
            Kind::Session => Err(unsupported()),
        }
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        check(how.keep_for.unwrap_or_default())?;
        self.0.release(how).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        check(ttl)?;
        self.0.downgrade(ttl).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        match self.1 {
            Kind::Plain => Err(unsupported()),
            Kind::Session => self.0.raise_token(token).await,
        }
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        match self.1 {
            Kind::Plain => None,
            Kind::Session => Some(Self::new(self.0.pass(next)?, next, self.1)),
        }
    }
}

fn check(time: Duration) -> Result<()> {
    match time > LONGEST_TTL {
        true => Err(Error::new(ErrorKind::Misconfigured, "longer than the longest ttl")),
        false => Ok(()),
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "not declared")
}

#[async_trait]
impl Harness for FrugalHarness {
    async fn start(server: ServerUse) -> std::result::Result<Self, NoServer> {
        Ok(Self(ReferenceHarness::start(server).await?, Kind::Plain))
    }

    fn attach(address: &str) -> Self {
        Self(ReferenceHarness::attach(address), Kind::Plain)
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }

    fn timing(&self) -> Timing {
        self.0.timing()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        self.0.take_away(namespace, name).await;
    }

    async fn restart(&self, data: Data) {
        self.0.restart(data).await;
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        self.0.auxiliary_names(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for FrugalHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        Arc::new(Frugal(self.0.backend(namespace, route).await, self.1))
    }
}

fn passes_everything(kind: Kind) {
    let outcomes = cases::all().iter().map(|case| {
        let harness = FrugalHarness(ReferenceHarness::default(), kind);
        (case.name, execute(case, Arc::new(harness), case.name))
    });
    let failed: Vec<_> = outcomes
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Passed | Outcome::Skipped(_)))
        .map(|(case, outcome)| format!("{case}: {outcome}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_backend_with_no_more_than_it_must_have_passes() {
    passes_everything(Kind::Plain);
}

#[test]
fn a_session_that_core_never_renews_passes() {
    passes_everything(Kind::Session);
}

/// A session may end, and its holds with it, long before a ttl is over.
#[test]
fn a_ttl_alone_shows_no_two_holders_where_a_session_renews() {
    fn case(body: Body) -> Case {
        Case {
            name: "a_case",
            topic: "exclusion",
            server: ServerUse::Shared,
            guarantee: None,
            body,
        }
    }
    static BY_TTL: LazyLock<Case> =
        LazyLock::new(|| case(Body::Subject(|_| Box::pin(async { Err(Stop::by_ttl("a second one")) }))));
    static BELIEVED: LazyLock<Case> =
        LazyLock::new(|| case(Body::Raw(|_| Box::pin(async { Err(Stop::safety("a second one")) }))));
    let is_marked = |case: &'static Case, kind| {
        let harness = FrugalHarness(ReferenceHarness::default(), kind);
        let outcome = execute(case, Arc::new(harness), case.name);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}");
        outcome.to_string().contains("SAFETY")
    };
    assert!(is_marked(&BY_TTL, Kind::Plain));
    assert!(!is_marked(&BY_TTL, Kind::Session));
    assert!(is_marked(&BELIEVED, Kind::Session));
}
