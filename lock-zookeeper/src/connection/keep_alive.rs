//! The heartbeats of a session, and how it goes on over one connection after the other.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, ErrorKind};
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Error as Driver, SessionState};

use super::backoff::{LONGEST, SHORTEST, Wanted, rests};
use super::driver::Connection;
use super::heartbeat::{self, Answerer, Beat};
use super::session::Session;
use crate::config::ZooKeeperConfig;
use crate::error;
use crate::probe::{diagnose, is_standalone};

/// How long there may be no connection before we look why.
const PROBE_AFTER: Duration = Duration::from_millis(300);
/// Between two such looks.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

impl Session {
    /// Sends heartbeats, arms and suspects leases, and connects again, until the session has ended; says why.
    pub(crate) async fn keep_alive(&self, config: &ZooKeeperConfig, wanted: &Wanted) -> Driver {
        let mut dialed = Instant::now();
        loop {
            let Ok(connection) = self.connected().await else {
                return Driver::ClientClosed;
            };
            let state = tokio::select! {
                // First: what is answered after this was answered by the server to which it was sent.
                biased;
                state = connection.ended() => state,
                never = self.beat(&connection, config.servers()) => match never {},
            };
            self.set_outage(Some(error::from_driver(Driver::ConnectionLoss)));
            self.cut();
            self.suspect();
            match state {
                SessionState::Expired => return Driver::SessionExpired,
                SessionState::AuthFailed => return Driver::AuthFailed,
                _ => {}
            }
            let connected = tokio::select! {
                connected = self.connect_again(config, wanted, &mut dialed) => connected,
                never = self.explain(config.servers()) => match never {},
            };
            match connected {
                Ok(connection) => self.connection.send_replace(Some(Arc::new(connection))),
                Err(end) => return end,
            };
            self.set_outage(None);
        }
    }

    /// A new connection, on which nothing is older than what this session has seen. Fails when the server says that the
    /// session has ended.
    ///
    /// `dialed` is when the last attempt began.
    async fn connect_again(
        &self,
        config: &ZooKeeperConfig,
        wanted: &Wanted,
        dialed: &mut Instant,
    ) -> Result<Connection, Driver> {
        let mut rests = rests(self.interval());
        // At once, unless its connections end as soon as they begin.
        sleep_until(*dialed + SHORTEST).await;
        loop {
            *dialed = Instant::now();
            let failure = match Connection::dial(config, Some(&self.info)).await {
                Ok(connection) => match self.sync(&connection).await {
                    Ok(()) => return Ok(connection),
                    Err(error) => {
                        // Not dropped: that would close the session.
                        connection.cut();
                        error
                    }
                },
                Err(error) => error,
            };
            // Nobody else knows: a server that restarts counts the sessions anew.
            if matches!(failure, Driver::SessionExpired | Driver::AuthFailed) {
                return Err(failure);
            }
            wanted.rest(*dialed, rests.next().unwrap_or(LONGEST)).await;
        }
    }

    /// Finds out why there is no connection.
    async fn explain(&self, servers: &[String]) -> Infallible {
        sleep(PROBE_AFTER).await;
        loop {
            if let Some(why) = diagnose(servers).await {
                self.set_outage(Some(why));
            }
            sleep(PROBE_AGAIN).await;
        }
    }

    /// Sends heartbeats at their times, whether the earlier ones are answered or not: a slow way takes nothing from a
    /// lease but its delay.
    async fn beat(&self, connection: &Connection, servers: &[String]) -> Infallible {
        let mut answerer = None;
        let learning = is_standalone(servers, heartbeat::patience(self.timeout));
        tokio::pin!(learning);
        let mut beats = FuturesUnordered::new();
        let mut unanswered = VecDeque::new();
        let mut last = Instant::now();
        let mut due = last;
        loop {
            tokio::select! {
                is_standalone = &mut learning, if answerer.is_none() => {
                    answerer = Some(if is_standalone { Answerer::Standalone } else { Answerer::PerhapsFollower });
                }
                () = sleep_until(due) => {
                    self.look_for_silence(unanswered.front());
                    let beat = Beat::now();
                    let sync = connection.client.sync(&self.root);
                    beats.push(async move { (beat, sync.await) });
                    unanswered.push_back(beat.at);
                    last = beat.at;
                    due = heartbeat::next(self.timeout, last, None);
                }
                Some((beat, answer)) = beats.next() => {
                    match answer {
                        Ok(()) => {
                            self.acknowledge(beat, answerer.unwrap_or(Answerer::PerhapsFollower));
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

    fn look_for_silence(&self, oldest_unanswered: Option<&Instant>) {
        let silent = oldest_unanswered.map(Instant::elapsed).unwrap_or_default();
        if silent >= heartbeat::patience(self.timeout) {
            let message = format!("ZooKeeper has not answered a heartbeat for {silent:?}");
            self.set_outage(Some(Error::new(ErrorKind::Unavailable, message)));
            self.suspect();
        }
    }

    fn set_outage(&self, why: Option<Error>) {
        self.outage.send_if_modified(|outage| {
            let is_news = outage.is_some() || why.is_some();
            *outage = why;
            is_news
        });
    }
}
