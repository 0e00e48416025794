//! Connecting to the Redis that the Sentinels call the master.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::{Error, ErrorKind, Guarantee, Result, Verdict};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use tokio::sync::watch;
use tokio::time::timeout;

use super::dial::{Dial, Dialed, Dialer};
use super::inbox::Inbox;
use super::opened::Role;
use crate::config::hosts::Address;
use crate::config::{RedisConfig, Sentinels};
use crate::probe::Finding;
use answers::{Answers, Named};
use watcher::Watcher;

mod answers;
mod watcher;

/// The time that the other Sentinels have to answer after the first one.
const PATIENCE: Duration = Duration::from_millis(100);

/// More servers than any master has replicas. Those whose addresses change would add up.
const DIALERS: usize = 16;

/// Connects to the master. Each Sentinel is asked over a connection of its own, which lasts, so that it can announce failovers.
pub(super) struct SentinelDialer {
    config: RedisConfig,
    sentinels: Sentinels,
    inbox: Arc<Inbox>,
    watchers: Vec<Watcher>,
    answers: watch::Sender<Answers>,
    /// One dialer for each of the last masters: it reports its findings once.
    dialers: Mutex<Vec<(Address, Arc<Dialer>)>>,
}

impl SentinelDialer {
    pub(super) fn new(config: &RedisConfig, sentinels: &Sentinels, inbox: Arc<Inbox>) -> Result<Self> {
        let servers = sentinels.servers.iter();
        let watchers = servers.map(|address| Watcher::new(config, sentinels, address));
        Ok(Self {
            config: config.clone(),
            sentinels: sentinels.clone(),
            inbox,
            watchers: watchers.collect::<Result<_>>()?,
            answers: watch::Sender::new(Answers::new(sentinels.servers.len())),
            dialers: Mutex::default(),
        })
    }

    /// Asks all Sentinels.
    async fn find_master(&self) -> Result<Named> {
        let mut answers = self.answers.subscribe();
        let mut round = 0;
        self.answers.send_modify(|answers| {
            answers.round += 1;
            round = answers.round;
        });
        // Cannot fail: the sender is ours.
        let _ = answers.wait_for(|answers| answers.have_begun(round)).await;
        let _ = timeout(PATIENCE, answers.wait_for(|answers| answers.are_complete(round))).await;
        let master = self.answers.borrow().decide(&self.sentinels.master, round)?;
        self.answers
            .send_modify(|answers| answers.chosen = Some((round, master.clone())));
        Ok(master)
    }

    async fn dial_master(&self, master: &Named) -> Result<Dialed> {
        let dialer = self.dialer(&master.address)?;
        let mut dialed = dialer.dial().await.map_err(|error| {
            let name = &self.sentinels.master;
            let what = format!("the server at {dialer} that the Sentinels call the master {name} does not serve");
            Error::new(error.kind(), what).with_source(error)
        })?;
        let role = role(&mut dialed.connection).await;
        match role.map_err(|error| dialer.lock_error(error))?.as_str() {
            "master" => Ok(dialed),
            _ => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the server at {dialer} that the Sentinels call the master {} is a replica: a failover may be under way",
                    self.sentinels.master
                ),
            )),
        }
    }

    /// The dialer of the master that was chosen last.
    fn chosen(&self) -> Option<Arc<Dialer>> {
        let chosen = self.answers.borrow().chosen.clone();
        chosen.and_then(|(_, master)| self.dialer(&master.address).ok())
    }

    fn dialer(&self, address: &Address) -> Result<Arc<Dialer>> {
        let address = &self.config.mapped(address);
        // Every critical section leaves it whole.
        let mut dialers = self.dialers.lock();
        let dialer = match dialers.iter().position(|(of, _)| of == address) {
            Some(known) => dialers.remove(known).1,
            None => {
                let config = self.config.at_node(address);
                Arc::new(Dialer::new(&config, self.inbox.clone(), Role::Alone)?)
            }
        };
        if dialers.len() == DIALERS {
            dialers.remove(0);
        }
        dialers.push((address.clone(), dialer.clone()));
        Ok(dialer)
    }
}

#[async_trait]
impl Dial for SentinelDialer {
    async fn dial(&self) -> Result<Dialed> {
        loop {
            let master = self.find_master().await?;
            tokio::select! {
                biased;
                dialed = self.dial_master(&master) => return dialed,
                // It may not answer for long.
                () = self.moved() => {}
            }
        }
    }

    fn findings(&self) -> Vec<Finding> {
        self.chosen().map(|dialer| dialer.findings()).unwrap_or_default()
    }

    fn keeps(&self, guarantee: Guarantee) -> Verdict {
        match self.chosen() {
            Some(dialer) => dialer.keeps(guarantee),
            None => Verdict::unknown("no master was reached yet", "connect"),
        }
    }

    async fn watch(&self) -> Infallible {
        let watching = self.watchers.iter().enumerate();
        join_all(watching.map(|(index, watcher)| watcher.watch(index, &self.answers))).await;
        // There is at least one, which watches for ever.
        std::future::pending().await
    }

    async fn moved(&self) {
        let mut answers = self.answers.subscribe();
        // Cannot fail: the sender is ours.
        let _ = answers.wait_for(Answers::have_moved).await;
    }
}

impl fmt::Display for SentinelDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.sentinels.master;
        match &self.answers.borrow().chosen {
            Some((
                _,
                Named {
                    address: (host, port), ..
                },
            )) => write!(f, "{host}:{port} (master {name})"),
            None => {
                let servers = self.sentinels.servers.iter();
                let servers: Vec<String> = servers.map(|(host, port)| format!("{host}:{port}")).collect();
                write!(f, "{} (Sentinels of the master {name})", servers.join(","))
            }
        }
    }
}

/// Asks a server for its role.
async fn role(connection: &mut MultiplexedConnection) -> redis::RedisResult<String> {
    let role = connection.send_packed_command(&cmd("ROLE")).await?.extract_error()?;
    match role {
        Value::Array(parts) => {
            redis::from_redis_value(parts.into_iter().next().unwrap_or(Value::Nil)).map_err(Into::into)
        }
        _ => Err((redis::ErrorKind::Parse, "ROLE was not answered with a list").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_servers_are_remembered_and_no_more() {
        let config = RedisConfig::sentinel([("s1", 26379)], "m");
        let sentinels = config.sentinels().expect("it has some");
        let dialer = SentinelDialer::new(&config, sentinels, Arc::new(Inbox::new(config.prefix())));
        let dialer = dialer.expect("a good configuration");
        let of = |number: usize| dialer.dialer(&(format!("pod-{number}"), 6379)).expect("a good address");
        let first = of(0);
        for number in 1..100 {
            of(number);
            assert!(Arc::ptr_eq(&first, &of(0)), "it is used again and again");
        }
        assert_eq!(dialer.dialers.lock().len(), DIALERS);
    }
}
