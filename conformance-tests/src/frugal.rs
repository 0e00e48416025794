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
use crate::mutants::Mutant;
use crate::raw::is_live;
use crate::reference::ReferenceHarness;
use crate::run::execute;
use crate::subject::{LockerSubject, Subject};
use crate::verdict::{Outcome, Stop, ensure};

use self::limits::Limits;

mod late;
mod limits;
mod repeated;

/// What a backend leaves out.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// All capabilities.
    Plain,
    /// `extend` and what goes with it. Its session renews, and core calls no renewal.
    Session,
    /// Nothing but long ttls.
    LongTtls,
}

/// The reference with a short longest ttl, which it lets nobody exceed, and with a status that shows the holders and their tokens alone.
#[derive(Debug)]
struct Frugal(Arc<dyn DistributedLock>, Limits);

#[derive(Debug)]
struct FrugalHold(Arc<dyn Hold>, Limits);

#[derive(Debug)]
struct FrugalHarness {
    whole: ReferenceHarness,
    limits: Limits,
    timing: Timing,
}

#[async_trait]
impl DistributedLock for Frugal {
    fn capabilities(&self) -> Capabilities {
        let capabilities = match self.1.kind {
            Kind::Plain => Capabilities::default(),
            Kind::Session => {
                let mut capabilities = self.0.capabilities().session_renewal();
                (capabilities.extend, capabilities.fixed_lease, capabilities.upgradable) = (false, false, false);
                capabilities
            }
            Kind::LongTtls => self.0.capabilities(),
        };
        self.1.declared(capabilities)
    }

    async fn connect(&self) -> Result<()> {
        self.0.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.1.check_request(request)?;
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
    fn new(hold: Arc<dyn Hold>, lease: &Lease, limits: Limits) -> Arc<Self> {
        if matches!(limits.kind, Kind::Session) {
            tokio::spawn(keep(hold.clone(), lease.clone()));
        }
        Arc::new(Self(hold, limits))
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
        match self.1.kind {
            Kind::Plain | Kind::LongTtls => {
                self.1.check(ttl)?;
                self.0.renew(ttl).await
            }
            Kind::Session => Err(unsupported()),
        }
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.1.check(how.keep_for.unwrap_or_default())?;
        if self.1.forgets_releases {
            return Ok(ReleaseOutcome::Released);
        }
        self.0.release(how).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        self.1.check(ttl)?;
        self.0.downgrade(ttl).await
    }

    async fn raise_token(&self, token: FencingToken) -> Result<()> {
        match self.1.kind {
            Kind::Plain => Err(unsupported()),
            Kind::Session | Kind::LongTtls => self.0.raise_token(token).await,
        }
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        match self.1.kind {
            Kind::Plain => None,
            Kind::Session | Kind::LongTtls => Some(Self::new(self.0.pass(next)?, next, self.1)),
        }
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "not declared")
}

impl FrugalHarness {
    fn new(whole: ReferenceHarness, kind: Kind, longest_ttl: Duration) -> Self {
        Self {
            whole,
            limits: Limits::new(kind, longest_ttl),
            timing: Timing::paused(),
        }
    }

    fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }
}

#[async_trait]
impl Harness for FrugalHarness {
    async fn start(_server: ServerUse) -> std::result::Result<Self, NoServer> {
        unreachable!("no test of the macro's runs it")
    }

    fn attach(address: &str) -> Self {
        unreachable!("this server has no address, and yet {address:?} was found")
    }

    fn address(&self) -> Option<String> {
        None
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        self.whole.take_away(namespace, name).await;
    }

    async fn restart(&self, data: Data) {
        self.whole.restart(data).await;
    }

    fn auxiliary_names(&self, namespace: &str, name: &str) -> Vec<String> {
        self.whole.auxiliary_names(namespace, name)
    }
}

#[async_trait]
impl BackendHarness for FrugalHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        Arc::new(Frugal(self.whole.backend(namespace, route).await, self.limits))
    }
}

const LONGEST_TTL: Duration = Duration::from_secs(30);

