//! The figures of a history.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lock_core::FencingToken;

use super::super::properties::*;
use super::scenario::Scenario;

/// The figures of one history.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The number of holds.
    pub grants: u64,
    /// The number of holds that were lost.
    pub lost: u64,
    /// The number of times that a hold began or was prolonged while another client believed in one.
    pub two_believers: u64,
    /// The number of grants whose token was not larger than all before.
    pub token_regressions: u64,
    /// The number of clients that got no hold after the faults had ended.
    pub starved: u64,
    /// The number of times that a client wanted the name for too long, and one more if there were too few holds in all.
    pub stopped: u64,
    /// The longest that a client wanted the name while that was judged.
    pub longest_wait: Duration,
    /// The number of times that a client believed in a hold that a majority denied.
    pub unnoticed: u64,
    /// The number of times that a node stored a larger token for a hold than its holder knew.
    pub status_differs: u64,
    /// The number of votes for ids that had been ended at their nodes.
    pub revived: u64,
    /// The number of nodes that are held at the end, by a hold that nobody released.
    pub left: u64,
    /// The number of requests.
    pub messages: u64,
    /// The number of holds of each client.
    pub per_client: Vec<u64>,
    /// The first that went wrong.
    pub violation: Option<Violation>,
}

/// A property that is broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its name.
    pub breaks: &'static str,
    /// The true time since the beginning.
    pub at: Duration,
    /// The description of the event.
    pub what: String,
}

/// The sums of several histories.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The number of histories.
    pub runs: u64,
    /// The sums of all.
    pub sum: Figures,
    /// In how many there were two believers.
    pub runs_with_two_believers: u64,
    /// In how many a token was not larger than all before.
    pub runs_with_regressions: u64,
    /// The first seed with a violation, and that.
    pub first: Option<(u64, Violation)>,
}

/// Sees what nobody in the history can see.
#[derive(Debug)]
pub(super) struct Observer {
    /// Until when clients believe to hold, by true time.
    believers: BTreeMap<usize, Duration>,
    /// The tokens of the clients' holds.
    tokens: BTreeMap<usize, FencingToken>,
    last_token: Option<FencingToken>,
    served_late: Vec<bool>,
    nodes: usize,
    /// Since when each client wants the name.
    wanted_since: Vec<Option<Duration>>,
    sick_client: bool,
    longest_wait: Option<Duration>,
    /// From when every client has to be served.
    served_from: Duration,
    pub(super) messages: u64,
    figures: Figures,
}

impl Observer {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            believers: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last_token: None,
            served_late: vec![false; scenario.clients],
            nodes: scenario.nodes,
            wanted_since: vec![None; scenario.clients],
            sick_client: scenario.sick_client,
            longest_wait: scenario.longest_wait,
            served_from: scenario.calm_from + 3 * scenario.ttl,
            messages: 0,
            figures: Figures {
                per_client: vec![0; scenario.clients],
                ..Figures::default()
            },
        }
    }

    /// A client believes in a new hold.
    pub(super) fn granted(&mut self, now: Duration, client: usize, token: FencingToken, until: Duration) {
        self.figures.grants += 1;
        self.figures.per_client[client] += 1;
        self.served_late[client] |= now >= self.served_from;
        if let Some(last) = self.last_token.filter(|last| token <= *last) {
            self.figures.token_regressions += 1;
            self.violated(TOKENS_INCREASE, now, || {
                format!("client {client} was granted token {token} after token {last}")
            });
        }
        self.last_token = self.last_token.max(Some(token));
        self.tokens.insert(client, token);
        self.believes(now, client, until);
    }

    /// A client believes in its hold until then.
    pub(super) fn believes(&mut self, now: Duration, client: usize, until: Duration) {
        self.believers.retain(|_, until| *until > now);
        let other = self.believers.iter().find(|(other, _)| **other != client);
        if let Some((other, end)) = other.map(|(other, end)| (*other, *end)) {
            self.figures.two_believers += 1;
            self.violated(ONE_BELIEVER, now, || {
                format!("client {client} believes until {until:.6?}, and client {other} until {end:?}")
            });
        }
        self.believers.insert(client, until);
    }

    /// A client wants the name from now on, or has it or gave up.
    pub(super) fn wants(&mut self, now: Duration, client: usize, wants: bool) {
        let since = std::mem::replace(&mut self.wanted_since[client], wants.then_some(now));
        let Some(since) = since.filter(|_| !wants) else { return };
        self.has_waited(now, client, now.saturating_sub(since));
    }

    fn has_waited(&mut self, now: Duration, client: usize, waited: Duration) {
        let Some(longest) = self.longest_wait else { return };
        if client == 0 && self.sick_client {
            return;
        }
        self.figures.longest_wait = self.figures.longest_wait.max(waited);
        if waited > longest {
            self.figures.stopped += 1;
            self.violated(HEALTHY_GO_ON, now, || {
                format!("client {client} wanted the name for {waited:.6?}")
            });
        }
    }

    /// A client goes on believing, although so many nodes have said that the vote is not theirs.
    pub(super) fn denied(&mut self, now: Duration, client: usize, foreign: usize) {
        // The others are no majority.
        if (self.nodes - foreign) * 2 <= self.nodes {
            self.figures.unnoticed += 1;
            self.violated(LOSS_IS_NOTICED, now, || {
                format!("client {client} believes in its hold, which {foreign} nodes deny")
            });
        }
    }

    /// A node gave its vote to an id that was ended there before.
    pub(super) fn dead_id_was_granted(&mut self, now: Duration, node: usize, client: usize) {
        self.figures.revived += 1;
        self.violated(DEAD_STAY_DEAD, now, || {
            format!("node {node} voted for an id of client {client} that had been ended there")
        });
    }

    /// A node has stored this token for a client's vote. The status shows the largest.
    pub(super) fn stored(&mut self, now: Duration, client: usize, token: FencingToken) {
        let told = self.tokens.get(&client).copied();
        if let Some(told) = told.filter(|told| token > *told) {
            self.figures.status_differs += 1;
            self.violated(STATUS_SHOWS_THE_TOKEN, now, || {
                format!("client {client} holds with token {told}, and a status shows {token}")
            });
        }
    }

    /// A client's process has died, and believes nothing any more.
    pub(super) fn died(&mut self, client: usize) {
        self.tokens.remove(&client);
        self.believers.remove(&client);
        self.wanted_since[client] = None;
    }

    /// A client's hold has ended.
    pub(super) fn ended(&mut self, client: usize, is_lost: bool) {
        self.tokens.remove(&client);
        self.believers.remove(&client);
        self.figures.lost += u64::from(is_lost);
    }

    pub(super) fn has_violation_before(&self, now: Duration) -> bool {
        self.figures
            .violation
            .as_ref()
            .is_some_and(|violation| violation.at < now)
    }

    /// The figures, if all is over and so many nodes are still held.
    pub(super) fn finish(&mut self, scenario: &Scenario, now: Duration, left: u64) -> Figures {
        self.figures.messages = self.messages;
        self.figures.left = left;
        // Before that, a vote whose end was lost lives on for its TTL.
        if left > 0 && scenario.calm_from + scenario.longest_ttl() <= scenario.until {
            self.violated(NOTHING_LEFT, now, || format!("{left} nodes are held at the end"));
        }
        for client in 0..scenario.clients {
            if let Some(since) = self.wanted_since[client] {
                self.has_waited(now, client, scenario.until.saturating_sub(since));
            }
        }
        let grants = self.figures.grants;
        if grants < scenario.fewest_grants {
            self.figures.stopped += 1;
            self.violated(HEALTHY_GO_ON, now, || format!("{grants} holds in all"));
        }
        if self.served_from < scenario.until {
            let starved = self.served_late.iter().filter(|served| !**served).count();
            self.figures.starved = starved as u64;
            if starved > 0 {
                self.violated(EVERYBODY_IS_SERVED, now, || {
                    format!("{starved} clients got no hold after the faults had ended")
                });
            }
        }
        self.figures.clone()
    }

    fn violated(&mut self, breaks: &'static str, at: Duration, what: impl FnOnce() -> String) {
        let violation = &mut self.figures.violation;
        violation.get_or_insert_with(|| Violation {
            breaks,
            at,
            what: what(),
        });
    }
}

