//! The task that connects and reconnects.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::time::{Instant, sleep, timeout};

use super::dial::{Dialed, ping};
use super::{Phase, Session, Shared, State};
use crate::backoff;
use crate::error::is_final;

/// Keeps a connection up until its reign ends. A server that was never reached is given up when nobody waits for it
/// any more, or when the failure is final; one that was reached once is tried for ever.
pub(super) async fn supervise(shared: Arc<Shared>, reign: u64) {
    let reign = Reign { shared, number: reign };
    loop {
        sleep(backoff::reconnect(reign.failures())).await;
        let go_on = match reign.dial().await {
            Ok(dialed) => match reign.begin(&dialed) {
                Some(mut session) => {
                    reign.watch_over(&mut session, &dialed).await;
                    reign.shared.leases.suspect();
                    reign.change(|state| {
                        state.note_end();
                        state.phase = Phase::Connecting(None);
                    })
                }
                None => false,
            },
            Err(error) => reign.note_failure(error),
        };
        if !go_on {
            return;
        }
    }
}

/// A supervisor's right to change the state, which a newer one takes away. Left behind by a dying runtime, it says so.
struct Reign {
    shared: Arc<Shared>,
    number: u64,
}

impl Reign {
    async fn dial(&self) -> Result<Dialed, Error> {
        let limit = {
            let state = self.shared.state.borrow();
            match state.connected {
                Some(_) => self.shared.connect_timeout,
                None => state.wanted_until.saturating_duration_since(Instant::now()),
            }
        };
        timeout(limit, self.shared.dialer.dial())
            .await
            .unwrap_or_else(|_elapsed| {
                let what = format!("Redis at {} did not answer within {limit:?}", self.shared.dialer);
                Err(Error::new(ErrorKind::Unavailable, what))
            })
    }

    fn begin(&self, dialed: &Dialed) -> Option<Session> {
        let mut session = None;
        self.change(|state| {
            state.generation += 1;
            state.connected = Some(Instant::now());
            let new = Session {
                generation: state.generation,
                connection: dialed.connection.clone(),
                silent: Arc::new(AtomicU32::new(0)),
            };
            state.phase = Phase::Up(new.clone());
            session = Some(new);
        });
        self.shared.inbox.wake_all();
        session
    }

    /// Returns when the connection has ended, or is as good as that: replies come in order, so a heartbeat that goes
    /// unanswered says that everything does.
    async fn watch_over(&self, session: &mut Session, dialed: &Dialed) {
        let pause = (self.shared.response_timeout / 2).max(Duration::from_millis(1));
        loop {
            let beat = async {
                sleep(pause).await;
                ping(&mut session.connection).await
            };
            tokio::select! {
                () = dialed.ended.notified() => return,
                beat = beat => match beat {
                    Err(error) if !crate::error::is_answer(&error) => return,
                    _ => {}
                },
            }
        }
    }

    /// False where the supervisor has to end.
    fn note_failure(&self, error: Error) -> bool {
        let mut go_on = true;
        let in_charge = self.change(|state| {
            state.failures = state.failures.saturating_add(1);
            if state.connected.is_some() {
                state.phase = Phase::Down(error);
            } else if is_final(&error) || state.wanted_until <= Instant::now() {
                state.phase = Phase::Idle(Some(error));
                state.failures = 0;
                go_on = false;
            } else {
                state.phase = Phase::Connecting(Some(error));
            }
        });
        in_charge && go_on
    }

    fn failures(&self) -> u32 {
        self.shared.state.borrow().failures
    }

    /// Whether the reign lasts still, and the change was made.
    fn change(&self, change: impl FnOnce(&mut State)) -> bool {
        self.shared.state.send_if_modified(|state| {
            let in_charge = state.reign == self.number;
            if in_charge {
                state.reported = Instant::now();
                change(state);
            }
            in_charge
        })
    }
}

impl Drop for Reign {
    fn drop(&mut self) {
        self.change(|state| {
            if !matches!(state.phase, Phase::Idle(_)) {
                state.phase = Phase::Idle(None);
            }
        });
    }
}
