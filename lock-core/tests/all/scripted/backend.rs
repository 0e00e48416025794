//! The backend, and its holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lock_core::backend::{
    AcquireRequest, Attempt, Capabilities, DistributedLock, Hold, Lease, LockStatus, ReleaseOptions, ReleaseOutcome,
    Renewal,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};

use super::answering::proof;
use super::{Answer, Pass, Request, Script, Scripted};

#[async_trait]
impl DistributedLock for Scripted {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    async fn connect(&self) -> Result<()> {
        self.0.yields().await;
        self.0.server.connect().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let answer = self.0.answer(Request::Acquire);
        self.0.sent(Request::Acquire);
        self.log().last_request = Some(request.clone());
        if answer != Some(Answer::NotSent) {
            request.sending();
        }
        let effect = async {
            request.note_connected();
            if answer == Some(Answer::GiveUp) {
                request.given_up().await;
                return Err(Error::new(ErrorKind::Unavailable, "given up before the answer"));
            }
            // As one that sends it each time.
            let _ = request.label();
            Ok(match self.0.server.acquire(request).await? {
                Attempt::Granted(hold, armed) => {
                    let hold = self.0.hold(request.name(), request.lease(), hold);
                    Attempt::Granted(hold, proof(answer, request, armed)?)
                }
                busy => busy,
            })
        };
        self.0.run(Request::Acquire, answer, None, effect).await
    }

    fn abandon<'a, 'b, 'c>(&'a self, request: &'b AcquireRequest) -> BoxFuture<'c, Result<()>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        let answer = self.0.answer(Request::Abandon);
        assert_ne!(answer, Some(Answer::PanicAtOnce), "planned");
        Box::pin(async move {
            self.0.sent(Request::Abandon);
            let effect = self.0.server.abandon(request);
            self.0.run(Request::Abandon, answer, None, effect).await
        })
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        *self.log().count.entry(Request::Status).or_default() += 1;
        if self.0.answer(Request::Status).is_some() {
            // A question is never executed: all that a script can do is to leave it unanswered.
            std::future::pending::<()>().await;
        }
        self.0.yields().await;
        let status = self.0.server.status(name).await;
        self.0.yields().await;
        status
    }
}

impl Script {
    fn hold(self: &Arc<Self>, name: &LockName, lease: &Lease, inner: Arc<dyn Hold>) -> Arc<dyn Hold> {
        self.alive.fetch_add(1, Ordering::SeqCst);
        self.leases.lock().unwrap().push(lease.clone());
        Arc::new(ScriptedHold {
            script: self.clone(),
            name: name.clone(),
            lease: lease.clone(),
            releasing: AtomicBool::new(false),
            inner,
        })
    }
}

struct ScriptedHold {
    script: Arc<Script>,
    name: LockName,
    lease: Lease,
    releasing: AtomicBool,
    inner: Arc<dyn Hold>,
}

impl ScriptedHold {
    /// What the test does before the effect.
    async fn hook(&self, request: Request) -> Result<()> {
        let key = (request, self.name.as_str().to_owned());
        let hook = self.script.hooks.lock().unwrap().remove(&key);
        match hook {
            Some(hook) => hook(self.lease.clone()).await,
            None => Ok(()),
        }
    }
}

impl Drop for ScriptedHold {
    fn drop(&mut self) {
        self.script.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Hold for ScriptedHold {
    fn token(&self) -> FencingToken {
        self.inner.token()
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        if self.releasing.load(Ordering::SeqCst) {
            self.script.renewed_after_release.store(true, Ordering::SeqCst);
        }
        self.script.sent(Request::Renew);
        self.hook(Request::Renew).await?;
        let answer = self.script.answer(Request::Renew);
        let (not_held, effect) = (Some(Renewal::Lost), self.inner.renew(ttl));
        self.script.run(Request::Renew, answer, not_held, effect).await
    }

    async fn downgrade(&self, ttl: Duration) -> Result<Renewal> {
        self.script.sent(Request::Downgrade);
        self.hook(Request::Downgrade).await?;
        let answer = self.script.answer(Request::Downgrade);
        let (not_held, effect) = (Some(Renewal::Lost), self.inner.downgrade(ttl));
        self.script.run(Request::Downgrade, answer, not_held, effect).await
    }

    async fn release(&self, how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.releasing.store(true, Ordering::SeqCst);
        // As a driver does with its channels and timers, if not so often: more than tokio grants a task at once.
        for _ in 0..200 {
            tokio::task::coop::consume_budget().await;
        }
        self.script.sent(Request::Release);
        self.hook(Request::Release).await?;
        let answer = self.script.answer(Request::Release);
        let (not_held, effect) = (Some(ReleaseOutcome::AlreadyLost), self.inner.release(how));
        self.script.run(Request::Release, answer, not_held, effect).await
    }

    fn pass(&self, next: &Lease) -> Option<Arc<dyn Hold>> {
        let pass = *self.script.pass.lock().unwrap();
        match pass {
            Pass::Never => None,
            Pass::AsItIs => Some(self.script.hold(&self.name, next, self.inner.pass(next)?)),
            Pass::Panic => panic!("planned, in a pass"),
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl fmt::Debug for ScriptedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScriptedHold").field(&self.name).finish()
    }
}
