//! A peer's client as a subject of the suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance_tests::{Ask, End, State, Subject, SubjectGuard, Task, WaitLimit};
use lock_core::backend::{Capabilities, LockStatus};
use lock_core::{Error, ErrorKind, FencingToken, Release, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::process::{Pending, Process};
use crate::view::View;

/// One client, with the view of the server by the same route.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) process: Arc<Process>,
    pub(crate) view: View,
    pub(crate) namespace: String,
    pub(crate) capabilities: Capabilities,
    /// Whether a hold that the library calls uncertain counts as over.
    pub(crate) ends_uncertain: bool,
    /// Whether it has acquires that do not wait.
    pub(crate) tries: bool,
}

/// A hold that the process has.
#[derive(Debug)]
pub(crate) struct Held {
    process: Arc<Process>,
    id: u64,
    token: FencingToken,
    is_released: Arc<AtomicBool>,
    ends_uncertain: bool,
}

/// How often the process is asked whether a hold is lost.
const ASK_AGAIN: Duration = Duration::from_millis(20);

impl Peer {
    /// Starts to acquire.
    pub(crate) fn acquiring(&self, name: &str, ttl: Duration, wait: WaitLimit, fixed: bool) -> Pending {
        let wait = match wait {
            WaitLimit::Try => json!(0),
            WaitLimit::Within(time) => json!(time.as_millis().max(1)),
            WaitLimit::Forever => Value::Null,
        };
        let name = self.view.full_name(&self.namespace, name);
        let order = json!({"name": name, "ttl": ttl.as_millis(), "wait": wait, "fixed": fixed});
        self.process.order("acquire", order)
    }

    /// The hold of an acquire that was answered, or `None` if the name is taken.
    pub(crate) fn held(&self, id: u64, answer: &Value) -> Option<Held> {
        if answer["busy"] == true {
            return None;
        }
        Some(Held {
            process: self.process.clone(),
            id,
            token: token(answer["token"].as_u64()),
            is_released: Arc::default(),
            ends_uncertain: self.ends_uncertain,
        })
    }
}

/// The library's token. For a library without tokens, one that grows with time, also over processes: no case that is run on
/// such a library is about tokens.
fn token(of_library: Option<u64>) -> FencingToken {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let number = of_library.unwrap_or_else(|| {
        let now = u64::try_from(now).unwrap_or(u64::MAX / 4);
        let last = LAST.fetch_max(now, Ordering::Relaxed);
        if last < now {
            now
        } else {
            LAST.fetch_add(1, Ordering::Relaxed) + 1
        }
    });
    FencingToken::new(number).unwrap_or_else(|| panic!("no token: {number}"))
}

#[async_trait]
impl Subject for Peer {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn passes(&self) -> u32 {
        0
    }

    async fn acquire(&self, ask: &Ask) -> Result<Option<Box<dyn SubjectGuard>>> {
        let mut pending = self.acquiring(&ask.name, ask.ttl, ask.wait, ask.fixed);
        let answer = pending.answered().await?;
        let held = self.held(pending.id(), &answer);
        match (held, ask.wait) {
            (Some(held), _) => Ok(Some(Box::new(held))),
            (None, WaitLimit::Try) => Ok(None),
            (None, _) => Err(Error::new(ErrorKind::TimedOut, "it is taken")),
        }
    }

    async fn status(&self, name: &str) -> Result<LockStatus> {
        self.view.status(&self.namespace, name).await
    }

    async fn shutdown(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "no case asks for it"))
    }
}

impl Held {
    /// Extends the hold, and says for how long it is valid if the library knows.
    pub(crate) async fn extended(&self, ttl: Duration) -> Result<Option<Duration>> {
        let order = json!({"of": self.id, "ttl": ttl.as_millis()});
        let answer = self.process.order("extend", order).answered().await?;
        Ok(answer["valid"].as_u64().map(Duration::from_millis))
    }

    /// Releases the hold.
    pub(crate) async fn released(&self) -> Result<()> {
        self.is_released.store(true, Ordering::SeqCst);
        let mut releasing = self.process.order("release", json!({"of": self.id}));
        releasing.answered().await.map(drop)
    }

    /// For how long it is valid, if the library knows.
    pub(crate) fn valid(&self) -> Option<Duration> {
        match seen(&self.process, self.id, self.ends_uncertain).1 {
            Duration::MAX => None,
            valid => Some(valid),
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }
}

/// The state of a hold as the library says it, and how long it lasts.
fn seen(process: &Process, id: u64, ends_uncertain: bool) -> (State, Duration) {
    let Ok(answer) = process.ask("state", id) else {
        return (State::Lost, Duration::ZERO);
    };
    let valid = answer["valid"].as_u64().map_or(Duration::MAX, Duration::from_millis);
    match answer["state"].as_str() {
        Some("held") if !valid.is_zero() => (State::Held, valid),
        Some("suspect") if !ends_uncertain => (State::Suspect, valid),
        _ => (State::Lost, Duration::ZERO),
    }
}

#[async_trait]
impl SubjectGuard for Held {
    fn token(&self) -> FencingToken {
        self.token
    }

    fn state(&self) -> State {
        seen(&self.process, self.id, self.ends_uncertain).0
    }

    fn valid_for(&self) -> Duration {
        seen(&self.process, self.id, self.ends_uncertain).1
    }

    async fn lost(&self) {
        while self.state() != State::Lost {
            sleep(ASK_AGAIN).await;
        }
    }

    fn watch(&self) -> Task<End> {
        let (process, id, is_released) = (self.process.clone(), self.id, self.is_released.clone());
        let ends_uncertain = self.ends_uncertain;
        Box::pin(async move {
            while seen(&process, id, ends_uncertain).0 != State::Lost {
                sleep(ASK_AGAIN).await;
            }
            match is_released.load(Ordering::SeqCst) {
                true => End::Released,
                false => End::Lost,
            }
        })
    }

    async fn run(&self, work: Task<()>) -> bool {
        if self.state() == State::Lost {
            return false;
        }
        tokio::select! {
            () = work => true,
            () = self.lost() => false,
        }
    }

    async fn extend(&self, ttl: Duration) -> Result<()> {
        self.extended(ttl).await.map(drop)
    }

    async fn release(self: Box<Self>) -> Result<Release> {
        self.released().await.map(|()| Release::Released)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_released.swap(true, Ordering::SeqCst) {
            drop(self.process.order("release", json!({"of": self.id})));
        }
    }
}
