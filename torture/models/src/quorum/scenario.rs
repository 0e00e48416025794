//! The parameters of a history.

use std::time::Duration;

use super::mutant::QuorumMutant;

/// The bounds of a history, and what goes wrong in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of clients that want the name.
    pub clients: usize,
    /// The TTL of every vote, or of the first client's.
    pub ttl: Duration,
    /// By what the TTL of each client is multiplied, in turn.
    pub ttl_shares: &'static [f64],
    /// When the clients stop.
    pub until: Duration,
    /// When the faults end.
    pub calm_from: Duration,
    /// The shortest hold.
    pub shortest_hold: Duration,
    /// The longest hold.
    pub longest_hold: Duration,
    /// The longest time of a client between two acquisitions.
    pub longest_break: Duration,
    /// Which part of the acquisitions does not wait for a holder.
    pub tries: f64,
    /// The way in which clients contend.
    pub strategy: Strategy,
    /// The time that a client waits for an answer, before the TTL bounds it.
    pub patience: Duration,
    /// For how long a node that forgot gives no fresh vote.
    pub restart_delay: Duration,
    /// The treatment of votes that a node forgot.
    pub reinstall: Reinstall,
    /// The delays and losses of messages.
    pub network: Network,
    /// The faults.
    pub faults: Faults,
    /// By how much clocks run fast or slow at most, as a part of their time.
    pub clock_drift: f64,
    /// The largest difference of the nodes' dates. Tokens count by them.
    pub date_skew: Duration,
    /// The longest time of a cut; `None` for two TTLs.
    pub longest_cut: Option<Duration>,
    /// The node that clients are cut off from, by its place in the order; `None` for any.
    pub cut_off_from: Option<usize>,
    /// A node that never answers.
    pub down: Option<usize>,
    /// The first client's packets to all nodes but the first in its order are dropped until the faults end.
    pub sick_client: bool,
    /// The longest time for which a client may want the name, unless it is the sick one or everybody is; `None` if that
    /// is not judged.
    pub longest_wait: Option<Duration>,
    /// The least number of holds in all.
    pub fewest_grants: u64,
    /// The bug of the protocol, if it has one.
    pub mutant: Option<QuorumMutant>,
}

/// The delays and losses of messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The shortest way.
    pub shortest: Duration,
    /// The longest way, unless something goes wrong.
    pub longest: Duration,
    /// Which part of the messages is late.
    pub late: f64,
    /// By how much at most.
    pub latest: Duration,
    /// Which part is lost.
    pub lost: f64,
    /// Which part of the requests is stuck for up to two TTLs, while others overtake it.
    pub stuck: f64,
}

/// The average rates of faults; `None` for never.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Each client is paused for up to three TTLs.
    pub pause_every: Option<Duration>,
    /// A node goes down for up to a TTL.
    pub restart_every: Option<Duration>,
    /// Which part of the restarts loses all data.
    pub forgets: f64,
    /// A client is cut off from a node for up to two TTLs.
    pub cut_every: Option<Duration>,
    /// A client is cut off from a majority of the nodes for up to two TTLs.
    pub minority_every: Option<Duration>,
    /// A client's process dies. Another one starts in its place, and knows nothing.
    pub crash_every: Option<Duration>,
    /// One node after the other loses all data while it runs: this often, and not on average.
    pub forget_every: Option<Duration>,
}

/// The way in which clients contend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All nodes at once, and the anchor decides. If the name was found taken, the anchor first, with a place in its queue.
    Adaptive,
    /// All nodes at once each time, and the anchor decides.
    AllAtOnce,
}

/// The treatment of votes that a node forgot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinstall {
    /// Their holders restore them at once.
    AtOnce,
    /// Their holders ask anew, and the restart delay applies to them as well.
    AfterDelay,
    /// Nothing.
    Never,
}

/// Three nodes, four clients, and everything goes wrong for a minute. Then they have another one.
impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: 3,
            clients: 4,
            ttl: seconds(2),
            ttl_shares: &[1.0],
            until: seconds(120),
            calm_from: seconds(60),
            shortest_hold: Duration::ZERO,
            longest_hold: seconds(3),
            longest_break: millis(200),
            tries: 0.2,
            strategy: Strategy::Adaptive,
            patience: millis(500),
            restart_delay: seconds(2),
            reinstall: Reinstall::AtOnce,
            network: Network {
                late: 0.02,
                latest: seconds(3),
                lost: 0.01,
                stuck: 0.01,
                ..Network::CALM
            },
            faults: Faults {
                pause_every: Some(seconds(8)),
                restart_every: Some(seconds(12)),
                forgets: 0.5,
                cut_every: Some(seconds(10)),
                minority_every: Some(seconds(20)),
                crash_every: Some(seconds(20)),
                forget_every: None,
            },
            clock_drift: 0.025,
            date_skew: millis(600),
            longest_cut: None,
            cut_off_from: None,
            down: None,
            sick_client: false,
            longest_wait: None,
            fewest_grants: 0,
            mutant: None,
        }
    }
}

impl Scenario {
    /// The same with this mutant, and with what that needs to show.
    #[must_use]
    pub fn with(&self, mutant: QuorumMutant) -> Self {
        let mut scenario = Self {
            mutant: Some(mutant),
            ..self.clone()
        };
        mutant.prepare(&mut scenario);
        scenario
    }

    /// The same, but everything goes wrong so many times as often.
    #[must_use]
    pub(super) fn worse(mut self, times: u32) -> Self {
        let Network { late, lost, stuck, .. } = &mut self.network;
        for share in [late, lost, stuck] {
            *share *= f64::from(times);
        }
        let Faults {
            pause_every,
            restart_every,
            cut_every,
            minority_every,
            crash_every,
            ..
        } = &mut self.faults;
        for every in [pause_every, restart_every, cut_every, minority_every, crash_every] {
            *every = every.map(|every| every / times);
        }
        self
    }

    /// Another scenario, but the same mutant.
    pub(super) fn becomes(&mut self, other: Self) {
        *self = Self {
            mutant: self.mutant,
            ..other
        };
    }

    /// The longest TTL of any client.
    pub(super) fn longest_ttl(&self) -> Duration {
        let clients = 0..self.clients;
        clients.map(|client| self.ttl_of(client)).max().unwrap_or(self.ttl)
    }

    /// The TTL of this client's votes.
    pub(super) fn ttl_of(&self, client: usize) -> Duration {
        self.ttl.mul_f64(self.ttl_shares[client % self.ttl_shares.len()])
    }

    pub(super) fn has(&self, mutant: QuorumMutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Network {
    /// A round trip of 0.2 to 0.8 ms.
    pub const CALM: Self = Self {
        shortest: Duration::from_micros(100),
        longest: Duration::from_micros(400),
        late: 0.0,
        latest: Duration::ZERO,
        lost: 0.0,
        stuck: 0.0,
    };
}

impl Faults {
    /// Nothing breaks.
    pub const NONE: Self = Self {
        pause_every: None,
        restart_every: None,
        forgets: 0.0,
        cut_every: None,
        minority_every: None,
        crash_every: None,
        forget_every: None,
    };
}

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
