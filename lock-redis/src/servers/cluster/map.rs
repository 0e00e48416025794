//! The masters of a cluster, as far as this process knows them, with the connections to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lock_core::Result;
use tokio::time::Instant;

use super::slots::Range;
use crate::config::RedisConfig;
use crate::config::hosts::Address;
use crate::connection::inbox::Inbox;
use crate::connection::{Connection, Leases, Role};
use crate::names::SLOTS;

/// A master of a cluster.
pub(crate) struct Node {
    pub(super) address: Address,
    pub(super) requests: Arc<Connection>,
    pub(super) wake_ups: Connection,
}

impl Node {
    /// Does no I/O.
    pub(super) fn new(
        address: &Address,
        config: &RedisConfig,
        inbox: &Arc<Inbox>,
        generations: &Arc<AtomicU64>,
        leases: Leases,
    ) -> Result<Self> {
        let config = &config.at_node(address);
        let connection = |role, leases| Connection::of_role(role, config, inbox.clone(), generations.clone(), leases);
        Ok(Self {
            address: address.clone(),
            requests: Arc::new(connection(Role::Master, leases)?),
            // No hold depends on it.
            wake_ups: connection(Role::Listener, Leases::default())?,
        })
    }
}

impl Node {
    pub(crate) fn host(&self) -> &str {
        &self.address.0
    }

    /// True if it was asked and has not replied for a while.
    pub(super) fn is_silent(&self) -> bool {
        let session = self.requests.current();
        session.is_some_and(|session| session.failure().is_some())
    }

    /// True if this process hears the messages that the node publishes on this channel.
    pub(crate) fn is_listening(&self, channel: &str) -> bool {
        self.wake_ups.is_listening(channel)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)
    }
}

/// The map from hash slots to masters.
#[derive(Clone, Debug)]
pub(super) struct Map {
    /// Counts changes.
    version: u64,
    /// Counts the questions to nodes who has all slots.
    asked: u64,
    /// The newest one whose answer was learned.
    answered: u64,
    nodes: Vec<Arc<Node>>,
    /// Masters to which single requests were sent on, with or without slots.
    sent_on: Vec<SentOn>,
    /// How long one of them is kept after that, although it has no slots.
    kept_for: Duration,
    /// By slot, the index of its master; [`NOBODY`]: none is known.
    masters: Box<[u16]>,
}

#[derive(Clone, Debug)]
struct SentOn {
    to: Arc<Node>,
    /// The last time.
    at: Instant,
}

const NOBODY: u16 = u16::MAX;

