//! What the fence's node says about a token.

use lock_core::{FencingToken, Stale};

/// How a holder enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

/// The newest tokens that have entered: the data of the fence's node, as two decimal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entered {
    writer: u64,
    reader: u64,
}

/// What an enter has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing: the token has entered.
    Done,
    /// The node's data. And the node's children are deleted, but for the one of this writer, which is created if missing.
    Change(Entered, Option<FencingToken>),
    Rejected(Stale),
}

impl Entered {
    /// `None` for other data.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let (writer, reader) = std::str::from_utf8(data).ok()?.split_once(' ')?;
        Some(Self {
            writer: writer.parse().ok()?,
            reader: reader.parse().ok()?,
        })
    }

    pub(super) fn to_data(self) -> Vec<u8> {
        format!("{} {}", self.writer, self.reader).into_bytes()
    }

    /// What has to change for this token to enter. `children` are those of the fence's node: the writer that may write.
    pub(super) fn enter(self, role: Role, token: FencingToken, children: &[String]) -> Entry {
        let number = token.as_u64();
        let newest = match role {
            Role::Writer => self.writer.max(self.reader),
            Role::Reader => self.writer,
        };
        if newest > number {
            return Entry::Rejected(Stale::new(token, newest));
        }
        let entered = match role {
            Role::Writer => Self { writer: number, ..self },
            Role::Reader => Self {
                reader: self.reader.max(number),
                ..self
            },
        };
        let writer = entered.may_write();
        let is_marked = match writer {
            Some(writer) => *children == [writer.to_string()],
            None => children.is_empty(),
        };
        match entered == self && is_marked {
            true => Entry::Done,
            false => Entry::Change(entered, writer),
        }
    }

    /// Whether a token that has entered is still admitted.
    pub(super) fn check(self, role: Role, token: FencingToken) -> Result<(), Stale> {
        let number = token.as_u64();
        let (is_admitted, newest) = match role {
            Role::Writer => (
                self.writer == number && self.reader <= number,
                self.writer.max(self.reader),
            ),
            Role::Reader => (self.writer <= number && number <= self.reader, self.writer),
        };
        match is_admitted {
            true => Ok(()),
            false => Err(Stale::new(token, newest)),
        }
    }

    /// The newest writer, unless a reader is newer.
    fn may_write(self) -> Option<FencingToken> {
        FencingToken::new(self.writer).filter(|_| self.reader <= self.writer)
    }
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

    #[test]
    fn a_writer_enters_after_all_older_tokens() {
        let enter = |state: Entered, children: &[String]| state.enter(Role::Writer, token(5), children);
        let change = Entry::Change(entered(5, 4), Some(token(5)));
        assert_eq!(enter(entered(3, 4), &[]), change);
        assert_eq!(enter(entered(5, 4), &children(5)), Entry::Done);
        assert_eq!(
            enter(entered(6, 0), &children(6)),
            Entry::Rejected(Stale::new(token(5), 6))
        );
        assert_eq!(enter(entered(4, 7), &[]), Entry::Rejected(Stale::new(token(5), 7)));
    }

    #[test]
    fn a_reader_enters_after_all_older_writers_and_ends_them() {
        let enter = |state: Entered, children: &[String]| state.enter(Role::Reader, token(5), children);
        assert_eq!(enter(entered(3, 0), &children(3)), Entry::Change(entered(3, 5), None));
        assert_eq!(enter(entered(3, 7), &[]), Entry::Done);
        assert_eq!(enter(entered(6, 7), &[]), Entry::Rejected(Stale::new(token(5), 6)));
        // After a downgrade, it is the same holder.
        let downgraded = Entry::Change(entered(5, 5), Some(token(5)));
        assert_eq!(enter(entered(5, 0), &children(5)), downgraded);
    }

    #[test]
    fn children_that_somebody_changed_are_mended() {
        let state = entered(5, 0);
        let mended = Entry::Change(state, Some(token(5)));
        assert_eq!(state.enter(Role::Writer, token(5), &[]), mended);
        assert_eq!(state.enter(Role::Writer, token(5), &children(4)), mended);
    }

    #[test]
    fn a_check_admits_what_entered_last() {
        let check = |state: Entered, role| state.check(role, token(5));
        for (state, role) in [
            (entered(5, 5), Role::Writer),
            (entered(5, 0), Role::Writer),
            (entered(5, 5), Role::Reader),
            (entered(0, 9), Role::Reader),
        ] {
            assert_eq!(check(state, role), Ok(()), "{state:?}");
        }
        for (state, role, newest) in [
            (entered(6, 0), Role::Writer, 6),
            (entered(5, 6), Role::Writer, 6),
            (entered(4, 0), Role::Writer, 0),
            (entered(6, 7), Role::Reader, 6),
            (entered(4, 4), Role::Reader, 0),
        ] {
            assert_eq!(check(state, role), Err(Stale::new(token(5), newest)), "{state:?}");
        }
    }

    #[test]
    fn the_data_is_two_numbers() {
        for state in [entered(0, 0), entered(7, 0), entered(u64::MAX, 3)] {
            assert_eq!(Entered::parse(&state.to_data()), Some(state));
        }
        assert_eq!(entered(7, 3).to_data(), b"7 3");
        for other in ["", "7", "7 x", "7 3 1", "-7 3", "10.0.0.5"] {
            assert_eq!(Entered::parse(other.as_bytes()), None, "{other}");
        }
    }
}
