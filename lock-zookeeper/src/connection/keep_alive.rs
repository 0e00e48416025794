//! Keeps one session alive: its heartbeats, and a new connection when one breaks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, ErrorKind};
use lock_kit::backoff::DIAL_SPACING;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_client::{Error as DriverError, SessionState};

use super::backoff::{Backoff, MAX_DELAY, delays};
use super::dial::{PROBE_AFTER, dial};
use super::driver::{Connection, DialError};
use super::establish::closed;
use super::granted;
use super::heartbeat::{self, Heartbeat};
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::probe::{ServerMode, diagnose, server_mode};

/// The time between two such probes.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

impl Session {
    /// Sends heartbeats, arms and suspects leases, and connects again, until the session has ended. Returns why.
    pub(crate) async fn keep_alive(&self, config: &ZooKeeperConfig, backoff: &Backoff) -> DriverError {
        let mut dialed = Instant::now();
        loop {
            let Ok(connection) = self.connected().await else {
                return DriverError::ClientClosed;
            };
            let state = tokio::select! {
                // First, so that every answer counted below came from the server it was sent to.
                biased;
                state = connection.ended() => state,
                never = self.send_heartbeats(&connection, config) => match never {},
            };
            self.set_outage(Some(error::lock_error(DriverError::ConnectionLoss)));
            self.disconnect();
            self.suspect();
            if state == SessionState::Expired {
                return self.ended_by(DriverError::SessionExpired);
            }
            let connected = tokio::select! {
                connected = self.connect_again(config, backoff, &mut dialed) => connected,
                never = self.diagnose_outage(config) => match never {},
            };
            match connected {
                Ok(connection) => self.connection.send_replace(Some(Arc::new(connection))),
                Err(end) => return self.ended_by(end),
            };
            self.set_outage(None);
        }
    }

    /// The server or the driver says that the session has ended: that is why its leases are lost.
    fn ended_by(&self, end: DriverError) -> DriverError {
        // One that was ended here, since the server granted another timeout, may have that one to live.
        if matches!(end, DriverError::SessionExpired) && !self.has_ended() {
            self.note_expired();
        }
        self.suspect_because(&error::lock_error(end.clone()));
        end
    }

    /// A new connection, on which nothing is older than what this session has seen. Fails when the server says that the
    /// session has ended, or grants it another timeout, by which it is ended here.
    ///
    /// `dialed` is when the last attempt began.
    async fn connect_again(
        &self,
        config: &ZooKeeperConfig,
        backoff: &Backoff,
        dialed: &mut Instant,
    ) -> Result<Connection, DriverError> {
        let mut delays = delays(self.interval());
        // At once, unless its connections end as soon as they begin.
        sleep_until(*dialed + DIAL_SPACING).await;
        loop {
            *dialed = Instant::now();
            let failure = match dial(config, Some(&self.info), |_| {}).await {
                Ok(connection) if connection.client.session_timeout() != self.timeout => {
                    self.end_for_its_timeout(connection).await;
                    return Err(DriverError::SessionExpired);
                }
                Ok(connection) => match self.sync(&connection).await {
                    Ok(()) => return Ok(connection),
                    Err(error) => {
                        // Not dropped: that would close the session.
                        connection.abort();
                        error
                    }
                },
                Err(DialError::Driver(error)) => error,
                Err(DialError::Setup(why)) => {
                    self.publish_outage(why);
                    backoff.wait(*dialed, delays.next().unwrap_or(MAX_DELAY)).await;
                    continue;
                }
            };
            // Any other failure leaves the session's state open: a server that restarts counts its sessions anew.
            match failure {
                DriverError::SessionExpired => return Err(failure),
                // The password may be about to change, or another server may take it.
                DriverError::AuthFailed if self.may_carry_holds() => self.publish_outage(error::lock_error(failure)),
                DriverError::AuthFailed => return Err(failure),
                _ => {}
            }
            backoff.wait(*dialed, delays.next().unwrap_or(MAX_DELAY)).await;
        }
    }

    fn publish_outage(&self, why: Error) {
        self.suspect_because(&why);
        self.set_outage(Some(why));
    }

    /// Ends the session, to which the server grants another timeout over this connection. It counts by that one from now on,
    /// while the leases are armed for the earlier one. So they are lost before the session is closed.
    async fn end_for_its_timeout(&self, connection: Connection) {
        let change = granted::change(self.timeout, connection.client.session_timeout());
        tracing::warn!(target: "polylock", "{change}");
        self.suspect_because(&Error::new(ErrorKind::Unavailable, change));
        self.end();
        let closing = closed(Arc::new(connection));
        // What is not closed by then is left to the driver, and to the session's expiry.
        let _ = timeout(heartbeat::answer_limit(self.timeout), closing).await;
    }

    /// Keeps finding out why there is no connection.
    async fn diagnose_outage(&self, config: &ZooKeeperConfig) -> Infallible {
        sleep(PROBE_AFTER).await;
        loop {
            if let Some(why) = diagnose(config, None).await.why {
                self.suspect_because(&error::connection_lost(why.clone()));
                self.set_outage(Some(why));
            }
            sleep(PROBE_AGAIN).await;
        }
    }

    /// Sends heartbeats at their times, even while earlier ones are unanswered: a slow line then costs a lease no more
    /// than its delay.
    async fn send_heartbeats(&self, connection: &Connection, config: &ZooKeeperConfig) -> Infallible {
        let mut mode = None;
        let asking = server_mode(config, heartbeat::answer_limit(self.timeout));
        tokio::pin!(asking);
        let mut beats = FuturesUnordered::new();
        let mut unanswered = VecDeque::new();
        let mut answered = None;
        let mut last = Instant::now();
        let mut due = last;
        loop {
            tokio::select! {
                answer = &mut asking, if mode.is_none() => {
                    mode = Some(answer);
                    // The same server answered it.
                    if let Some(beat) = answered {
                        self.acknowledge(beat, answer);
                    }
                }
                () = sleep_until(due) => {
                    self.check_for_silence(unanswered.front());
                    let beat = Heartbeat::now();
                    let answer = self.beat(connection);
                    beats.push(async move { (beat, answer.await) });
                    unanswered.push_back(beat.at);
                    last = beat.at;
                    due = heartbeat::next(self.timeout, last, None);
                }
                Some((beat, answer)) = beats.next() => {
                    match answer {
                        Ok(()) => {
                            answered = Some(beat);
                            self.acknowledge(beat, mode.unwrap_or(ServerMode::PerhapsFollower));
                            self.set_outage(None);
                        }
                        Err(_) => self.suspect(),
                    }
                    // They are answered in order.
                    unanswered.retain(|sent| *sent > beat.at);
                    if beat.at == last {
                        due = heartbeat::next(self.timeout, last, Some(Instant::now()));
                    }
                }
            }
        }
    }

    fn check_for_silence(&self, oldest_unanswered: Option<&Instant>) {
        let silent = oldest_unanswered.map(Instant::elapsed).unwrap_or_default();
        if silent >= heartbeat::answer_limit(self.timeout) {
            let message = format!("ZooKeeper has not answered a heartbeat for {silent:?}");
            self.set_outage(Some(Error::new(ErrorKind::Unavailable, message)));
            self.suspect();
        }
    }
}
