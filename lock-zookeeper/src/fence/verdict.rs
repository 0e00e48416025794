//! The change of the fence's node with which a token enters.

use lock_core::{FencingToken, Stale};
use lock_kit::fence::{Entered, Role};

/// The changes that an enter makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The node's data from then on.
    pub(super) entered: Entered,
    /// The writer that may write. The node's children are deleted, but for the one of this writer, which is created if missing.
    pub(super) writer: Option<FencingToken>,
}

/// The changes with which this token enters; `None` if it has entered. `children` are those of the fence's node: the
/// writer that may write.
pub(super) fn enter(
    entered: Entered,
    role: Role,
    token: FencingToken,
    children: &[String],
) -> Result<Option<Change>, Stale> {
    let after = entered.enter(role, token)?;
    // The newest writer, unless a reader is newer.
    let writer = FencingToken::new(after.writer).filter(|_| after.reader <= after.writer);
    let is_marked = match writer {
        Some(writer) => *children == [writer.to_string()],
        None => children.is_empty(),
    };
    let change = Change { entered: after, writer };
    Ok((after != entered || !is_marked).then_some(change))
}

/// The node's data: two decimal numbers, the writer's first.
pub(super) fn to_data(entered: Entered) -> Vec<u8> {
    format!("{} {}", entered.writer, entered.reader).into_bytes()
}

/// `None` for other data.
pub(super) fn parse(data: &[u8]) -> Option<Entered> {
    let (writer, reader) = std::str::from_utf8(data).ok()?.split_once(' ')?;
    Some(Entered {
        writer: writer.parse().ok()?,
        reader: reader.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn entered(writer: u64, reader: u64) -> Entered {
        Entered { writer, reader }
    }

    fn children(writer: u64) -> Vec<String> {
        vec![writer.to_string()]
    }

    /// The changes with which the token 5 enters, if it is not rejected.
    fn change(state: Entered, role: Role, children: &[String]) -> Option<(Entered, Option<FencingToken>)> {
        let change = enter(state, role, token(5), children).expect("not rejected");
        change.map(|change| (change.entered, change.writer))
    }

    #[test]
    fn a_writer_that_enters_is_the_one_that_may_write() {
        let enters = |state, children: &[String]| change(state, Role::Writer, children);
        assert_eq!(enters(entered(3, 4), &[]), Some((entered(5, 4), Some(token(5)))));
        assert_eq!(enters(entered(5, 4), &children(5)), None);
        let rejected = enter(entered(6, 0), Role::Writer, token(5), &children(6));
        assert_eq!(rejected, Err(Stale::new(token(5), 6)));
    }

    #[test]
    fn a_reader_ends_older_writers() {
        let enters = |state, children: &[String]| change(state, Role::Reader, children);
        assert_eq!(enters(entered(3, 0), &children(3)), Some((entered(3, 5), None)));
        assert_eq!(enters(entered(3, 7), &[]), None);
        // After a downgrade, it is the same holder.
        assert_eq!(
            enters(entered(5, 0), &children(5)),
            Some((entered(5, 5), Some(token(5))))
        );
    }

    #[test]
    fn children_that_somebody_changed_are_mended() {
        let mended = Some((entered(5, 0), Some(token(5))));
        assert_eq!(change(entered(5, 0), Role::Writer, &[]), mended);
        assert_eq!(change(entered(5, 0), Role::Writer, &children(4)), mended);
    }

    #[test]
    fn the_data_is_two_numbers() {
        for state in [entered(0, 0), entered(7, 0), entered(u64::MAX, 3)] {
            assert_eq!(parse(&to_data(state)), Some(state));
        }
        assert_eq!(to_data(entered(7, 3)), b"7 3");
        for other in ["", "7", "7 x", "7 3 1", "-7 3", "10.0.0.5"] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
}
