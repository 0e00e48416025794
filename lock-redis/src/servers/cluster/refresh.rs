//! Learning from the nodes who has which slots.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::{Error, ErrorKind, Result};
use rand::seq::SliceRandom;
use redis::{Value, cmd};
use tokio::time::timeout;

use super::map::Node;
use super::slots::Range;
use super::{Inner, LOOK_AGAIN, slots};
use crate::config::hosts::Address;
use crate::connection::{Dialer, Role};
use crate::error::is_permanent;

impl Inner {
    /// Learns from the nodes who has all slots, unless the map has changed since it had this version.
    pub(super) async fn refresh(self: &Arc<Self>, version: u64) -> Result<()> {
        let _turn = self.turn.take().await;
        let question = {
            let mut map = self.map.lock();
            if map.version() != version {
                return Ok(());
            }
            map.ask()
        };
        let (said_by, mut ranges) = match self.ask_connected().await {
            Some(said) => said,
            None => self.ask_any().await?,
        };
        for range in &mut ranges {
            let address = (range.host.clone().unwrap_or_else(|| said_by.clone()), range.port);
            let (host, port) = self.config.mapped(&address);
            (range.host, range.port) = (Some(host), port);
        }
        let (before, silent, learned) = {
            let mut map = self.map.lock();
            let silent: Vec<_> = map.nodes().iter().filter(|node| node.is_silent()).cloned().collect();
            let before = (!silent.is_empty()).then(|| map.clone());
            (
                before,
                silent,
                map.learn(question, &ranges, &said_by, |address| self.connect(address)),
            )
        };
        if let Some(before) = before {
            // When the connection of a silent master ends, the map no longer has the slots that it had.
            let is_silent = |node: &Arc<Node>| silent.iter().any(|silent| Arc::ptr_eq(silent, node));
            let has_gone = |slot, node: &Arc<Node>| is_silent(node) && !self.is_master(slot, node);
            self.leases
                .suspect_in(|slot| before.master(slot).is_some_and(|node| has_gone(slot, node)));
        }
        // Those that are forgotten end their connections, without the lock.
        learned.map(drop)
    }

    /// The slots that a connected master reports.
    async fn ask_connected(&self) -> Option<(String, Vec<Range>)> {
        /// As many are asked at once.
        const SOME: usize = 3;
        let mut nodes = self.map.lock().nodes().to_vec();
        nodes.shuffle(&mut rand::rng());
        let mut asking: FuturesUnordered<_> = nodes
            .iter()
            .filter_map(|node| Some((node, node.requests.current()?)))
            .filter(|(_, session)| session.failure().is_none())
            .take(SOME)
            .map(|(node, session)| async move {
                let reply = node.requests.send(&session, &slots_command()).await;
                Some((node.address.0.clone(), known_ranges(&reply.ok()?)?))
            })
            .collect();
        let first = async {
            while let Some(answer) = asking.next().await {
                if answer.is_some() {
                    return answer;
                }
            }
            None
        };
        timeout(LOOK_AGAIN, first).await.ok().flatten()
    }

    /// The slots that any known node reports, over a connection of its own.
    async fn ask_any(&self) -> Result<(String, Vec<Range>)> {
        let mut addresses: Vec<Address> = self
            .map
            .lock()
            .nodes()
            .iter()
            .map(|node| node.address.clone())
            .collect();
        let seeds = self.seeds.iter().filter(|seed| !addresses.contains(seed));
        let seeds: Vec<Address> = seeds.cloned().collect();
        addresses.extend(seeds);
        let asking = addresses.iter().map(async |address| {
            let dialer = Dialer::new(&self.config.at_node(address), self.inbox.clone(), Role::Listener)?;
            let reply = timeout(self.config.connect_timeout(), dialer.ask(&slots_command())).await;
            let reply = reply.unwrap_or_else(|_| Err(self.unreached(Some("a node did not answer"))))?;
            Ok::<_, Error>((&address.0, reply))
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        let (mut has_none, mut why) = (false, None);
        while let Some(answer) = asking.next().await {
            match answer {
                Ok((host, reply)) => match known_ranges(&reply) {
                    Some(ranges) => return Ok((host.clone(), ranges)),
                    None => has_none = true,
                },
                Err(error) => why = Some(error),
            }
        }
        match why {
            _ if has_none => Err(self.unreached(Some("its nodes have no hash slots yet"))),
            Some(error) if !is_permanent(&error) => {
                let what = format!("no node of the Redis Cluster at {} was reached", self.names());
                Err(Error::new(ErrorKind::Unavailable, what).with_source(error))
            }
            Some(error) => Err(error),
            None => Err(self.unreached(None)),
        }
    }
}

/// `None` also for a node that has left the cluster, or has not joined it yet: it knows no slots.
fn known_ranges(reply: &Value) -> Option<Vec<Range>> {
    slots::ranges(reply).filter(|ranges| !ranges.is_empty())
}

fn slots_command() -> redis::Cmd {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    command
}
