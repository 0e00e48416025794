//! The decisions of a client by a list of the queue, as in `lock-zookeeper/src/protocol/admission.rs`.

use lock_core::backend::{Mode, rules};

use super::super::mutant::Mutant;
use super::server::Listing;

pub(super) enum Decision {
    Missing,
    /// It has the lock, with a token based on this zxid.
    Granted(u64),
    /// It has the lock, and writes its node for its token.
    Enters,
    /// It watches this node.
    Watch(u64),
    /// It watches this node, unless its owner has entered.
    WatchEntry(u64),
    WatchDirectory,
    ListAgain,
}

/// `is_downgraded`: what the data of a node says, read after the list.
pub(super) fn decide(
    listing: &Listing,
    own: usize,
    is_downgraded: impl Fn(u64) -> bool,
    mutant: Option<Mutant>,
) -> Decision {
    let has = |broken| mutant == Some(broken);
    let nodes = &listing.nodes;
    let Some(at) = nodes.iter().position(|(owner, ..)| *owner == own) else {
        return Decision::Missing;
    };
    let ((_, czxid, mode), before) = (nodes[at], &nodes[..at]);
    if mode == Mode::Exclusive {
        return match before.last() {
            None => Decision::Granted(listing.pzxid.max(czxid)),
            Some((_, last, _)) => Decision::Watch(*last),
        };
    }
    let alike = |other: Mode| match mode {
        Mode::Shared => other == Mode::Shared,
        _ => matches!(other, Mode::Permits(_)),
    };
    let seen = if has(Mutant::ReadersHeedThoseBehind) {
        &nodes[..]
    } else {
        before
    };
    let in_the_way = seen.iter().rposition(|(_, _, other)| !alike(*other));
    let mut beside_downgraded = false;
    if let Some(last) = in_the_way {
        let (_, node, other) = seen[last];
        match mode == Mode::Shared && other == Mode::Exclusive && is_downgraded(node) {
            false => return Decision::Watch(node),
            // The list is older.
            true if last > 0 && !has(Mutant::DowngradeOfTheFirstOnly) => return Decision::ListAgain,
            true if last > 0 => return Decision::Watch(node),
            true => beside_downgraded = true,
        }
    }
    let admitted = admitted(before);
    if !beside_downgraded {
        let entered = before.iter().take(admitted).map(|(_, _, mode)| *mode);
        let must_wait = admitted < before.len() && !has(Mutant::PassesLargePermits);
        if must_wait || !rules::fits(entered, mode) {
            let waiting = &before[admitted..];
            return match waiting.len().checked_sub(2) {
                Some(ahead) => Decision::WatchEntry(waiting[ahead].1),
                None => Decision::WatchDirectory,
            };
        }
    }
    let writes = beside_downgraded && !has(Mutant::CreatedBesideADowngrade);
    match () {
        () if has(Mutant::SharersTakeTheList) => Decision::Granted(listing.pzxid),
        () if has(Mutant::SharersTakeTheirCreation) => Decision::Granted(czxid),
        () if listing.pzxid == czxid && !writes => Decision::Granted(czxid),
        () => Decision::Enters,
    }
}

/// The number of nodes in front that fit together, up to the first that has to wait.
fn admitted(nodes: &[(usize, u64, Mode)]) -> usize {
    let modes = |count: usize| nodes.iter().take(count).map(|(_, _, mode)| *mode);
    let fits = |index: &usize| rules::fits(modes(*index), nodes[*index].2);
    (0..nodes.len()).take_while(fits).count()
}
