//! The decisions of a quorum, as plain functions. They do no I/O and read no clock.
//!
//! The backend calls them, and so does the simulator that proves the protocol (`torture/models/src/quorum.rs`). When the
//! lease of a quorum ends is decided by [`lock_core::backend::rules::nth_latest_end`].
//!
//! A *vote* is a grant of one node, by a request with a holder id of its own. A vote is *live* until its own lease ends. An
//! answer counts only for the holder id that it was asked for. `nodes` is always the number of all configured nodes, whether
//! they can be reached or not.

use std::time::Duration;

use lock_core::FencingToken;

/// The number of all configured nodes that have to agree.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether each majority of one list of nodes has a node in common with each majority of another list, if `shared`
/// nodes are in both. Otherwise two processes with these lists may both be granted a lock.
pub fn majorities_meet(nodes: usize, others: usize, shared: usize) -> bool {
    majority(nodes) + majority(others) > nodes + others - shared
}

/// The nodes with these addresses in the order in which a request for this name asks them. It is the same in every process that
/// lists the same addresses, in any order. If a node is added or removed, the order of the others stays.
///
/// Each name orders the nodes by a hash of the name and the address. Nodes with the same address keep the order of the list.
pub fn order_by_address<A: AsRef<str>>(name: &str, addresses: &[A]) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..addresses.len()).collect();
    nodes.sort_by_cached_key(|node| {
        let address = addresses[*node].as_ref();
        let hash = fnv_1a(address.bytes().chain([0xff]).chain(name.bytes()));
        // FNV-1a alone hardly mixes the last bytes into the upper bits.
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (hash ^ (hash >> 33), address.to_owned())
    });
    nodes
}

pub(crate) fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The nodes in the order in which a request for this name asks them, if their addresses are not known. It is the same in every
/// process that lists the nodes in the same order.
///
/// The names are spread over the nodes by their FNV-1a hash.
pub fn order(name: &str, nodes: usize) -> impl Iterator<Item = usize> + Clone + use<> {
    let hash = fnv_1a(name.bytes());
    // No node: nothing to ask, and no division by zero.
    let first = usize::try_from(hash % (nodes.max(1) as u64)).unwrap_or_default();
    (first..nodes).chain(0..first.min(nodes))
}

/// The node that decides between requests for the same name, and at which they wait: the first in the order that is not
/// suspected of being down. If all are, the first. `None` without nodes.
pub fn anchor(order: impl IntoIterator<Item = usize>, mut is_suspected: impl FnMut(usize) -> bool) -> Option<usize> {
    let mut order = order.into_iter();
    let first = order.next()?;
    match is_suspected(first) {
        false => Some(first),
        true => order.find(|node| !is_suspected(*node)).or(Some(first)),
    }
}

/// A node's answer to an acquire request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet, or it was not asked.
    None,
    /// It voted for us, and the vote is live.
    Granted,
    /// Somebody else holds the name there.
    Busy,
    /// It cannot be reached, is silent for longer than the [`patience`], or may not vote now.
    Failed,
}

/// The result of the answers of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A majority voted for us. The hold counts once the [`token`] is decided.
    Granted,
    /// The name is taken. A request that waits gives all votes back, and waits at the anchor.
    Busy,
    /// The anchor voted for us, but too many others are taken. Since the anchor decides, those give their votes back soon: ask
    /// the busy ones once more.
    AskAgain,
    /// No majority can be reached. That is not [`Busy`](Self::Busy), whatever the others say.
    Unavailable,
    /// The answers that are missing decide.
    Undecided,
}

/// The result of the answers: `answers` has one of each configured node, and `anchor` is the position of the anchor.
/// The name is not taken before the anchor has answered, so that one of several simultaneous requests wins.
/// `asked_again` says whether the busy nodes were asked once more after [`Outcome::AskAgain`].
pub fn outcome(answers: &[Answer], anchor: usize, asked_again: bool) -> Outcome {
    let needed = majority(answers.len());
    let count = |wanted| answers.iter().filter(|answer| **answer == wanted).count();
    let (granted, failed) = (count(Answer::Granted), count(Answer::Failed));
    if granted >= needed {
        return Outcome::Granted;
    }
    if answers.len() - failed < needed {
        return Outcome::Unavailable;
    }
    let anchor = answers.get(anchor).copied().unwrap_or(Answer::Failed);
    let can_win = granted + count(Answer::None) >= needed;
    match anchor {
        Answer::Busy => Outcome::Busy,
        // Whoever has the other nodes' votes may be refused by it, and give them back.
        Answer::None => Outcome::Undecided,
        _ if can_win => Outcome::Undecided,
        Answer::Granted if !asked_again => Outcome::AskAgain,
        _ => Outcome::Busy,
    }
}

