//! The connections for what cannot be done on the connection that it is about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime;

use super::dial::{Dialer, Failure};
use super::limiter::{Gate, Turn};
use super::session::{Commits, Session, here};

/// One control connection for each runtime that needs one: nobody may depend on a runtime that is not driven.
#[derive(Debug, Default)]
pub(crate) struct Controls(Mutex<HashMap<runtime::Id, Arc<Control>>>);

/// A connection that is made when it is needed, and shared.
#[derive(Debug)]
pub(crate) struct Control {
    session: Mutex<Option<Arc<Session>>>,
    gate: Gate,
}

impl Controls {
    /// The caller's; `None` outside a runtime.
    pub(crate) fn here(&self) -> Option<Arc<Control>> {
        let here = here()?;
        let mut controls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(control) = controls.get(&here) {
            return Some(control.clone());
        }
        // Those of runtimes that have gone.
        controls.retain(|_, control| Arc::strong_count(control) > 1 || control.live().is_some());
        let control = Arc::new(Control {
            session: Mutex::default(),
            gate: Gate::serial(),
        });
        controls.insert(here, control.clone());
        Some(control)
    }
}

impl Control {
    /// The connection, if it is there.
    pub(crate) fn live(&self) -> Option<Arc<Session>> {
        self.lock().clone().filter(|session| !session.has_ended())
    }

    /// This connection broke.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        self.lock().take_if(|kept| Arc::ptr_eq(kept, session));
    }

    /// The connection, or a new one.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub(crate) async fn session(&self, dialer: &Dialer) -> Result<Arc<Session>, Failure> {
        let dialling = match self.gate.turn(|| self.live()).await? {
            Turn::Served(session) => return Ok(session),
            Turn::Dial(dialling) => dialling,
        };
        let opened = dialer.open(Commits::ByItself).await;
        if let Ok(session) = &opened {
            *self.lock() = Some(session.clone());
        }
        dialling.ended(opened.as_ref().map(|_| ()).map_err(Clone::clone));
        opened
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