impl Figures {
    /// The number of times that a property was broken.
    pub fn broken(&self, property: &str) -> u64 {
        match property {
            ONE_BELIEVER => self.two_believers,
            TOKENS_INCREASE => self.token_regressions,
            NOTHING_LEFT => self.left,
            HEALTHY_GO_ON => self.stopped,
            LOSS_IS_NOTICED => self.unnoticed,
            DEAD_STAY_DEAD => self.revived,
            STATUS_SHOWS_THE_TOKEN => self.status_differs,
            EVERYBODY_IS_SERVED => self.starved,
            _ => 0,
        }
    }

    /// The fewest and the most holds that a client had.
    pub fn shares(&self) -> (u64, u64) {
        let clients = || self.per_client.iter().copied();
        (clients().min().unwrap_or(0), clients().max().unwrap_or(0))
    }
}

impl Totals {
    pub(super) fn add(&mut self, seed: u64, figures: &Figures) {
        self.runs += 1;
        self.runs_with_two_believers += u64::from(figures.two_believers > 0);
        self.runs_with_regressions += u64::from(figures.token_regressions > 0);
        let sum = &mut self.sum;
        sum.grants += figures.grants;
        sum.lost += figures.lost;
        sum.two_believers += figures.two_believers;
        sum.token_regressions += figures.token_regressions;
        sum.starved += figures.starved;
        sum.left += figures.left;
        sum.stopped += figures.stopped;
        sum.unnoticed += figures.unnoticed;
        sum.revived += figures.revived;
        sum.status_differs += figures.status_differs;
        sum.longest_wait = sum.longest_wait.max(figures.longest_wait);
        sum.messages += figures.messages;
        sum.per_client.resize(figures.per_client.len(), 0);
        for (sum, holds) in sum.per_client.iter_mut().zip(&figures.per_client) {
            *sum += holds;
        }
        if let (None, Some(violation)) = (&self.first, &figures.violation) {
            self.first = Some((seed, violation.clone()));
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { breaks, at, what } = self;
        write!(f, "{breaks} is broken at {:.6} s: {what}", at.as_secs_f64())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.sum;
        write!(
            f,
            "runs={} grants={} two_believers={} (in {} runs) token_regressions={} (in {}) lost={} starved={} stopped={} (longest wait {:.3?}) left={} requests={}",
            self.runs,
            sum.grants,
            sum.two_believers,
            self.runs_with_two_believers,
            sum.token_regressions,
            self.runs_with_regressions,
            sum.lost,
            sum.starved,
            sum.stopped,
            sum.longest_wait,
            sum.left,
            sum.messages
        )
    }
}
