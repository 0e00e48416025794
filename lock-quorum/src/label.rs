//! The labels of votes. At a node each one ends with a mark of its hold, so that a status tells holders with the same label apart.

use std::sync::Arc;

use lock_core::backend::HolderId;

/// The longest label, in bytes.
const LONGEST: usize = 255;
/// The number of digits of the hold's id in the mark.
const DIGITS: usize = 8;
/// The text before the digits.
const SIGN: &str = "#";

/// The label of a vote for the hold with this id: `web-3:4711 #1f2e3d4c`. A very long one is cut, so that the mark is kept.
pub(crate) fn marked(label: Option<&str>, hold: HolderId) -> String {
    let id = hold.to_string();
    let mark = &id[..DIGITS];
    match label {
        None => format!("{SIGN}{mark}"),
        Some(label) => {
            let longest = LONGEST - DIGITS - SIGN.len() - 1;
            let mut ends = 0..=longest.min(label.len());
            let end = ends.rfind(|end| label.is_char_boundary(*end)).unwrap_or(0);
            format!("{} {SIGN}{mark}", &label[..end])
        }
    }
}

/// The holder's label and the mark, of a label at a node. Without a mark it is no vote.
pub(crate) fn split(label: &Arc<str>) -> (Option<Arc<str>>, Option<&str>) {
    let Some((before, mark)) = label.rsplit_once(SIGN) else {
        return (Some(label.clone()), None);
    };
    let is_mark = mark.len() == DIGITS && mark.bytes().all(|digit| digit.is_ascii_hexdigit());
    match (before, before.strip_suffix(' ')) {
        ("", _) if is_mark => (None, Some(mark)),
        (_, Some(before)) if is_mark => (Some(before.into()), Some(mark)),
        _ => (Some(label.clone()), None),
    }
}

/// The text that tells a hold from others at all nodes: the mark of a quorum's hold, or else the label.
pub(crate) fn mark(label: Option<&Arc<str>>) -> Arc<str> {
    match label {
        None => "".into(),
        Some(label) => split(label).1.map_or_else(|| label.clone(), Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(label: &str) -> (Option<String>, Option<String>) {
        let label = Arc::from(label);
        let (label, mark) = split(&label);
        (label.map(|label| label.to_string()), mark.map(str::to_owned))
    }

    #[test]
    fn a_vote_has_its_holder_s_label_and_the_mark_of_its_hold() {
        let (hold, other) = (HolderId::random(), HolderId::random());
        for label in [
            None,
            Some(""),
            Some("web-3:4711"),
            Some("a #b"),
            Some("#1f2e3d4c"),
            Some("日本 "),
        ] {
            let (read, mark) = parts(&marked(label, hold));
            assert_eq!(read.as_deref(), label);
            assert_eq!(mark, parts(&marked(label, hold)).1);
            assert_ne!(mark, parts(&marked(label, other)).1, "but for one in four billion");
        }
    }

    #[test]
    fn a_long_label_is_cut_and_not_its_mark() {
        let hold = HolderId::random();
        for long in ["a".repeat(255), "é".repeat(127)] {
            let vote = marked(Some(&long), hold);
            assert!(vote.len() <= LONGEST, "{} bytes", vote.len());
            let (label, mark) = parts(&vote);
            assert!(long.starts_with(&label.unwrap()) && hold.to_string().starts_with(&mark.unwrap()));
        }
        assert_eq!(
            marked(Some(&"a".repeat(255)), hold).len(),
            LONGEST,
            "as much as fits is kept"
        );
    }

    #[test]
    fn a_hold_is_told_apart_by_its_mark_and_a_foreign_holder_by_its_label() {
        let [marked, foreign] = ["web #1f2e3d4c", "elsewhere"].map(Arc::from);
        assert_eq!(&*mark(Some(&marked)), "1f2e3d4c");
        assert_eq!(&*mark(Some(&foreign)), "elsewhere");
        assert_eq!(&*mark(None), "");
    }

    #[test]
    fn other_labels_are_no_votes() {
        for label in [
            "",
            "elsewhere",
            "#1",
            "a#1f2e3d4c",
            "a #1f2e3d4",
            "a #1f2e3d4x",
            "a #1f2e3d4cc",
        ] {
            assert_eq!(parts(label), (Some(label.to_owned()), None));
        }
    }
}
