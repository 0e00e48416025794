//! A lock's queue in ZooKeeper: the names and data of its nodes, and which of them holds the lock. No I/O.
//!
//! Nodes are named in Curator's protected format, `_c_<uuid>-lock-<sequence>`, so that both can share a
//! queue. Nodes of kazoo's locks count as well.

use std::cmp::Ordering;

use lock_core::FencingToken;
use lock_core::backend::{AcquireRequest, Busy, HolderId};
use zookeeper_client::{Acls, CreateMode, CreateOptions};

use crate::config::ZooKeeperConfig;

const MARK: &str = "lock-";

/// What precedes the sequence in the names of queue entries: ours and Curator's, kazoo's locks, and its read locks, which
/// count like any other.
const MARKS: [&str; 3] = [MARK, "__lock__", "__rlock__"];

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

/// The number that the server appended to the name of a queue entry.
fn sequence(child: &str) -> Option<i32> {
    MARKS.iter().find_map(|mark| number(child.rsplit_once(mark)?.1))
}

/// A number as the server writes it: ten characters with a sign and zeros, or eleven if a sign precedes ten digits.
fn number(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_padded = match text.len() {
        10 => true,
        11 => digits.len() == 10 && !digits.starts_with('0'),
        _ => false,
    };
    let is_number = is_padded && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The server counts in 32 bits and wraps from 2147483647 to -2147483648, so what counts is the distance.
fn order(a: i32, b: i32) -> Ordering {
    a.wrapping_sub(b).cmp(&0)
}

/// How many tokens there are for each transaction id: that of a grant or a hand-over, and those of the passes after it.
pub(crate) const TOKENS_PER_ZXID: i64 = 16;

/// The token of a grant or a hand-over on this transaction id, with this token offset. `None` if it is too large.
pub(crate) fn token(base: i64, offset: i64) -> Option<FencingToken> {
    FencingToken::try_from(base.checked_mul(TOKENS_PER_ZXID)?.checked_add(offset)?).ok()
}

/// The smallest offset with which the token on this base, and on any larger one, is above the floor.
pub(crate) fn offset_above(floor: i64, base: i64) -> i64 {
    // All are at least 0.
    floor.saturating_add(1) - base.saturating_mul(TOKENS_PER_ZXID)
}

/// The transaction id that a grant's token is based on. `pzxid` is the last change of the directory's children in a list that
/// shows the node as the first, over the connection over which the node was created.
pub(crate) fn base(czxid: i64, pzxid: i64) -> i64 {
    czxid.max(pzxid)
}

/// The transaction id that a holder's token is based on, as anybody can tell: by its node's creation and last write, and by the
/// last change of its directory's children as of now. `None` if only the holder knows.
pub(crate) fn known_base(czxid: i64, mzxid: i64, pzxid: i64) -> Option<i64> {
    if mzxid > czxid {
        // Only the first node is written, and whoever writes it takes that transaction id.
        return Some(mzxid);
    }
    // Nobody has come or gone since the creation, so the list that the holder saw had the same last change.
    (pzxid == czxid).then_some(czxid)
}

/// The token offset in a node's data. `None` for other data.
pub(crate) fn parse_offset(data: &[u8]) -> Option<i64> {
    match data {
        [] => Some(0),
        _ => std::str::from_utf8(data)
            .ok()?
            .parse()
            .ok()
            .filter(|offset| *offset >= 0),
    }
}

/// The data of a node for this token offset. Empty for 0, as in nodes of Curator.
pub(crate) fn offset_data(offset: i64) -> Vec<u8> {
    match offset {
        0 => Vec::new(),
        _ => offset.to_string().into_bytes(),
    }
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
    let acls = match config.has_open_acl() {
        true => Acls::anyone_all(),
        false => Acls::creator_all(),
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

    /// The server's format is Java's `%010d` of an `int`.
    #[test]
    fn a_sequence_has_ten_digits() {
        let numbers = [0_i32, 7, i32::MAX, i32::MIN, -1_000_000_000, -999_999_999, -5];
        for number in numbers {
            assert_eq!(sequence(&format!("_c_id-lock-{number:010}")), Some(number));
        }
        for other in [
            "1",
            "00000000001",
            "2147483648",
            "-2147483649",
            "-0000000005",
            "+000000005",
            "0000000002147483648",
            "",
        ] {
            assert_eq!(sequence(&format!("_c_id-lock-{other}")), None, "{other}");
        }
    }

    #[test]
    fn nodes_of_kazoo_count() {
        let all = [
            "9d1f0a62e4f14a1b8b4f2a0c5d6e7f80__lock__0000000007",
            "_c_id-lock-0000000009",
            "9d1f0a62e4f14a1b8b4f2a0c5d6e7f80__rlock__0000000008",
        ]
        .map(str::to_owned);
        let behind = Position::Behind {
            predecessor: &all[2],
            holder: &all[0],
        };
        assert_eq!(position(&all, "_c_id-lock-0000000009"), behind);
        assert_eq!(holder(&all), Some((all[0].as_str(), 2)));
    }

    #[test]
    fn strangers_neither_hold_nor_wait() {
        let mut all = children(&["0000000010"]);
        all.extend(["config", "lock-", "lock-x", "lock-1", "lock-0000000001-old", "__lock__"].map(str::to_owned));
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
    fn tokens_are_above_the_floor() {
        let number = |base, offset| token(base, offset).map(FencingToken::as_i64);
        assert_eq!(number(10, 0), Some(160));
        assert_eq!(number(10, offset_above(1000, 10)), Some(1001));
        assert!(offset_above(159, 10) <= 0 && offset_above(160, 10) == 1);
        assert_eq!(offset_above(i64::MAX, 10), i64::MAX - 160);
    }

    #[test]
    fn tokens_end_where_the_numbers_do() {
        let number = |base, offset| token(base, offset).map(FencingToken::as_i64);
        // 2^27 elections, each of which adds 2^32 to the transaction id.
        let last = (1 << 59) - 1;
        assert_eq!(number(last, 0), Some(i64::MAX - 15));
        assert_eq!(number(last, 15), Some(i64::MAX));
        assert_eq!(number(last, 16), None);
        assert_eq!(number(last + 1, 0), None);
        assert_eq!(number(i64::MAX, 0), None);
        assert!(offset_above(0, i64::MAX) < 0);
    }

    #[test]
    fn the_base_of_a_token_is_the_latest_change_before_the_grant() {
        // Nobody was before it; somebody was; the server does not count the creation after 2^31 others.
        assert_eq!((base(20, 20), base(20, 25), base(20, 15)), (20, 25, 20));
    }

    #[test]
    fn only_some_bases_are_known_to_others() {
        assert_eq!(known_base(20, 20, 20), Some(20));
        // A later waiter came, or an earlier holder left.
        assert_eq!(known_base(20, 20, 25), None);
        assert_eq!(known_base(20, 30, 20), Some(30));
        assert_eq!(known_base(20, 30, 35), Some(30));
    }

    #[test]
    fn an_offset_is_decimal_text() {
        for offset in [0, 7, 1 << 50, i64::MAX] {
            assert_eq!(parse_offset(&offset_data(offset)), Some(offset));
        }
        assert_eq!(offset_data(1_234), b"1234");
        for other in ["-1", "x", "10.0.0.5", "9223372036854775808", " 1", "\u{e4}"] {
            assert_eq!(parse_offset(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parse_offset(b"\xff"), None);
    }
}
