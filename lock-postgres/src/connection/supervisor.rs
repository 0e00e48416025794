//! The one connection that many share: made when it is needed, and anew when it has ended.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};
use lock_kit::backoff::DIAL_SPACING;
use lock_kit::panics::catch;
use lock_kit::runtime::RuntimeCheck;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Connection, Dialer};

/// A connection that is made anew when it has ended, falls silent, or runs on a runtime that nobody drives.
#[derive(Debug)]
pub(crate) struct Supervisor {
    dialer: Arc<Dialer>,
    slot: Arc<Mutex<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Arc<Connection>>,
    dialling: Option<Dialling>,
    /// When it was last dialled.
    begun: Option<Instant>,
    was_used: bool,
}

/// An attempt to connect, which all share who need the connection.
#[derive(Clone, Debug)]
struct Dialling {
    check: Arc<RuntimeCheck>,
    done: watch::Receiver<Option<Result<Arc<Connection>>>>,
}

impl Supervisor {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self {
            dialer,
            slot: Arc::default(),
        }
    }

    /// Whether nobody has ever asked for the connection.
    pub(crate) fn is_unused(&self) -> bool {
        !self.slot.lock().was_used
    }

    /// The connection, if it is there and has nothing to do.
    pub(crate) fn idle(&self) -> Option<Arc<Connection>> {
        self.live().filter(|live| live.is_here() && live.is_idle())
    }

    /// The connection. Returns at once if it is there.
    ///
    /// # Errors
    /// Those of the [`Dialer`], and [`ErrorKind::Unavailable`] on a runtime that is shutting down; all as not executed.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        loop {
            if let Some(live) = self.live() {
                if live.is_here() || live.is_driven().await {
                    if live.is_silent() {
                        // The next ones get the new one, as soon as it is there.
                        drop(self.dial());
                    }
                    return Ok(live);
                }
                self.leave(&live);
            }
            let dialling = self.dial()?;
            if let Some(dialled) = dialling.result().await {
                return dialled;
            }
            if dialling.check.is_here() {
                let what = "the tokio runtime is shutting down, so no connection to PostgreSQL can be made on it";
                return Err(Error::new(ErrorKind::Unavailable, what).not_executed());
            }
            self.give_up(&dialling);
        }
    }

    fn live(&self) -> Option<Arc<Connection>> {
        let slot = self.slot.lock();
        slot.current.clone().filter(|current| !current.has_ended())
    }

    /// Has the next one who asks connect anew.
    fn leave(&self, connection: &Arc<Connection>) {
        let left = self
            .slot
            .lock()
            .current
            .take_if(|current| Arc::ptr_eq(current, connection));
        drop(left);
    }

    /// Has the next one who asks make an attempt of its own.
    fn give_up(&self, dialling: &Dialling) {
        let given_up = self
            .slot
            .lock()
            .dialling
            .take_if(|current| Arc::ptr_eq(&current.check, &dialling.check));
        drop(given_up);
    }

    /// The attempt that is under way, or a new one on this runtime.
    fn dial(&self) -> Result<Dialling> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::Misconfigured, "call this within a tokio runtime").not_executed())?;
        let mut slot = self.slot.lock();
        slot.was_used = true;
        if let Some(dialling) = slot.dialling.as_ref().filter(|dialling| dialling.is_under_way()) {
            return Ok(dialling.clone());
        }
        let (result, done) = watch::channel(None);
        let check = Arc::new(RuntimeCheck::new());
        let dialling = Dialling {
            check: check.clone(),
            done,
        };
        slot.dialling = Some(dialling.clone());
        let earliest = slot.begun.map(|begun| begun + DIAL_SPACING);
        let (dialer, shared) = (self.dialer.clone(), self.slot.clone());
        runtime.spawn(async move {
            let dial = async {
                if let Some(earliest) = earliest {
                    sleep_until(earliest).await;
                }
                shared.lock().begun = Some(Instant::now());
                catch(dialer.dial()).await
            };
            let dialled = check.watch(dial).await.unwrap_or_else(|panic| {
                let error = Error::new(ErrorKind::Unexpected, "connecting to PostgreSQL panicked");
                Err(error.with_source(panic).not_executed())
            });
            let left = shared.lock().end(&check, &dialled);
            drop(left);
            result.send_replace(Some(dialled));
        });
        Ok(dialling)
    }
}

impl Slot {
    /// Takes what an attempt ended with, and returns the connection that is left for it. One that was given up may end late: its
    /// connection would run where nobody drives it.
    fn end(&mut self, attempt: &Arc<RuntimeCheck>, dialled: &Result<Arc<Connection>>) -> Option<Arc<Connection>> {
        let ended = self.dialling.take_if(|current| Arc::ptr_eq(&current.check, attempt));
        match (ended, dialled) {
            (Some(_), Ok(connection)) => self.current.replace(connection.clone()),
            _ => None,
        }
    }
}

impl Dialling {
    /// Whether its task is there, and has no result.
    fn is_under_way(&self) -> bool {
        self.done.has_changed().is_ok_and(|done| !done)
    }

    /// `None` if its runtime has ended or is not driven.
    async fn result(&self) -> Option<Result<Arc<Connection>>> {
        let mut done = self.done.clone();
        tokio::select! {
            biased;
            done = done.wait_for(Option::is_some) => done.ok()?.clone(),
            () = self.check.undriven() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::coop::unconstrained;

    use super::*;
    use crate::config::PostgresConfig;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn supervisor(port: u16) -> Supervisor {
        let url = format!("postgres://app@127.0.0.1:{port}/app");
        Supervisor::new(Arc::new(Dialer::new(PostgresConfig::from_url(&url).unwrap())))
    }

    fn poll_once(asked: impl Future<Output = Result<Arc<Connection>>>) -> Poll<Result<Arc<Connection>>> {
        pin!(unconstrained(asked)).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_runtime_that_shuts_down_makes_no_connection() {
        let ended = runtime();
        let handle = ended.handle().clone();
        drop(ended);
        let _within = handle.enter();
        let supervisor = supervisor(1);
        let Poll::Ready(Err(error)) = poll_once(supervisor.connection()) else {
            panic!("it waits for a task that never runs");
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("runtime is shutting down"), "{error}");
        assert_eq!(supervisor.slot.lock().begun, None, "the next one would be put off");
    }

    #[test]
    fn an_attempt_on_an_idle_runtime_keeps_nobody_waiting() {
        let (idle, driven) = (runtime(), runtime());
        driven.block_on(async {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let supervisor = supervisor(server.local_addr().unwrap().port());
            {
                let _within = idle.enter();
                assert!(poll_once(supervisor.connection()).is_pending());
            }
            let asked = supervisor.connection();
            tokio::select! {
                answered = asked => panic!("nobody answers: {answered:?}"),
                accepted = server.accept() => drop(accepted.unwrap()),
            }
        });
    }
}
