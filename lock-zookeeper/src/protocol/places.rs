//! The names of queue entries: each says how its owner asks for the lock, and its number in the queue.
//!
//! Nodes are named in Curator's protected format, so that both can share a queue: `_c_<uuid>-lock-<sequence>` for an exclusive
//! request, `_c_<uuid>-read-lock-<sequence>` for a reader, and `_c_<uuid>-p2.10-lock-<sequence>` for two permits of ten. Clients
//! that know no modes count all of them as entries before their own. Nodes of kazoo's locks count as exclusive ones.

use std::cmp::Reverse;

use lock_core::backend::{HolderId, Mode, Permits};

const MARK: &str = "lock-";

/// The marks before the sequence in the names of queue entries: ours and Curator's, kazoo's locks, and its read locks,
/// which count like any other.
const MARKS: [&str; 3] = [MARK, "__lock__", "__rlock__"];

/// The length of `_c_<uuid>`.
const PROTECTED: usize = 39;

/// A queue entry: a child of the lock's directory that holds the lock or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    /// As its name says: an exclusive one may have been [downgraded](super::NodeData::is_downgraded).
    pub(crate) mode: Mode,
    sequence: i32,
}

impl Place<'_> {
    /// True if nobody knows which of both came first.
    pub(crate) fn is_tied_with(&self, other: &Place<'_>) -> bool {
        self.sequence == other.sequence
    }
}

/// True if there are queue entries in this mode.
pub(crate) fn is_known(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Shared | Mode::Permits(_))
}

/// The names of this holder's nodes, without the sequence.
pub(crate) fn prefix(holder: HolderId, mode: Mode) -> String {
    // Always 32 digits.
    let hex = holder.to_string();
    let how = match mode {
        Mode::Shared => "read-".to_owned(),
        Mode::Permits(permits) => format!("p{}.{}-", permits.take(), permits.of()),
        // It excludes all others, whatever else it may be.
        _ => String::new(),
    };
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("_c_{a}-{b}-{c}-{d}-{e}-{how}{MARK}")
}

/// The mark in the names of kept nodes, behind their holder's id.
const KEPT: &str = "-keep";

/// The name of the node that keeps the name taken for the minimum hold of this entry. It has the entry's sequence, so that it takes
/// that place in the queue when the entry is gone. `None` unless the entry is an exclusive one of ours.
pub(crate) fn kept_name(entry: &str) -> Option<String> {
    let (protection, rest) = entry.split_at_checked(PROTECTED)?;
    let is_ours = rest.strip_prefix('-')?.starts_with(MARK);
    is_ours.then(|| format!("{protection}{KEPT}{rest}"))
}

/// The entry whose minimum hold this node keeps.
fn kept_entry(name: &str) -> Option<String> {
    let (protection, rest) = name.split_at_checked(PROTECTED)?;
    let rest = rest.strip_prefix(KEPT)?;
    rest.starts_with('-').then(|| format!("{protection}{rest}"))
}

/// True if this is the name of a kept node.
pub(crate) fn is_kept(name: &str) -> bool {
    kept_entry(name).is_some()
}

/// The kept node that stands in front of the queue, and how many stand between it and the entry `own`. None as long as its entry is
/// there.
pub(crate) fn kept_in_front<'a>(children: &'a [String], own: &str) -> Option<(&'a str, usize)> {
    let queue = places(children);
    let first = queue.first().filter(|first| kept_entry(first.name).is_some())?;
    let index = queue.iter().position(|place| place.name == own)?;
    Some((first.name, index.checked_sub(1)?))
}

/// The kept nodes whose entry is gone.
pub(crate) fn left_kept(children: &[String]) -> Vec<&str> {
    let places = places(children).into_iter().map(|place| place.name);
    places.filter(|name| kept_entry(name).is_some()).collect()
}

/// The queue entries among a directory's children, in the order of the queue. Other children do not count, nor does a kept node whose
/// entry is there.
pub(crate) fn places(children: &[String]) -> Vec<Place<'_>> {
    let is_needless = |name: &str| kept_entry(name).is_some_and(|entry| children.contains(&entry));
    let counted = children.iter().filter(|child| !is_needless(child));
    let mut places: Vec<_> = counted.filter_map(|child| place(child)).collect();
    places.sort_unstable_by_key(|place| (place.sequence, place.name));
    let first = first(&places);
    places.rotate_left(first);
    places
}

/// True if this is the name of a queue entry.
pub(crate) fn is_place(name: &str) -> bool {
    place(name).is_some()
}