/// The token of a quorum, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It is this one.
    Decided(FencingToken),
    /// It will be this one. First the votes with lower tokens have to be raised to it, so that a majority stores it. An answer
    /// that arrives meanwhile may decide it earlier: ask again with it.
    Raise(FencingToken),
    /// Too few votes are live.
    Undecided,
}

/// The token of a quorum, from the tokens of its *live* votes. Each is the one that its node has stored for it.
///
/// A majority of the votes must be at most the token: one of them is by a node that also voted in any earlier grant, and its
/// token was counted from there on. A majority must be at least the token: any later grant meets one of them. If all nodes of an
/// odd number answer, the median is both.
///
/// The token of a vote that is not live any more proves nothing: others may have been granted larger ones since.
pub fn token(live: impl IntoIterator<Item = FencingToken>, nodes: usize) -> Token {
    let needed = majority(nodes);
    let mut live: Vec<FencingToken> = live.into_iter().collect();
    if live.len() < needed {
        return Token::Undecided;
    }
    live.sort_unstable();
    let read = live[needed - 1];
    let stored = live[live.len() - needed];
    match read <= stored {
        true => Token::Decided(read),
        false => Token::Raise(read),
    }
}

/// Whether a hold is certainly lost: so many nodes have the name free, or for somebody else, that no majority is left.
///
/// Nodes that are silent do not count. Without a majority of live votes the hold is over too, when its lease ends.
pub fn is_lost(foreign: usize, nodes: usize) -> bool {
    foreign > nodes - majority(nodes)
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It ended the hold.
    Now,
    /// The hold had ended before.
    Before,
    /// Too few nodes answered.
    Unknown,
}

/// The result of a release, of which `ended` nodes ended our vote and `foreign` nodes had none of ours.
pub fn released(ended: usize, foreign: usize, nodes: usize) -> Released {
    if ended >= majority(nodes) {
        Released::Now
    } else if is_lost(foreign, nodes) {
        Released::Before
    } else {
        Released::Unknown
    }
}

/// For how long a request waits for a node's answer before it goes on without: the `configured` time, but at most a sixth of
/// the TTL.
pub fn patience(configured: Duration, ttl: Duration) -> Duration {
    configured.min(ttl / 6)
}

/// The shortest TTL that leaves time to renew and to try again, if the nodes answer after these times: ten times as long as a
/// majority needs. `None` if fewer have answered.
pub fn sensible_ttl(answered_after: impl IntoIterator<Item = Duration>, nodes: usize) -> Option<Duration> {
    let mut times: Vec<Duration> = answered_after.into_iter().collect();
    times.sort_unstable();
    times.get(majority(nodes) - 1).map(|time| time.saturating_mul(10))
}

/// The [`patience`] of a request that has given its votes back `silences` times because a majority was silent. It doubles each
/// time, up to half the TTL: perhaps the nodes are only far away.
pub fn patience_after(patience: Duration, ttl: Duration, silences: u32) -> Duration {
    let doubled = patience.saturating_mul(1 << silences.min(16));
    doubled.min(ttl / 2).max(patience)
}

/// For how long a silent node is suspected of being down: half the TTL, 15 s at most. Meanwhile it is no anchor.
pub fn suspicion(ttl: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(15);
    (ttl / 2).min(LONGEST)
}

/// For how long a node may have anything of a vote for `ttl` at most, once nothing but its end is asked for: the last request may
/// arrive late, and the vote lives for the TTL after that, by the clock of the node.
pub(crate) fn lasts_at_node(ttl: Duration) -> Duration {
    ttl.saturating_mul(2)
}

/// Whether a request asks the suspected nodes first. It asks the others, with the anchor, once so many suspected nodes
/// have answered that there may be a majority. Otherwise a client that is cut off from a majority would have the
/// anchor's vote and no use for it.
pub fn asks_suspected_first(suspected: usize, nodes: usize) -> bool {
    suspected < nodes && nodes - suspected < majority(nodes)
}

/// For how long a request that has the anchor's vote waits for the other nodes: 16 `round_trip`s of the slowest node that is not
/// suspected, but 50 ms to the `patience`, and not longer than the time that is `left`. Those that have the other nodes' votes
/// give them back within a few round trips, or they have a majority.
///
/// The caller waits for a random part of it, at least a half: if two have a vote that the other one needs, one ends first.
pub fn yield_time(round_trip: Duration, patience: Duration, left: Option<Duration>) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(50);
    let longest = round_trip.saturating_mul(16).min(patience).max(SHORTEST);
    left.map_or(longest, |left| longest.min(left))
}

/// After how long a request that waits in the anchor's queue looks at all nodes, if `looks` have found nothing wrong: after its
/// patience, then twice that, then four times that, again and again.
pub fn look_after(patience: Duration, looks: u32) -> Duration {
    patience.saturating_mul(1 << looks.min(2))
}

/// For how long a name that was found taken is asked for at its anchor first.
pub const KNOWN_TAKEN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
