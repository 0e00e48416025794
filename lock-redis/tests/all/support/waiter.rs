//! A waiter for a lock, on a task of its own.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::{RequestControl, RequestOptions, Terms};
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock, Hold};
use lock_redis::{RedisBackend, RedisConfig};
use testbed::happens;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::proxy::Proxy;
use super::{AT_MOST, Fixture, Proxied, eventually, name};

pub(crate) struct Waiter {
    pub(crate) request: AcquireRequest,
    pub(crate) control: RequestControl,
    backend: RedisBackend,
    task: JoinHandle<lock_core::Result<Attempt>>,
}

impl Waiter {
    pub(crate) fn start(backend: &RedisBackend, of: &str, ttl: Duration) -> Self {
        let (request, control) = RequestOptions::new(name(of), Terms::new(ttl)).start();
        Self::of(backend, (request, control))
    }

    /// A waiter that has its queue entry, behind all that were there.
    pub(crate) async fn queued(fixture: &Fixture, backend: &RedisBackend, of: &str, ttl: Duration) -> Self {
        let waiter = Self::start(backend, of, ttl);
        let id = waiter.id();
        eventually("it has its entry", async || fixture.queue(of).await.contains(&id)).await;
        waiter
    }

    /// One that has its queue entry, or the name: on a busy machine it may come when whatever kept the name is over.
    pub(crate) async fn come(fixture: &Fixture, backend: &RedisBackend, of: &str, ttl: Duration) -> Self {
        let waiter = Self::start(backend, of, ttl);
        let id = waiter.id();
        eventually("it has its entry or the name", async || {
            !waiter.is_waiting() || fixture.queue(of).await.contains(&id)
        })
        .await;
        waiter
    }

    pub(crate) fn of(backend: &RedisBackend, (request, control): (AcquireRequest, RequestControl)) -> Self {
        let task = tokio::spawn({
            let (backend, request) = (backend.clone(), request.clone());
            // As core does when the connection breaks: it asks again, unless the request was given up.
            async move {
                loop {
                    match backend.acquire(&request).await {
                        Err(error) if error.is_retryable() && !request.is_given_up() => {
                            sleep(Duration::from_millis(10)).await;
                        }
                        answer => return answer,
                    }
                }
            }
        });
        Self {
            request,
            control,
            backend: backend.clone(),
            task,
        }
    }

    pub(crate) fn id(&self) -> String {
        self.request.holder().to_string()
    }

    /// Its hold, as soon as it has one.
    pub(crate) async fn granted(self) -> Arc<dyn Hold> {
        let attempt = happens("a grant in time", self.task).await;
        match attempt.expect("no panic").expect("an answer") {
            Attempt::Granted(hold, _) => hold,
            other => panic!("{:?} was not granted: {other:?}", self.request),
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.task.is_finished()
    }

    /// Gives up, and abandons.
    pub(crate) async fn leave(self) {
        self.control.give_up();
        let ended = happens("it ends soon", self.task).await;
        drop(ended.expect("no panic"));
        self.backend.abandon(&self.request).await.expect("an answer");
    }
}

/// A waiter that hangs: nothing gets from or to it, while the server takes it for connected.
pub(crate) struct Hung {
    pub(crate) waiter: Waiter,
    pub(crate) proxy: Proxy,
    pub(crate) backend: RedisBackend,
}

impl Hung {
    pub(crate) async fn queued(fixture: &Fixture, of: &str, ttl: Duration) -> Self {
        let patient = |config: RedisConfig| config.with_response_timeout(AT_MOST);
        let Proxied { proxy, backend } = Proxied::new(fixture, patient).await;
        let waiter = Waiter::queued(fixture, &backend, of, ttl).await;
        proxy.hold_requests();
        proxy.hold_answers();
        Self { waiter, proxy, backend }
    }
}
