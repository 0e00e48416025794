//! The rule in every order of two writers and a reader.

use super::*;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn entered(writer: u64, reader: u64) -> Entered {
    Entered { writer, reader }
}

#[test]
fn a_writer_enters_after_all_older_tokens() {
    let enter = |state: Entered| state.enter(Role::Writer, token(5));
    assert_eq!(enter(entered(3, 4)), Ok(entered(5, 4)));
    assert_eq!(enter(entered(5, 4)), Ok(entered(5, 4)));
    assert_eq!(enter(entered(6, 0)), Err(Stale::new(token(5), 6)));
    assert_eq!(enter(entered(4, 7)), Err(Stale::new(token(5), 7)));
}

#[test]
fn a_reader_enters_after_all_older_writers() {
    let enter = |state: Entered| state.enter(Role::Reader, token(5));
    assert_eq!(enter(entered(3, 0)), Ok(entered(3, 5)));
    assert_eq!(enter(entered(3, 7)), Ok(entered(3, 7)));
    assert_eq!(enter(entered(6, 7)), Err(Stale::new(token(5), 6)));
    // After a downgrade, it is the same holder.
    assert_eq!(enter(entered(5, 0)), Ok(entered(5, 5)));
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

/// The ways in which readers take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    CheckAndRegister,
    CheckOnly,
    RegisterOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Enter,
    Read,
    /// A writer changes the first cell, by what it has read there. A reader reads it.
    First,
    /// A writer copies the first cell to the second. A reader reads it.
    Second,
}

const WRITER: &[Step] = &[Step::Enter, Step::Read, Step::First, Step::Second];
const READER: &[Step] = &[Step::Enter, Step::First, Step::Second];

/// An older writer, a reader and a newer writer, by their tokens.
const HOLDERS: [(u64, &[Step]); 3] = [(1, WRITER), (2, READER), (3, WRITER)];

/// The resource has two cells, which are always equal between two holders.
#[derive(Clone, Debug, Default)]
struct Run {
    entered: Entered,
    cells: [u64; 2],
    rejected: [bool; 3],
    seen: [u64; 3],
    torn: bool,
    lost: bool,
    /// The steps that each holder has taken.
    taken: [usize; 3],
}

impl Run {
    /// Takes the next step of a holder.
    fn step(&mut self, holder: usize, readers: Readers) {
        let (number, steps) = HOLDERS[holder];
        let step = steps[self.taken[holder]];
        self.taken[holder] += 1;
        if self.rejected[holder] {
            return;
        }
        let is_reader = steps == READER;
        let admitted = match (is_reader, step) {
            (false, Step::Enter) => self.enters(Role::Writer, number),
            (false, _) => self.entered.check(Role::Writer, token(number)).is_ok(),
            (true, _) => self.admits_reader(number, step, readers),
        };
        match (is_reader, step) {
            _ if !admitted => self.rejected[holder] = true,
            (_, Step::Enter) => {}
            (_, Step::Read) | (true, Step::First) => self.seen[holder] = self.cells[0],
            (true, Step::Second) => self.torn |= self.seen[holder] != self.cells[1],
            (false, Step::First) => {
                self.lost |= self.seen[holder] != self.cells[0];
                self.cells[0] = self.seen[holder] * 10 + number;
            }
            (false, Step::Second) => self.cells[1] = self.cells[0],
        }
    }

    fn enters(&mut self, role: Role, number: u64) -> bool {
        let after = self.entered.enter(role, token(number));
        self.entered = after.unwrap_or(self.entered);
        after.is_ok()
    }

    fn admits_reader(&mut self, number: u64, step: Step, readers: Readers) -> bool {
        match (readers, step) {
            (Readers::CheckAndRegister, Step::Enter) => self.enters(Role::Reader, number),
            (Readers::CheckAndRegister, _) => self.entered.check(Role::Reader, token(number)).is_ok(),
            (Readers::CheckOnly, _) => self.entered.writer <= number,
            (Readers::RegisterOnly, _) => {
                self.entered.reader = self.entered.reader.max(number);
                true
            }
        }
    }

    /// True if the older writer is between its two cells: it has changed one, or was rejected there.
    fn is_half_written(&self) -> bool {
        self.taken[0] == WRITER.len() - 1
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    orders: u32,
    torn: u32,
    lost: u32,
}

/// Goes on in every order. If the older writer expired half-way, what it left is for the next writer to mend: a reader that enters
/// then is not counted.
fn every_order(run: &Run, readers: Readers, found: &mut Found) {
    let mut at_end = true;
    for (holder, (_, steps)) in HOLDERS.iter().enumerate() {
        if run.taken[holder] == steps.len() {
            continue;
        }
        at_end = false;
        let enters = run.taken[holder] == 0 && *steps == READER;
        if !(enters && run.is_half_written()) {
            let mut next = run.clone();
            next.step(holder, readers);
            every_order(&next, readers, found);
        }
    }
    if at_end {
        found.orders += 1;
        found.torn += u32::from(run.torn);
        found.lost += u32::from(run.lost);
    }
}

fn examine(readers: Readers) -> Found {
    let mut found = Found::default();
    every_order(&Run::default(), readers, &mut found);
    found
}

#[test]
fn no_order_of_writers_and_a_reader_tears_a_read_or_loses_an_update() {
    let found = examine(Readers::CheckAndRegister);
    assert_eq!((found.orders, found.torn, found.lost), (10_560, 0, 0));
}

#[test]
fn readers_must_both_check_and_register() {
    let found = [Readers::CheckOnly, Readers::RegisterOnly].map(|readers| examine(readers).torn);
    assert_eq!(found, [21, 3_029]);
}
