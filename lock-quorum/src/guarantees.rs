//! The events that a hold survives, by the protocol or because the nodes keep it.

use lock_core::{Guarantee, Verdict};

use crate::rules::majority;

/// `nodes`: what each of them keeps. It is not known of one that was not reached.
pub(crate) fn keeps(guarantee: Guarantee, nodes: Vec<Verdict>) -> Verdict {
    let has_minority = majority(nodes.len()) < nodes.len();
    match guarantee {
        // One node may be gone or cut off: the others are a majority.
        Guarantee::Failover | Guarantee::Partition if has_minority => Verdict::Yes,
        _ => by_nodes(nodes),
    }
}

/// A vote that was given and forgotten can be given again. So no node may be known to forget; a minority may be out of reach.
fn by_nodes(nodes: Vec<Verdict>) -> Verdict {
    let needed = majority(nodes.len());
    let are_known = nodes.iter().filter(|node| node.is_yes()).count() >= needed;
    let of_nodes = (nodes.into_iter().enumerate()).filter_map(|(index, node)| of_node(index, node, are_known));
    of_nodes.fold(Verdict::Yes, Verdict::and)
}

/// The node's verdict, with its number. `None` if it does not count.
fn of_node(index: usize, verdict: Verdict, are_known: bool) -> Option<Verdict> {
    let node = index + 1;
    match verdict {
        Verdict::No { because, instead } => Some(Verdict::no(format!("of node {node}: {because}"), instead)),
        Verdict::Unknown { because, instead } if !are_known => {
            Some(Verdict::unknown(format!("of node {node}: {because}"), instead))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(guarantee: Guarantee, nodes: [Verdict; 3]) -> String {
        keeps(guarantee, nodes.into()).to_string()
    }

    const YES: Verdict = Verdict::Yes;

    fn no() -> Verdict {
        Verdict::no("it forgets", "set it")
    }

    fn unknown() -> Verdict {
        Verdict::unknown("it is away", "wait")
    }

    #[test]
    fn a_crash_is_survived_if_no_node_forgets() {
        let crash = |nodes| said(Guarantee::ServerCrash, nodes);
        assert_eq!(crash([YES, YES, YES]), "yes");
        assert_eq!(crash([YES, YES, no()]), "no: of node 3: it forgets; set it");
        assert_eq!(crash([unknown(), no(), YES]), "no: of node 2: it forgets; set it");
    }

    #[test]
    fn a_node_that_is_away_does_not_count_beside_a_majority() {
        let crash = |nodes| said(Guarantee::ServerCrash, nodes);
        assert_eq!(crash([unknown(), YES, YES]), "yes");
        assert_eq!(
            crash([YES, unknown(), unknown()]),
            "unknown: of node 2: it is away; wait"
        );
    }

    /// A hold may have the votes of a bare majority. If one of these nodes steps, the rest can vote for another holder.
    #[test]
    fn a_step_of_any_node_counts() {
        let step = |nodes| said(Guarantee::ClockStep, nodes);
        assert_eq!(step([YES, YES, YES]), "yes");
        assert_eq!(step([YES, YES, no()]), "no: of node 3: it forgets; set it");
    }

    #[test]
    fn what_a_minority_may_do_is_survived_by_the_protocol() {
        for guarantee in [Guarantee::Failover, Guarantee::Partition] {
            assert_eq!(said(guarantee, [no(), no(), no()]), "yes");
            // Of two nodes both are needed.
            assert!(!keeps(guarantee, vec![no(), YES]).is_yes());
            assert!(!keeps(guarantee, vec![no()]).is_yes());
        }
    }
}
