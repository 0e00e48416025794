//! A lock's queue in ZooKeeper: the names and data of its nodes, which of them hold the lock, and with which tokens. No I/O.

use lock_core::FencingToken;
use lock_core::backend::Mode;
use zookeeper_client::{Acl, Acls, CreateMode, CreateOptions, Permission};

pub(crate) use self::admission::{Position, Watch, holders, may_be_downgraded, position};
pub(crate) use self::minimum::{Passed, ServerTime, certain, passed, wait_for};
pub(crate) use self::node_data::NodeData;
pub(crate) use self::places::{is_kept, is_known, is_place, kept_in_front, kept_name, left_kept, prefix};
use crate::config::ZooKeeperConfig;

mod admission;
mod minimum;
mod node_data;
mod places;

/// The number of tokens of each transaction id: that of a grant, and those of the passes after it.
pub(crate) const TOKENS_PER_ZXID: i64 = 16;

/// The token of a grant on this transaction id, with this token offset. `None` if it is too large.
pub(crate) fn token(base: i64, offset: i64) -> Option<FencingToken> {
    FencingToken::try_from(base.checked_mul(TOKENS_PER_ZXID)?.checked_add(offset)?).ok()
}

/// The smallest offset with which the token on this base, and on any larger one, is above the floor.
pub(crate) fn offset_above(floor: i64, base: i64) -> i64 {
    // All are at least 0.
    floor.saturating_add(1) - base.saturating_mul(TOKENS_PER_ZXID)
}

/// The transaction id that a grant's token is based on: by a list that shows the node as admitted, over the connection over which
/// the node was created. `pzxid` is the last change of the children in that list. `None` if the node has to be written for it.
pub(crate) fn base(mode: Mode, czxid: i64, pzxid: i64, beside_downgraded: bool) -> Option<i64> {
    match mode {
        Mode::Exclusive => Some(czxid.max(pzxid)),
        // Nobody has come or gone since the node was made. The grant of a hold that was downgraded may be based on that, too.
        _ => (pzxid == czxid && !beside_downgraded).then_some(czxid),
    }
}

/// The transaction id that a holder's token is based on, as anybody can tell: by its node's creation and last write, and by the
/// last change of its directory's children as of now. `None` if only the holder knows.
pub(crate) fn known_base(mode: Mode, czxid: i64, mzxid: i64, pzxid: i64) -> Option<i64> {
    if mzxid > czxid {
        // Only holders write their nodes, and whoever does it takes that transaction id. A downgrade writes the token.
        return Some(mzxid);
    }
    // Nobody has come or gone since the creation, so the list that the holder saw had the same last change. A reader may be
    // about to write its node.
    (mode == Mode::Exclusive && pzxid == czxid).then_some(czxid)
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

/// All permissions for the creator.
static READABLE_BY_ALL: [Acl; 2] = [
    Acl::new_const(Permission::ALL, "auth", ""),
    Acl::new_const(Permission::READ, "world", "anyone"),
];

/// The number of tokens of a grant that asks for `asked`, its own included.
pub(crate) fn reserved(asked: u32) -> u32 {
    asked.clamp(1, TOKENS_PER_ZXID as u32)
}

/// Options to create a node with the access that the configuration asks for.
pub(crate) fn create_options(config: &ZooKeeperConfig, mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(acls(config))
}

/// The same for the node of the token offset.
pub(crate) fn create_offset_options(config: &ZooKeeperConfig) -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(offset_acls(config))
}

/// The clients that may access the nodes.
pub(crate) fn acls(config: &ZooKeeperConfig) -> Acls<'static> {
    match config.has_open_acl() {
        true => Acls::anyone_all(),
        false => Acls::creator_all(),
    }
}

/// The clients that may access the node of the token offset. Everybody may read it: a server may tell a client nothing
/// of a node that the client may not read.
pub(crate) fn offset_acls(config: &ZooKeeperConfig) -> Acls<'static> {
    match config.has_open_acl() {
        true => Acls::anyone_all(),
        false => Acls::new(&READABLE_BY_ALL),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

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
        let base = |pzxid| base(Mode::Exclusive, 20, pzxid, false);
        // Nobody was before it; somebody was; the server does not count the creation after 2^31 others.
        assert_eq!((base(20), base(25), base(15)), (Some(20), Some(25), Some(20)));
    }

    #[test]
    fn a_reader_takes_its_creation_if_nothing_happened_since() {
        let base = |pzxid, beside_downgraded| base(Mode::Shared, 20, pzxid, beside_downgraded);
        assert_eq!(base(20, false), Some(20));
        // Somebody has come or gone; the writer beside it may have this base, too.
        assert_eq!((base(25, false), base(15, false), base(20, true)), (None, None, None));
    }

    #[test]
    fn only_some_bases_are_known_to_others() {
        let known = |mzxid, pzxid| known_base(Mode::Exclusive, 20, mzxid, pzxid);
        assert_eq!(known(20, 20), Some(20));
        // A later waiter came, or an earlier holder left.
        assert_eq!(known(20, 25), None);
        assert_eq!((known(30, 20), known(30, 35)), (Some(30), Some(30)));
        let known = |mzxid, pzxid| known_base(Mode::Shared, 20, mzxid, pzxid);
        assert_eq!((known(20, 20), known(30, 20)), (None, Some(30)));
    }

    #[test]
    fn a_grant_reserves_no_more_tokens_than_there_are() {
        assert_eq!((reserved(0), reserved(1), reserved(16), reserved(17)), (1, 1, 16, 16));
    }

    #[test]
    fn an_offset_is_decimal_text() {
        for offset in [0, 7, 1 << 50, i64::MAX] {
            assert_eq!(parse_offset(&offset_data(offset)), Some(offset));
        }
        assert_eq!(offset_data(1_234), b"1234");
        // As in nodes of Curator, which have no data.
        assert_eq!(offset_data(0), b"");
        for other in ["-1", "x", "10.0.0.5", "9223372036854775808", " 1", "\u{e4}"] {
            assert_eq!(parse_offset(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parse_offset(b"\xff"), None);
    }
}
