//! The data of a queue entry's node: its owner's label, and marks.
//!
//! A node begins with the label alone, as nodes of older versions and of Curator do. Marks follow after a byte that no label
//! has, since labels are UTF-8: words, separated by spaces. Other versions show them as a part of the label.

use std::sync::Arc;

use lock_core::backend::{Busy, HolderId};

/// Separates the label from the marks.
const SEPARATOR: u8 = 0xFF;

const DOWNGRADED: &str = "shared";
const ENTERED: &str = "entered";
/// Before the id of the node's next holder. Only earlier versions write it.
const HOLDER: &str = "holder=";
const TOKEN: &str = "token=";
const KEEP: &str = "keep=";

/// The data of a queue entry's node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeData {
    pub(crate) label: Option<Arc<str>>,
    /// True if the exclusive hold has become a shared one.
    pub(crate) is_downgraded: bool,
    /// True if its owner was admitted beside others. The transaction id of this write is the base of its token.
    pub(crate) has_entered: bool,
    /// The hold's token, where the data was written after its grant.
    pub(crate) token: Option<u64>,
    /// For how many milliseconds from its last write the node keeps the name taken: that of a minimum hold.
    pub(crate) keep: Option<u64>,
}

impl NodeData {
    /// The data of a node whose request has this label.
    pub(crate) fn labelled(label: Option<Arc<str>>) -> Self {
        let label = label.filter(|label| !label.is_empty());
        Self {
            label,
            ..Self::default()
        }
    }

    /// Data that is not ours is all label.
    pub(crate) fn parse(data: &[u8]) -> Self {
        let Some(at) = data.iter().position(|byte| *byte == SEPARATOR) else {
            return Self::labelled(text(data));
        };
        let mut parsed = Self::labelled(text(&data[..at]));
        match parsed.read_marks(&data[at + 1..]) {
            Some(()) => parsed,
            None => Self::labelled(text(data)),
        }
    }

    fn read_marks(&mut self, marks: &[u8]) -> Option<()> {
        for word in std::str::from_utf8(marks).ok()?.split(' ') {
            if let Some(holder) = word.strip_prefix(HOLDER) {
                is_holder(holder).then_some(())?;
            } else if let Some(token) = word.strip_prefix(TOKEN) {
                self.token = Some(token.parse().ok()?);
            } else if let Some(keep) = word.strip_prefix(KEEP) {
                self.keep = Some(keep.parse().ok()?);
            } else {
                match word {
                    DOWNGRADED => self.is_downgraded = true,
                    ENTERED => self.has_entered = true,
                    _ => return None,
                }
            }
        }
        Some(())
    }

    /// As it stands in the node.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut data = self.label.as_deref().unwrap_or_default().as_bytes().to_vec();
        let mut marks = Vec::new();
        marks.extend(self.is_downgraded.then(|| DOWNGRADED.to_owned()));
        marks.extend(self.has_entered.then(|| ENTERED.to_owned()));
        marks.extend(self.token.map(|token| format!("{TOKEN}{token}")));
        marks.extend(self.keep.map(|keep| format!("{KEEP}{keep}")));
        if !marks.is_empty() {
            data.push(SEPARATOR);
            data.extend(marks.join(" ").into_bytes());
        }
        data
    }

    /// Busy, by the holder whose node has this data.
    pub(crate) fn busy(&self) -> Busy {
        match &self.label {
            Some(label) => Busy::new().with_holder(label.clone()),
            None => Busy::new(),
        }
    }
}

fn is_holder(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == HolderId::HEX_DIGITS && text.bytes().all(is_digit)
}

fn text(data: &[u8]) -> Option<Arc<str>> {
    Some(String::from_utf8_lossy(data).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(label: &str) -> NodeData {
        NodeData::labelled(Some(label.into()))
    }

    /// These never change: an old version must read what a new one writes, and a new one what an old one wrote.
    #[test]
    fn golden() {
        let downgraded = NodeData {
            is_downgraded: true,
            token: Some(4711),
            ..labelled("a b")
        };
        let entered = NodeData {
            has_entered: true,
            ..NodeData::default()
        };
        let kept = NodeData {
            keep: Some(1500),
            ..labelled("host:7")
        };
        for (data, encoded) in [
            (kept, &b"host:7\xFFkeep=1500"[..]),
            (NodeData::default(), b""),
            (labelled("host:7"), b"host:7"),
            (downgraded, b"a b\xFFshared token=4711"),
            (entered, b"\xFFentered"),
        ] {
            assert_eq!(data.encode(), encoded);
            assert_eq!(NodeData::parse(encoded), data);
        }
        // Written by earlier versions alone.
        let given = b"\xC3\xA9\xFFholder=0123456789abcdef0123456789abcdef";
        assert_eq!(NodeData::parse(given), labelled("é"));
    }

    #[test]
    fn a_request_that_is_refused_learns_the_label_of_the_holder() {
        let busy = |data: &[u8]| NodeData::parse(data).busy().holder;
        assert_eq!(busy(b"host:7\xFFentered").as_deref(), Some("host:7"));
        assert_eq!((busy(b""), busy(b"\xFFentered")), (None, None));
    }

    #[test]
    fn a_label_is_never_a_mark() {
        for label in ["shared", "\0shared", "token=1", "\u{ff}shared", "a shared"] {
            let data = labelled(label);
            assert_eq!(NodeData::parse(&data.encode()), data);
            assert!(!NodeData::parse(label.as_bytes()).is_downgraded);
        }
    }

    #[test]
    fn data_that_is_not_ours_is_all_label() {
        for odd in [
            &b"x\xFF"[..],
            b"x\xFFshared other",
            b"x\xFF shared",
            b"x\xFFholder=7",
            b"x\xFFtoken=-1",
            b"x\xFFshared\xFF",
            b"\xFF\xFFshared",
        ] {
            let data = NodeData::parse(odd);
            assert_eq!(data, labelled(&String::from_utf8_lossy(odd)), "{odd:?}");
        }
    }
}
