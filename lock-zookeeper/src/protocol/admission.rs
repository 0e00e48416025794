//! Decides which of a queue's entries hold the lock, and which event each other entry waits for.
//!
//! The queue is admitted in order: the first entries [fit](rules::fits) together, up to one that has to wait. Sequences
//! only grow, and an entry that was admitted stays so, since the part of the queue before it only shrinks.

use lock_core::backend::{Mode, rules};

use super::NodeData;
use super::places::{Place, places};

/// The number of requests for permits that watch the directory. Each other one watches the entry that is this many
/// before it.
const WATCH_THE_DIRECTORY: usize = 2;

/// A request's position in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// It has the lock.
    Admitted {
        /// True if the first holder was exclusive, and has been downgraded.
        beside_downgraded: bool,
    },
    /// It waits; `holder` is the first that has the lock.
    Behind { watch: Watch<'a>, holder: &'a str },
    /// Its node is not there.
    Missing,
    /// Another entry has the same sequence: nobody knows which of both came first.
    Tied,
}

/// The event that a waiter watches. After it, the queue must be listed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch<'a> {
    /// The end of this entry's node.
    End(&'a str),
    /// The same, or the downgrade of its hold.
    EndOrDowngrade(&'a str),
    /// The same, or that its owner has entered.
    EndOrEntry(&'a str),
    /// Any change of the directory's entries.
    Directory,
}

impl<'a> Watch<'a> {
    /// The entry whose data may say that what is waited for has happened.
    pub(crate) fn read_entry(self) -> Option<&'a str> {
        match self {
            Self::EndOrDowngrade(name) | Self::EndOrEntry(name) => Some(name),
            Self::End(_) | Self::Directory => None,
        }
    }

    /// True if the data of the entry's node shows that the event has happened.
    pub(crate) fn has_happened(self, data: &NodeData) -> bool {
        match self {
            Self::End(_) | Self::Directory => false,
            Self::EndOrDowngrade(_) => data.is_downgraded,
            Self::EndOrEntry(_) => data.has_entered,
        }
    }
}

/// The position of the node `own` among `children`. `downgraded`: the node of which it is known that its hold was.
pub(crate) fn position<'a>(children: &'a [String], own: &str, downgraded: Option<&str>) -> Position<'a> {
    let queue = places(children);
    let Some(index) = queue.iter().position(|place| place.name == own) else {
        return Position::Missing;
    };
    // Equal sequences stand side by side. The server's counter does not go on after 2147483647.
    let neighbors = [index.checked_sub(1), Some(index + 1)].into_iter().flatten();
    if neighbors
        .filter_map(|at| queue.get(at))
        .any(|other| other.is_tied_with(&queue[index]))
    {
        return Position::Tied;
    }
    let admitted = admitted(&queue, downgraded);
    let Some(first) = queue.first().filter(|_| admitted <= index) else {
        return Position::Admitted {
            beside_downgraded: index > 0 && is_downgraded(&queue, downgraded),
        };
    };
    let watch = watch(&queue[..index], queue[index].mode, admitted);
    let holder = first.name;
    Position::Behind { watch, holder }
}

/// An entry's name, and how it has the lock or asks for it.
pub(crate) type Entry<'a> = (&'a str, Mode);

/// Those who have the lock, and those who wait behind them, in the order of the queue.
pub(crate) fn holders<'a>(children: &'a [String], downgraded: Option<&str>) -> (Vec<Entry<'a>>, Vec<Entry<'a>>) {
    let queue = places(children);
    let admitted = admitted(&queue, downgraded);
    let entries = queue.iter().zip(modes(&queue, downgraded));
    let mut holders: Vec<_> = entries.map(|(place, mode)| (place.name, mode)).collect();
    let waiters = holders.split_off(admitted);
    (holders, waiters)
}

/// The entry whose data says whether readers behind it are admitted: the first, if it is an exclusive one.
pub(crate) fn may_be_downgraded(children: &[String]) -> Option<&str> {
    let queue = places(children);
    queue
        .first()
        .filter(|first| first.mode == Mode::Exclusive)
        .map(|first| first.name)
}

