//! The rule by which a fence admits readers and writers, as plain functions, in every order of two writers and a reader.

/// The newest tokens that have entered; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entered {
    pub(super) writer: u64,
    pub(super) reader: u64,
}

impl Entered {
    /// Whether a writer may enter. Then it has.
    pub(super) fn enter(&mut self, token: u64) -> bool {
        let may = self.writer <= token && self.reader <= token;
        if may {
            self.writer = token;
        }
        may
    }

    /// Whether a reader may enter. Then it has.
    pub(super) fn enter_shared(&mut self, token: u64) -> bool {
        let may = self.writer <= token;
        if may {
            self.reader = self.reader.max(token);
        }
        may
    }

    /// Whether a writer that has entered may still read and write.
    pub(super) fn may_write(self, token: u64) -> bool {
        self.writer == token && self.reader <= token
    }

    /// Whether a reader that has entered may still read.
    pub(super) fn may_read(self, token: u64) -> bool {
        self.writer <= token && token <= self.reader
    }
}

/// How readers take part.
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
        let (token, steps) = HOLDERS[holder];
        let step = steps[self.taken[holder]];
        self.taken[holder] += 1;
        if self.rejected[holder] {
            return;
        }
        let is_reader = steps == READER;
        let admitted = match (is_reader, step) {
            (false, Step::Enter) => self.entered.enter(token),
            (false, _) => self.entered.may_write(token),
            (true, _) => self.admits_reader(token, step, readers),
        };
        match (is_reader, step) {
            _ if !admitted => self.rejected[holder] = true,
            (_, Step::Enter) => {}
            (_, Step::Read) | (true, Step::First) => self.seen[holder] = self.cells[0],
            (true, Step::Second) => self.torn |= self.seen[holder] != self.cells[1],
            (false, Step::First) => {
                self.lost |= self.seen[holder] != self.cells[0];
                self.cells[0] = self.seen[holder] * 10 + token;
            }
            (false, Step::Second) => self.cells[1] = self.cells[0],
        }
    }

    fn admits_reader(&mut self, token: u64, step: Step, readers: Readers) -> bool {
        match (readers, step) {
            (Readers::CheckAndRegister, Step::Enter) => self.entered.enter_shared(token),
            (Readers::CheckAndRegister, _) => self.entered.may_read(token),
            (Readers::CheckOnly, _) => self.entered.writer <= token,
            (Readers::RegisterOnly, _) => {
                self.entered.reader = self.entered.reader.max(token);
                true
            }
        }
    }

    /// Whether the older writer has changed one of the two cells and is there, or was rejected there.
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
