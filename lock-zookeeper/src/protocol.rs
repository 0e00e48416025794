//! A lock's queue in ZooKeeper: the names and data of its nodes, and which of them holds the lock. No I/O.
//!
//! Nodes are named in Curator's protected format, `_c_<uuid>-lock-<sequence>`, so that both can share a
//! queue.

use std::cmp::Ordering;

use lock_core::backend::{AcquireRequest, Busy, HolderId};
use zookeeper_client::{Acls, CreateMode, CreateOptions};

use crate::config::ZooKeeperConfig;

const MARK: &str = "lock-";

/// The names of this holder's nodes, without the sequence.
pub(crate) fn prefix(holder: HolderId) -> String {
    // Always 32 digits.
    let hex = holder.to_string();
    format!(
        "_c_{}-{}-{}-{}-{}-{MARK}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// A waiter's position in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// It has the lock.
    First,
    /// It waits for `predecessor` to go; `holder` has the lock.
    Behind { predecessor: &'a str, holder: &'a str },
    /// Its node is not there.
    Missing,
}

/// The position of the node `own` among `children`. Children of another format do not count.
pub(crate) fn position<'a>(children: &'a [String], own: &str) -> Position<'a> {
    let Some(mine) = children
        .iter()
        .find(|child| *child == own)
        .and_then(|child| sequence(child))
    else {
        return Position::Missing;
    };
    let before = || {
        let numbered = children
            .iter()
            .filter_map(|child| Some((sequence(child)?, child.as_str())));
        numbered.filter(|(number, _)| order(*number, mine).is_lt())
    };
    let predecessor = before().max_by(|a, b| order(a.0, b.0));
    let holder = before().min_by(|a, b| order(a.0, b.0));
    match (predecessor, holder) {
        (Some((_, predecessor)), Some((_, holder))) => Position::Behind { predecessor, holder },
        _ => Position::First,
    }
}

/// The child that has the lock, and how many wait behind it.
pub(crate) fn holder(children: &[String]) -> Option<(&str, usize)> {
    let numbered = || {
        children
            .iter()
            .filter_map(|child| Some((sequence(child)?, child.as_str())))
    };
    let (_, first) = numbered().min_by(|a, b| order(a.0, b.0))?;
    Some((first, numbered().count() - 1))
}

/// The number that the server appended: the text after the last `lock-`, with its sign.
fn sequence(child: &str) -> Option<i64> {
    child.rsplit_once(MARK)?.1.parse().ok()
}

/// The server counts in 32 bits and wraps from 2147483647 to -2147483648, so what counts is the distance.
fn order(a: i64, b: i64) -> Ordering {
    match (i32::try_from(a), i32::try_from(b)) {
        (Ok(a), Ok(b)) => a.wrapping_sub(b).cmp(&0),
        _ => a.cmp(&b),
    }
}

/// The token of a grant, unless the directory has to be written for one.
///
/// A node's own `czxid`, in the order of grants, except where the directory was written later than that: then an
/// earlier grant took that write for its token.
pub(crate) fn token(czxid: i64, directory_mzxid: i64, floor: i64) -> Option<i64> {
    (czxid > directory_mzxid.max(floor)).then_some(czxid)
}

/// The data of a request's node: the request's label.
pub(crate) fn label(request: &AcquireRequest) -> Vec<u8> {
    request.label().map_or_else(Vec::new, |label| label.as_bytes().to_vec())
}

/// Busy, by the holder whose node has this data.
pub(crate) fn busy(data: &[u8]) -> Busy {
    match data {
        [] => Busy::new(),
        _ => Busy::new().with_holder(String::from_utf8_lossy(data)),
    }
}

/// Options to create a node with the access that the configuration asks for.
pub(crate) fn create_options(config: &ZooKeeperConfig, mode: CreateMode) -> CreateOptions<'static> {
    let acls = match config.credentials() {
        Some(_) => Acls::creator_all(),
        None => Acls::anyone_all(),
    };
    mode.with_acls(acls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(sequences: &[&str]) -> Vec<String> {
        sequences
            .iter()
            .map(|sequence| format!("_c_id-lock-{sequence}"))
            .collect()
    }

    #[test]
    fn named_as_curator_does() {
        let holder = HolderId::random();
        let prefix = prefix(holder);
        let uuid = prefix.strip_prefix("_c_").unwrap().strip_suffix("-lock-").unwrap();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.replace('-', ""), holder.to_string());
    }

    #[test]
    fn the_lowest_has_it_and_the_others_watch_the_next_lower() {
        let all = children(&["0000000012", "0000000010", "0000000011"]);
        assert_eq!(position(&all, "_c_id-lock-0000000010"), Position::First);
        let behind = Position::Behind {
            predecessor: "_c_id-lock-0000000011",
            holder: "_c_id-lock-0000000010",
        };
        assert_eq!(position(&all, "_c_id-lock-0000000012"), behind);
        assert_eq!(holder(&all), Some(("_c_id-lock-0000000010", 2)));
    }

    #[test]
    fn order_survives_the_wrap_of_the_counter() {
        let all = children(&["-2147483648", "2147483647", "-2147483647"]);
        assert_eq!(position(&all, "_c_id-lock-2147483647"), Position::First);
        let behind = Position::Behind {
            predecessor: "_c_id-lock--2147483648",
            holder: "_c_id-lock-2147483647",
        };
        assert_eq!(position(&all, "_c_id-lock--2147483647"), behind);
    }

    #[test]
    fn order_survives_a_counter_of_64_bits() {
        let all = children(&["0000000002147483648", "2147483647"]);
        assert_eq!(position(&all, "_c_id-lock-2147483647"), Position::First);
    }

    #[test]
    fn strangers_neither_hold_nor_wait() {
        let mut all = children(&["0000000010"]);
        all.extend(["config".to_owned(), "lock-".to_owned(), "lock-x".to_owned()]);
        assert_eq!(position(&all, "_c_id-lock-0000000010"), Position::First);
        assert_eq!(holder(&all), Some(("_c_id-lock-0000000010", 0)));
        assert_eq!(holder(&["config".to_owned()]), None);
    }

    #[test]
    fn an_unprotected_node_counts() {
        let all = vec!["lock-0000000001".to_owned(), "_c_id-lock-0000000002".to_owned()];
        assert!(matches!(
            position(&all, "_c_id-lock-0000000002"),
            Position::Behind { .. }
        ));
    }

    #[test]
    fn a_node_that_is_gone_is_missing() {
        assert_eq!(
            position(&children(&["0000000010"]), "_c_id-lock-0000000009"),
            Position::Missing
        );
    }

    #[test]
    fn tokens_grow_over_a_hand_over() {
        // n1 (10) holds, n2 (11) and n3 (12) queue; n1 hands over by a write, 20; n2 is granted and writes, 31.
        assert_eq!(token(10, 5, 0), Some(10));
        assert_eq!(token(11, 20, 0), None);
        assert_eq!(token(12, 31, 0), None);
        assert_eq!(token(32, 31, 0), Some(32));
    }

    #[test]
    fn tokens_stay_above_the_floor() {
        assert_eq!(token(10, 5, 10), None);
        assert_eq!(token(10, 5, 9), Some(10));
    }
}