fn place(name: &str) -> Option<Place<'_>> {
    MARKS.into_iter().find_map(|mark| {
        let (before, number) = name.rsplit_once(mark)?;
        Some(Place {
            name,
            mode: if mark == MARK { mode(before) } else { Mode::Exclusive },
            sequence: sequence(number)?,
        })
    })
}

/// The mode by what stands before `lock-`. Whatever is not of our own format is exclusive.
fn mode(before: &str) -> Mode {
    let ours = |before: &str| -> Option<Mode> {
        let (protection, how) = before.split_at_checked(PROTECTED)?;
        let how = how.strip_prefix('-')?.strip_suffix('-')?;
        let uuid = protection.strip_prefix("_c_")?;
        uuid.bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            .then_some(())?;
        if how == "read" {
            return Some(Mode::Shared);
        }
        let (take, of) = how.strip_prefix('p')?.split_once('.')?;
        let permits = Permits::new(number(take)?, number(of)?).ok()?;
        Some(Mode::Permits(permits))
    };
    ours(before).unwrap_or(Mode::Exclusive)
}

/// A number as this crate writes it.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

/// A number as the server writes it: ten characters with a sign and zeros, or eleven if a sign precedes ten digits.
fn sequence(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_padded = match text.len() {
        10 => true,
        11 => digits.len() == 10 && !digits.starts_with('0'),
        _ => false,
    };
    let is_number = is_padded && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The index of the entry that came first, among entries sorted by their numbers. The server's counter wraps from 2147483647 to
/// -2147483648, so the queue begins behind the widest gap of the circle. Numbers that a server gave lie on less than half of it.
fn first(places: &[Place<'_>]) -> usize {
    let before = places.iter().cycle().skip(places.len().saturating_sub(1));
    let gaps = before
        .zip(places)
        .map(|(before, place)| place.sequence.wrapping_sub(before.sequence).cast_unsigned());
    let widest = (0..).zip(gaps).max_by_key(|(index, gap)| (*gap, Reverse(*index)));
    widest.map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "_c_01234567-89ab-cdef-0123-456789abcdef";

    fn permits(take: u32, of: u32) -> Mode {
        Mode::Permits(Permits::new(take, of).expect("fewer than there are"))
    }

    /// These never change: a new version must wait in one queue with an old one.
    #[test]
    fn golden() {
        let golden = [
            (Mode::Exclusive, "-lock-"),
            (Mode::Shared, "-read-lock-"),
            (permits(2, 10), "-p2.10-lock-"),
            (permits(1, u32::MAX), "-p1.4294967295-lock-"),
        ];
        for (mode, end) in golden {
            let holder = HolderId::random();
            let prefix = prefix(holder, mode);
            let uuid = prefix.strip_prefix("_c_").and_then(|rest| rest.strip_suffix(end));
            let uuid = uuid.expect("Curator's protected format");
            assert_eq!((uuid.len(), uuid.replace('-', "")), (36, holder.to_string()));
            let name = format!("{prefix}0000000012");
            assert_eq!(place(&name).map(|place| (place.mode, place.sequence)), Some((mode, 12)));
        }
        assert!(golden.iter().all(|(mode, _)| is_known(*mode)));
        assert!(!is_known(Mode::Upgradable));
    }

    /// A kept node is nobody's while its entry is there, and stands in its place after that.
    #[test]
    fn a_kept_node_takes_the_place_of_its_entry() {
        let [first, second, third] = ["1", "2", "3"].map(|number| format!("{UUID}-lock-000000000{number}"));
        let kept = kept_name(&first).expect("an entry of ours");
        assert!(is_kept(&kept) && !is_kept(&first));
        assert_eq!(kept, format!("{UUID}-keep-lock-0000000001"));
        assert_eq!(kept_name(&format!("{UUID}-lock-")), Some(format!("{UUID}-keep-lock-")));
        let names = |children: &[String]| -> Vec<String> {
            let places = places(children);
            assert!(places.iter().all(|place| place.mode == Mode::Exclusive));
            places.iter().map(|place| place.name.to_owned()).collect()
        };
        let held = [second.clone(), kept.clone(), first.clone(), third.clone()];
        assert_eq!(names(&held), [first, second.clone(), third.clone()]);
        assert_eq!(kept_in_front(&held, &second), None);
        assert_eq!(left_kept(&held), [""; 0]);
        let left = [second.clone(), kept.clone(), third.clone()];
        assert_eq!(names(&left), [kept.clone(), second.clone(), third.clone()]);
        assert_eq!(left_kept(&left), [kept.as_str()]);
        assert_eq!(kept_in_front(&left, &second), Some((kept.as_str(), 0)));
        assert_eq!(kept_in_front(&left, &third), Some((kept.as_str(), 1)));
        assert_eq!(kept_in_front(&left[..1], &second), None);
    }

    #[test]
    fn only_exclusive_entries_of_ours_have_a_kept_node() {
        for other in [
            format!("{UUID}-read-lock-0000000001"),
            format!("{UUID}-p1.2-lock-0000000001"),
            format!("{UUID}-keep-lock-0000000001"),
            format!("{}__lock__0000000001", "9d1f0a62e4f14a1b8b4f2a0c5d6e7f80"),
            "lock-0000000001".to_owned(),
        ] {
            assert_eq!(kept_name(&other), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_of_our_format_is_exclusive() {
        for before in [
            "lock-",
            "read-lock-",
            "_c_x-read-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcdef-p0.1-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcdef-p2.1-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcdef-p1.4294967296-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcdef-p01.2-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcdef-read-read-lock-",
            "_c_01234567-89ab-cdef-0123-456789abcd\u{e9}-read-lock-",
            "_c_g1234567-89ab-cdef-0123-456789abcdef-read-lock-",
            "\u{e9}-read-lock-",
        ] {
            let name = format!("{before}0000000001");
            assert_eq!(place(&name).map(|place| place.mode), Some(Mode::Exclusive), "{name}");
        }
    }

    /// The server's format is Java's `%010d` of an `int`.
    #[test]
    fn a_sequence_has_ten_digits() {
        let numbers = [0_i32, 7, i32::MAX, i32::MIN, -1_000_000_000, -999_999_999, -5];
        for number in numbers {
            assert_eq!(sequence(&format!("{number:010}")), Some(number));
        }
        for other in [
            "1",
            "00000000001",
            "2147483648",
            "-2147483649",
            "-0000000005",
            "+000000005",
            "00000x0001",
            "0000000002147483648",
            "",
        ] {
            assert_eq!(sequence(other), None, "{other}");
        }
    }

    #[test]
    fn nodes_of_kazoo_count() {
        let read = format!("{UUID}-read-__lock__0000000006");
        let all = [
            "9d1f0a62e4f14a1b8b4f2a0c5d6e7f80__lock__0000000007",
            "_c_id-lock-0000000009",
            "9d1f0a62e4f14a1b8b4f2a0c5d6e7f80__rlock__0000000008",
            &read,
        ]
        .map(str::to_owned);
        assert!(all.iter().all(|name| is_place(name)));
        let places = places(&all);
        let numbers: Vec<_> = places.iter().map(|place| place.sequence).collect();
        assert_eq!(numbers, [6, 7, 8, 9]);
        assert!(places.iter().all(|place| place.mode == Mode::Exclusive));
    }

    fn in_order(sequences: &[&str]) -> Vec<String> {
        let children: Vec<_> = sequences.iter().map(|text| format!("{UUID}-lock-{text}")).collect();
        places(&children)
            .iter()
            .map(|place| place.sequence.to_string())
            .collect()
    }

    #[test]
    fn the_queue_is_in_the_order_of_sequences_also_where_the_counter_wraps() {
        assert_eq!(
            in_order(&["0000000012", "0000000010", "0000000011"]),
            ["10", "11", "12"]
        );
        assert_eq!(
            in_order(&["-2147483648", "2147483647", "-2147483647"]),
            ["2147483647", "-2147483648", "-2147483647"]
        );
        assert_eq!(in_order(&["0000000000", "-000000001"]), ["-1", "0"]);
    }

    /// Whoever may write into the directory can make such nodes. No two of them are in an order that a third one contradicts.
    #[test]
    fn numbers_all_around_the_circle_have_an_order() {
        let around = ["0000000000", "1431655765", "-1431655766"];
        assert_eq!(in_order(&around), ["0", "1431655765", "-1431655766"]);
        let many = around.repeat(20);
        let expected = ["0", "1431655765", "-1431655766"]
            .map(|number| vec![number; 20])
            .concat();
        assert_eq!(in_order(&many), expected);
    }

    #[test]
    fn strangers_are_no_queue_entries() {
        let strangers = [
            "config",
            "lock-",
            "lock-x",
            "lock-1",
            "lock-0000000001-old",
            "__lock__",
            "",
        ]
        .map(str::to_owned);
        assert_eq!(places(&strangers), []);
        assert!(!strangers.iter().any(|name| is_place(name)));
    }
}