fn passes_everything(harness: impl Fn() -> FrugalHarness) {
    let outcomes = cases::all()
        .iter()
        .map(|case| (case.name, execute(case, Arc::new(harness()), case.name)));
    let failed: Vec<_> = outcomes
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Passed | Outcome::Skipped(_)))
        .map(|(case, outcome)| format!("{case}: {outcome}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_backend_with_no_more_than_it_must_have_passes() {
    passes_everything(|| FrugalHarness::new(ReferenceHarness::default(), Kind::Plain, LONGEST_TTL));
}

#[test]
fn a_session_that_core_never_renews_passes() {
    passes_everything(|| FrugalHarness::new(ReferenceHarness::default(), Kind::Session, LONGEST_TTL));
}

/// The reference, or a mutant, whose longest ttl is less than what the suite is ready to wait.
fn with_longest_ttl(longest_ttl: Duration, whole: ReferenceHarness, kind: Kind) -> FrugalHarness {
    let timing = Timing::paused().with_ttl(longest_ttl / 3);
    assert!(longest_ttl < timing.patience, "{timing:?}");
    FrugalHarness::new(whole, kind, longest_ttl).with_timing(timing)
}

/// The same where the suite is ready to wait for long.
fn with_a_long_patience(whole: ReferenceHarness) -> FrugalHarness {
    let timing = Timing::paused().with_patience(Duration::from_secs(70));
    let any = Capabilities::default().longest_ttl;
    FrugalHarness::new(whole, Kind::LongTtls, any).with_timing(timing)
}

#[test]
fn a_longest_ttl_below_the_patience_passes() {
    for kind in [Kind::Plain, Kind::Session] {
        let longest = Duration::from_secs(18);
        passes_everything(|| with_longest_ttl(longest, ReferenceHarness::default(), kind));
    }
}

#[test]
fn a_long_patience_passes() {
    passes_everything(|| with_a_long_patience(ReferenceHarness::default()));
}

/// What it leaves behind would expire while the suite waits, if nothing bounded that.
#[test]
fn what_is_left_behind_is_found_whatever_the_patience() {
    for name in [
        "an_unanswered_grant_is_undone",
        "an_acquire_is_dropped_before_every_reply",
        "a_cancelled_acquire_leaves_no_permit",
        "an_unanswered_reader_is_undone",
    ] {
        let mutant = || ReferenceHarness::with_mutant(Mutant::UnansweredIsNotUndone);
        for harness in [
            with_longest_ttl(Duration::from_secs(15), mutant(), Kind::LongTtls),
            with_a_long_patience(mutant()),
        ] {
            let timing = harness.timing;
            let outcome = execute(cases::named(name), Arc::new(harness), name);
            assert!(
                matches!(&outcome, Outcome::Failed(failure) if failure.asserted),
                "{name}, {timing:?}: {outcome}"
            );
        }
    }
}

/// A hold that the winner's renewals keep shows nothing of the terms for which it was granted.
#[test]
fn the_terms_of_one_who_left_show_before_a_renewal() {
    let mutant = ReferenceHarness::with_mutant(Mutant::TermsReadAfterTheAnswer);
    let harness = with_longest_ttl(Duration::from_secs(18), mutant, Kind::LongTtls);
    let case = cases::named("a_grant_to_one_who_left_lasts_for_the_next_one");
    let outcome = execute(case, Arc::new(harness), case.name);
    assert!(
        matches!(&outcome, Outcome::Failed(failure) if failure.asserted),
        "{outcome}"
    );
}

fn case(body: Body) -> Case {
    Case {
        name: "a_case",
        topic: "exclusion",
        server: ServerUse::Shared,
        guarantee: None,
        body,
    }
}

/// A busy machine has all the time that its harness wants, but for a backend whose holds would expire meanwhile.
#[test]
fn the_whole_patience_is_waited_for_where_nothing_expires() {
    static WHOLE: LazyLock<Case> = LazyLock::new(|| {
        case(Body::Subject(|cx| {
            Box::pin(async {
                let (soon, patience) = (cx.freed_soon().await, cx.patience());
                ensure!(soon == patience, "{soon:?} of {patience:?}");
                Ok(())
            })
        }))
    });
    let passes = |harness| matches!(execute(&WHOLE, Arc::new(harness), WHOLE.name), Outcome::Passed);
    let (whole, short) = (ReferenceHarness::default, Duration::from_secs(15));
    assert!(passes(with_a_long_patience(whole())));
    assert!(passes(with_longest_ttl(short, whole(), Kind::Session)));
    assert!(!passes(with_longest_ttl(short, whole(), Kind::LongTtls)));
}

/// A session may end, and its holds with it, long before a ttl is over.
#[test]
fn a_ttl_alone_shows_no_two_holders_where_a_session_renews() {
    static BY_TTL: LazyLock<Case> =
        LazyLock::new(|| case(Body::Subject(|_| Box::pin(async { Err(Stop::by_ttl("a second one")) }))));
    static BELIEVED: LazyLock<Case> =
        LazyLock::new(|| case(Body::Raw(|_| Box::pin(async { Err(Stop::safety("a second one")) }))));
    let is_marked = |case: &'static Case, kind| {
        let harness = FrugalHarness::new(ReferenceHarness::default(), kind, LONGEST_TTL);
        let outcome = execute(case, Arc::new(harness), case.name);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}");
        outcome.to_string().contains("SAFETY")
    };
    assert!(is_marked(&BY_TTL, Kind::Plain));
    assert!(!is_marked(&BY_TTL, Kind::Session));
    assert!(is_marked(&BELIEVED, Kind::Session));
}