/// The number of entries at the front of the queue that have the lock.
fn admitted(queue: &[Place<'_>], downgraded: Option<&str>) -> usize {
    let mut held = Vec::new();
    for (index, mode) in modes(queue, downgraded).enumerate() {
        if !rules::fits(held.iter().copied(), mode) {
            return index;
        }
        // One reader stands for all.
        if mode != Mode::Shared || held.is_empty() {
            held.push(mode);
        }
    }
    queue.len()
}

/// Only the holder of the whole lock can be downgraded, and nobody is before it then.
fn modes(queue: &[Place<'_>], downgraded: Option<&str>) -> impl Iterator<Item = Mode> {
    let shared = is_downgraded(queue, downgraded);
    queue.iter().enumerate().map(move |(index, place)| match index {
        0 if shared => Mode::Shared,
        _ => place.mode,
    })
}

fn is_downgraded(queue: &[Place<'_>], downgraded: Option<&str>) -> bool {
    queue
        .first()
        .is_some_and(|first| first.mode == Mode::Exclusive && downgraded == Some(first.name))
}

/// The event that a request in this mode watches, behind the entries `before`, the first `admitted` of which have the
/// lock.
fn watch<'a>(before: &[Place<'a>], mode: Mode, admitted: usize) -> Watch<'a> {
    let is_permits = |place: &Place<'_>| matches!(place.mode, Mode::Permits(_));
    // Whatever does not go with this request has to leave before it is admitted, so the last of them does.
    let in_the_way = match mode {
        Mode::Shared => before.iter().rposition(|place| place.mode != Mode::Shared),
        Mode::Permits(_) => before.iter().rposition(|place| !is_permits(place)),
        _ => before.len().checked_sub(1),
    };
    match (in_the_way, mode) {
        // It may have been downgraded since the list: then those before it are gone.
        (Some(last), Mode::Shared) if before[last].mode == Mode::Exclusive => Watch::EndOrDowngrade(before[last].name),
        (Some(last), _) => Watch::End(before[last].name),
        (None, _) => {
            // There are permits alone. An entry that is not admitted stops all behind it, until it leaves or enters.
            let waiting = &before[admitted.min(before.len())..];
            match waiting.len().checked_sub(WATCH_THE_DIRECTORY) {
                Some(ahead) => Watch::EndOrEntry(waiting[ahead].name),
                None => Watch::Directory,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries in order: `x`, `r`, or permits such as `p2.3`; each is named by its kind and its number in the queue.
    fn queue(kinds: &[&str]) -> Vec<String> {
        let node = |(index, kind): (usize, &&str)| {
            let how = match *kind {
                "x" => String::new(),
                "r" => "read-".to_owned(),
                permits => format!("{permits}-"),
            };
            format!("_c_01234567-89ab-cdef-0123-456789abcdef-{how}lock-{index:010}")
        };
        // The server lists them in any order.
        kinds.iter().enumerate().map(node).rev().collect()
    }

    /// The entry that the entry of this number watches: `None` if it is admitted.
    fn watched(kinds: &[&str], index: usize, downgraded: bool) -> Option<(char, usize)> {
        let children = queue(kinds);
        let name = |index: usize| children[kinds.len() - 1 - index].as_str();
        let number = |name: &str| kinds.len() - 1 - children.iter().position(|child| child == name).expect("a child");
        match position(&children, name(index), downgraded.then(|| name(0))) {
            Position::Admitted { beside_downgraded } => {
                assert_eq!(beside_downgraded, downgraded && index > 0);
                None
            }
            Position::Behind { watch, holder } => {
                assert_eq!(holder, name(0));
                Some(match watch {
                    Watch::End(name) => ('e', number(name)),
                    Watch::EndOrDowngrade(name) => ('d', number(name)),
                    Watch::EndOrEntry(name) => ('g', number(name)),
                    Watch::Directory => ('*', 0),
                })
            }
            other => panic!("it is there, alone with its sequence: {other:?}"),
        }
    }

    /// It could precede a holder that was alone with that sequence before.
    #[test]
    fn an_entry_with_the_sequence_of_another_is_not_admitted() {
        let mut children = queue(&["x", "x", "x"]);
        let tied = "lock-0000000001".to_owned();
        children.push(tied.clone());
        let position_of = |name: &str| position(&children, name, None);
        assert_eq!(position_of(&tied), Position::Tied);
        assert_eq!(position_of(&children[1]), Position::Tied);
        assert!(matches!(position_of(&children[2]), Position::Admitted { .. }));
        assert!(matches!(position_of(&children[0]), Position::Behind { .. }));
    }

    #[test]
    fn the_lowest_has_it_and_the_others_watch_the_next_lower() {
        assert_eq!(watched(&["x", "x", "x"], 0, false), None);
        assert_eq!(watched(&["x", "x", "x"], 2, false), Some(('e', 1)));
        assert_eq!(watched(&["r", "r", "x"], 2, false), Some(('e', 1)));
        assert_eq!(watched(&["p1.2", "x"], 1, false), Some(('e', 0)));
    }

    #[test]
    fn readers_watch_the_last_that_is_no_reader() {
        for index in 0..3 {
            assert_eq!(watched(&["r", "r", "r", "x"], index, false), None);
        }
        assert_eq!(watched(&["r", "x", "r", "x", "r", "r"], 5, false), Some(('d', 3)));
        assert_eq!(watched(&["x", "r", "r"], 2, false), Some(('d', 0)));
        assert_eq!(watched(&["x", "x", "r"], 2, false), Some(('d', 1)));
        assert_eq!(watched(&["r", "p1.2", "r"], 2, false), Some(('e', 1)));
        assert_eq!(watched(&["p1.2", "r"], 1, false), Some(('e', 0)));
    }

    #[test]
    fn a_downgraded_hold_goes_with_readers_alone() {
        assert_eq!(watched(&["x", "r", "r"], 2, true), None);
        assert_eq!(watched(&["x", "r"], 0, true), None);
        assert_eq!(watched(&["x", "r", "x", "r"], 3, true), Some(('d', 2)));
        assert_eq!(watched(&["x", "x"], 1, true), Some(('e', 0)));
        assert_eq!(watched(&["x", "p1.2"], 1, true), Some(('e', 0)));
        // Others have no such data.
        let children = queue(&["r", "x", "r"]);
        let downgraded = Some(children[1].as_str());
        assert!(matches!(
            position(&children, &children[0], downgraded),
            Position::Behind { .. }
        ));
    }

    #[test]
    fn permits_are_admitted_in_order_and_watch_those_before_them() {
        assert_eq!(watched(&["p2.3", "p1.3"], 1, false), None);
        assert_eq!(watched(&["p2.3", "p2.3"], 1, false), Some(('*', 0)));
        let crowd = ["p2.3", "p2.3", "p1.3", "p1.3", "p1.3"];
        assert_eq!(watched(&crowd, 2, false), Some(('*', 0)));
        assert_eq!(watched(&crowd, 3, false), Some(('g', 1)));
        assert_eq!(watched(&crowd, 4, false), Some(('g', 2)));
        // Each by its own limit.
        assert_eq!(watched(&["p3.3", "p1.5"], 1, false), None);
        assert_eq!(watched(&["p1.5", "p1.5", "p1.2", "p1.5"], 3, false), Some(('*', 0)));
        // It watches the entry that is in the way of all of them.
        assert_eq!(
            watched(&["x", "p1.3", "p1.3", "p1.3", "p1.3"], 4, false),
            Some(('e', 0))
        );
        assert_eq!(watched(&["p1.3", "r", "p1.3"], 2, false), Some(('e', 1)));
    }

    #[test]
    fn a_node_that_is_gone_is_missing_and_strangers_count_as_writers() {
        let mut children = queue(&["r"]);
        assert_eq!(position(&children, "lock-0000000009", None), Position::Missing);
        let ours = children[0].replace("0000000000", "0000000008");
        children = vec![ours.clone(), "lock-0000000007".to_owned(), "config".to_owned()];
        let behind = Position::Behind {
            watch: Watch::EndOrDowngrade("lock-0000000007"),
            holder: "lock-0000000007",
        };
        assert_eq!(position(&children, &ours, None), behind);
        assert_eq!(holders(&["config".to_owned()], None), (vec![], vec![]));
    }

    #[test]
    fn all_who_have_the_lock_are_its_holders() {
        let count = |kinds: &[&str], downgraded: bool| {
            let children = queue(kinds);
            let first = may_be_downgraded(&children).filter(|_| downgraded);
            let (holders, waiters) = holders(&children, first);
            (holders.len(), waiters.len())
        };
        assert_eq!(count(&["x", "r", "x"], false), (1, 2));
        assert_eq!(count(&["x", "r", "x"], true), (2, 1));
        assert_eq!(count(&["r", "r", "x", "r"], true), (2, 2));
        assert_eq!(count(&["p1.3", "p2.3", "p1.3"], false), (2, 1));
        assert_eq!(count(&["r"; 5000], false), (5000, 0));
    }

    /// Of a downgrade and an entry, which may have come before the watch.
    #[test]
    fn a_node_is_read_if_its_data_may_say_what_is_waited_for() {
        assert_eq!(Watch::EndOrDowngrade("a").read_entry(), Some("a"));
        assert_eq!(Watch::EndOrEntry("b").read_entry(), Some("b"));
        assert_eq!(
            (Watch::End("a").read_entry(), Watch::Directory.read_entry()),
            (None, None)
        );
    }

    #[test]
    fn what_is_waited_for_may_stand_in_the_data() {
        let data = |is_downgraded, has_entered| NodeData {
            is_downgraded,
            has_entered,
            ..NodeData::default()
        };
        assert!(!Watch::End("a").has_happened(&data(true, true)));
        assert!(Watch::EndOrDowngrade("a").has_happened(&data(true, false)));
        assert!(!Watch::EndOrDowngrade("a").has_happened(&data(false, true)));
        assert!(Watch::EndOrEntry("a").has_happened(&data(false, true)));
        assert!(!Watch::EndOrEntry("a").has_happened(&data(true, false)));
    }
}
