//! Re-entry as a table of guards beside the locks, for the mutants that get it wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, ErrorKind, FencingToken, ReentryKey, Release, Result};

use crate::mutant::Mutant;
use crate::subject::{Ask, End, State, Subject, SubjectGuard, Task};

/// The holds by re-entry key.
#[derive(Debug, Default)]
pub(super) struct Keys {
    asks: Mutex<HashMap<(String, ReentryKey), Ask>>,
    holds: Mutex<HashMap<(String, ReentryKey), Weak<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    guard: Mutex<Option<Box<dyn SubjectGuard>>>,
    token: FencingToken,
    shares: AtomicUsize,
    mutant: Mutant,
}

#[derive(Debug)]
struct Share {
    of: Arc<Shared>,
    let_go: AtomicBool,
}

impl Keys {
    /// The first ask for the hold with this ask's key.
    pub(super) fn first_ask(&self, ask: &Ask) -> Option<Ask> {
        lock(&self.asks).get(&key(ask)?).cloned()
    }

    pub(super) fn remember(&self, ask: &Ask) {
        if let Some(key) = key(ask) {
            lock(&self.asks).entry(key).or_insert_with(|| ask.clone());
        }
    }

    /// A share in whatever is in the table, or a new entry.
    pub(super) async fn acquire(
        &self,
        whole: &dyn Subject,
        ask: &Ask,
        mutant: Mutant,
    ) -> Result<Option<Box<dyn SubjectGuard>>> {
        let key = key(ask);
        let known = key.as_ref().and_then(|key| lock(&self.holds).get(key)?.upgrade());
        if let Some(shared) = known.filter(|shared| lock(&shared.guard).is_some()) {
            shared.shares.fetch_add(1, Ordering::SeqCst);
            return Ok(Some(Share::boxed(shared)));
        }
        let Some(guard) = whole.acquire(ask).await? else {
            return Ok(None);
        };
        let shared = Arc::new(Shared {
            token: guard.token(),
            guard: Mutex::new(Some(guard)),
            shares: AtomicUsize::new(1),
            mutant,
        });
        if let Some(key) = key {
            lock(&self.holds).insert(key, Arc::downgrade(&shared));
        }
        Ok(Some(Share::boxed(shared)))
    }
}

fn key(ask: &Ask) -> Option<(String, ReentryKey)> {
    Some((ask.name.clone(), ask.reentry.clone()?))
}

impl Share {
    fn boxed(of: Arc<Shared>) -> Box<dyn SubjectGuard> {
        Box::new(Self {
            of,
            let_go: AtomicBool::new(false),
        })
    }

    /// The guard, if it is to end now; and whether others share it.
    fn let_go(&self) -> (Option<Box<dyn SubjectGuard>>, bool) {
        if self.let_go.swap(true, Ordering::SeqCst) {
            return (None, false);
        }
        let is_shared = self.of.shares.fetch_sub(1, Ordering::SeqCst) > 1;
        let ends = !is_shared || self.of.mutant == Mutant::FirstReleaseEndsAll;
        (lock(&self.of.guard).take_if(|_| ends), is_shared)
    }
}

#[async_trait]
impl SubjectGuard for Share {
    fn token(&self) -> FencingToken {
        self.of.token
    }

    fn state(&self) -> State {
        lock(&self.of.guard)
            .as_ref()
            .map_or(State::Released, |guard| guard.state())
    }

    fn valid_for(&self) -> Duration {
        lock(&self.of.guard)
            .as_ref()
            .map_or(Duration::ZERO, |guard| guard.valid_for())
    }

    async fn lost(&self) {
        if self.watch().await == End::Released {
            std::future::pending().await
        }
    }

    fn watch(&self) -> Task<End> {
        match &*lock(&self.of.guard) {
            Some(guard) => guard.watch(),
            None => Box::pin(std::future::ready(End::Released)),
        }
    }

    async fn run(&self, work: Task<()>) -> bool {
        tokio::select! {
            () = work => true,
            () = self.lost() => false,
        }
    }

    async fn extend(&self, _ttl: Duration) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "what is shared is not extended"))
    }

    async fn release(self: Box<Self>) -> Result<Release> {
        match self.let_go() {
            (_, true) => Ok(Release::StillShared),
            (Some(guard), false) => guard.release().await,
            (None, false) => Ok(Release::Released),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.let_go());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
