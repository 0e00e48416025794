//! The one connection that many share: made when it is needed, and anew when it has ended.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};
use lock_kit::backoff::DIAL_SPACING;
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
    /// Those of the [`Dialer`], as not executed.
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
            if let Some(dialled) = self.dial()?.result().await {
                return dialled;
            }
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
        slot.begun = Some(earliest.map_or_else(Instant::now, |earliest| earliest.max(Instant::now())));
        let (dialer, shared) = (self.dialer.clone(), self.slot.clone());
        runtime.spawn(async move {
            let dial = async {
                if let Some(earliest) = earliest {
                    sleep_until(earliest).await;
                }
                dialer.dial().await
            };
            let dialled = check.watch(dial).await;
            let mut slot = shared.lock();
            slot.dialling = None;
            let left = match &dialled {
                Ok(connection) => slot.current.replace(connection.clone()),
                Err(_) => None,
            };
            drop(slot);
            drop(left);
            result.send_replace(Some(dialled));
        });
        Ok(dialling)
    }
}

impl Dialling {
    /// Whether its task is there, and has no result.
    fn is_under_way(&self) -> bool {
        self.done.has_changed().is_ok_and(|done| !done)
    }

    /// `None` if its runtime has ended or is not driven.
    async fn result(mut self) -> Option<Result<Arc<Connection>>> {
        tokio::select! {
            biased;
            done = self.done.wait_for(Option::is_some) => done.ok()?.clone(),
            () = self.check.undriven() => None,
        }
    }
}