impl Map {
    pub(super) fn new(kept_for: Duration) -> Self {
        Self {
            version: 0,
            asked: 0,
            answered: 0,
            nodes: Vec::new(),
            sent_on: Vec::new(),
            kept_for,
            masters: vec![NOBODY; usize::from(SLOTS)].into(),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn master(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(self.masters[usize::from(slot)]))
    }

    /// The node at this address, to which a request is sent on now. It may have no slot.
    pub(super) fn node(&mut self, address: &Address, make: impl FnOnce(&Address) -> Result<Node>) -> Result<Arc<Node>> {
        let at = Instant::now();
        let to = self.known_or(address, make)?;
        match self.sent_on.iter_mut().find(|sent_on| Arc::ptr_eq(&sent_on.to, &to)) {
            Some(sent_on) => sent_on.at = at,
            None => self.sent_on.push(SentOn { to: to.clone(), at }),
        }
        Ok(to)
    }

    fn known_or(&self, address: &Address, make: impl FnOnce(&Address) -> Result<Node>) -> Result<Arc<Node>> {
        let mut known = self.nodes.iter().chain(self.sent_on.iter().map(|sent_on| &sent_on.to));
        match known.find(|node| node.address == *address) {
            Some(known) => Ok(known.clone()),
            None => Ok(Arc::new(make(address)?)),
        }
    }

    /// The number that the next question who has all slots will have.
    pub(super) fn next_question(&self) -> u64 {
        self.asked + 1
    }

    /// Returns the number of a question that is asked now.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// True if the answer to this question, or to a later one, was learned.
    pub(super) fn is_answered(&self, question: u64) -> bool {
        self.answered >= question
    }

    /// Learns who has all slots, by the answer to this question, unless that to a later one is known: a runtime that was not driven for long
    /// brings an old answer. `said_by` is the host that has been asked. Returns what it drops: the former masters, and
    /// those to which no request was sent on lately.
    pub(super) fn learn(
        &mut self,
        question: u64,
        ranges: &[Range],
        said_by: &str,
        make: impl Fn(&Address) -> Result<Node>,
    ) -> Result<Vec<Arc<Node>>> {
        if self.is_answered(question) {
            return Ok(Vec::new());
        }
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut masters: Box<[u16]> = vec![NOBODY; usize::from(SLOTS)].into();
        for range in ranges {
            let address = (range.host.clone().unwrap_or_else(|| said_by.to_owned()), range.port);
            let index = match nodes.iter().position(|node| node.address == address) {
                Some(index) => index,
                None => {
                    nodes.push(self.known_or(&address, &make)?);
                    nodes.len() - 1
                }
            };
            for slot in range.first..=range.last {
                masters[usize::from(slot)] = as_index(index);
            }
        }
        self.masters = masters;
        self.version += 1;
        self.answered = question;
        let mut former = std::mem::replace(&mut self.nodes, nodes);
        let is_old = |sent_on: &mut SentOn| sent_on.at.elapsed() >= self.kept_for;
        former.extend(self.sent_on.extract_if(.., is_old).map(|sent_on| sent_on.to));
        Ok(former)
    }

    /// Learns who has one slot.
    pub(super) fn learn_one(
        &mut self,
        slot: u16,
        address: &Address,
        make: impl FnOnce(&Address) -> Result<Node>,
    ) -> Result<()> {
        let index = match self.nodes.iter().position(|node| node.address == *address) {
            Some(index) => index,
            None => {
                self.nodes.push(self.known_or(address, make)?);
                self.nodes.len() - 1
            }
        };
        self.masters[usize::from(slot)] = as_index(index);
        self.version += 1;
        Ok(())
    }
}

fn as_index(index: usize) -> u16 {
    // There are no more masters than slots.
    u16::try_from(index).unwrap_or(NOBODY)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn node(address: &Address) -> Result<Node> {
        let config = RedisConfig::new("cache", 6379);
        let inbox = Arc::new(Inbox::new(config.prefix()));
        Node::new(address, &config, &inbox, &Arc::default(), Leases::default())
    }

    fn all_of(host: &str) -> [Range; 1] {
        [Range {
            first: 0,
            last: SLOTS - 1,
            host: Some(host.to_owned()),
            port: 7000,
        }]
    }

    fn host(map: &Map, slot: u16) -> &str {
        map.master(slot).expect("it has one").host()
    }

    #[test]
    fn an_answer_to_an_earlier_question_is_not_learned() {
        let mut map = Map::new(MINUTE);
        let (earlier, later) = (map.ask(), map.ask());
        assert!(!map.is_answered(earlier));
        map.learn(later, &all_of("b"), "b", node).expect("a good address");
        let version = map.version();
        map.learn(earlier, &all_of("a"), "a", node).expect("a good address");
        assert_eq!((host(&map, 7), map.version()), ("b", version));
        assert!(map.is_answered(earlier) && map.is_answered(later));
        let next = map.ask();
        assert!(!map.is_answered(next));
        map.learn(next, &all_of("a"), "a", node).expect("a good address");
        assert_eq!(host(&map, 7), "a");
    }

    /// Each new connection to one begins its delay again.
    #[tokio::test(start_paused = true)]
    async fn a_master_without_slots_is_known_for_some_time_after_a_request_was_sent_on_to_it() {
        let mut map = Map::new(MINUTE);
        let question = map.ask();
        map.learn(question, &all_of("a"), "a", node).expect("a good address");
        let address = |host: &str| (host.to_owned(), 7000);
        let [b, c] = ["b", "c"].map(address);
        let first = map.node(&b, node).expect("a good address");
        let other = map.node(&c, node).expect("a good address");
        assert!(Arc::ptr_eq(&first, &map.node(&b, node).expect("it is known")));
        let a = map.node(&address("a"), node).expect("it is known");
        assert!(Arc::ptr_eq(&a, map.master(7).expect("it has one")));
        assert_eq!(map.nodes().len(), 1, "the others are no masters of slots");

        map.learn_one(7, &b, node).expect("it is known");
        assert!(Arc::ptr_eq(&first, map.master(7).expect("it has one")));
        let question = map.ask();
        map.learn(question, &all_of("b"), "b", node).expect("it is known");
        assert!(Arc::ptr_eq(&first, map.master(8).expect("it has one")));

        let mut is_kept_for = async |pause| {
            sleep(pause).await;
            let question = map.ask();
            let former = map.learn(question, &all_of("b"), "b", node).expect("it is known");
            assert_eq!(map.nodes().len(), 1, "no other is a master of slots");
            let is_former = former.iter().any(|node| Arc::ptr_eq(node, &other));
            let is_known = Arc::ptr_eq(&other, &map.node(&c, node).expect("a good address"));
            assert_ne!(is_former, is_known);
            is_known
        };
        for _ in 0..3 {
            assert!(is_kept_for(MINUTE * 2 / 3).await);
        }
        assert!(!is_kept_for(MINUTE).await);
    }

    /// A slot may come to it, go back, and be on its way to it once more.
    #[test]
    fn a_master_that_has_lost_its_last_slot_is_known_if_a_request_was_sent_on_to_it() {
        let mut map = Map::new(MINUTE);
        let address = |host: &str| (host.to_owned(), 7000);
        let [b, c] = ["b", "c"].map(|host| {
            map.learn_one(7, &address(host), node).expect("a good address");
            map.master(7).expect("it has one").clone()
        });
        map.node(&b.address, node).expect("it is known");
        let question = map.ask();
        map.learn(question, &all_of("a"), "a", node).expect("a good address");
        assert_eq!(map.nodes().len(), 1);
        assert!(Arc::ptr_eq(&b, &map.node(&b.address, node).expect("it is known")));
        assert!(!Arc::ptr_eq(&c, &map.node(&c.address, node).expect("a good address")));
    }
}
