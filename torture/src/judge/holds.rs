//! From events to operations and holds.

use std::collections::HashMap;

use crate::history::ProcessHistory;
use crate::mode::Held;
use crate::record::Event;

/// One attempt to take a lock, with what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) process: usize,
    pub(crate) lock: usize,
    pub(crate) begin: u64,
    /// When it was known to be over, or the process's last sign of life.
    pub(crate) end: u64,
    pub(crate) hold: Option<Hold>,
}

/// A lock that was held.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
    pub(crate) op: u64,
    pub(crate) lock: usize,
    /// As it was granted.
    pub(crate) token: u64,
    /// The first mode of the hold.
    pub(crate) mode: Held,
    /// Whether the hold is not renewed.
    pub(crate) fixed: bool,
    /// When what it was granted for was sent, and when the grant was there.
    pub(crate) sent: u64,
    pub(crate) granted: u64,
    pub(crate) came: Came,
    /// For how long the name is to stay taken in any case.
    pub(crate) minimum: u64,
    /// The results of acquires with the same re-entry key.
    pub(crate) reentered: Vec<Reentered>,
    /// When it was asked for.
    pub(crate) asked: u64,
    pub(crate) held: u64,
    /// Where the mode changed later.
    pub(crate) changes: Vec<Change>,
    /// Until when the guard said yes to whoever asked it.
    pub(crate) believed: u64,
    /// When the lease ended by the clock.
    pub(crate) lease_end: u64,
    /// When its holder began to release it, or was killed, or the history ends.
    pub(crate) left: u64,
    /// When the loss was told, and why.
    pub(crate) lost: Option<(u64, String)>,
}

/// By what a hold was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    FromServer,
    /// The process's hold before was passed on, without a request.
    Passed,
}

/// An answer to whoever had the hold already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reentered {
    pub(crate) t: u64,
    pub(crate) token: Option<u64>,
    pub(crate) shared: Option<bool>,
}

/// From when on a hold is held in another mode, and with which token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) t: u64,
    pub(crate) mode: Held,
    pub(crate) token: u64,
}

/// For how long a hold was believed in, in one mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch<'a> {
    pub(crate) hold: &'a Hold,
    pub(crate) mode: Held,
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Hold {
    /// The modes and tokens of the hold, as its holder believed them, in order.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        let (mode, token) = (self.mode, self.token);
        let first = Change {
            t: self.held,
            mode,
            token,
        };
        let starts = std::iter::once(first).chain(self.changes.iter().copied());
        let ends = self.changes.iter().map(|change| change.t).chain([self.believed]);
        let stretches = starts.zip(ends).map(|(Change { t, mode, token }, end)| Stretch {
            hold: self,
            mode,
            token,
            from: t,
            to: end.min(self.believed),
        });
        stretches.filter(|stretch| stretch.to > stretch.from)
    }

    /// Whether both holds are of one process's life.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (self.process, self.incarnation) == (other.process, other.incarnation)
    }

    fn change(&mut self, t: u64, mode: Held, token: u64) {
        self.changes.push(Change { t, mode, token });
    }
}

/// The operations of a process, in the order in which they began.
pub(crate) fn operations(process: &ProcessHistory) -> Vec<Operation> {
    let last = process.lines.last().map_or(0, |line| line.t);
    // A dying process may have written its last lines after the kill. It acted before it was dead.
    let end = process.killed.unwrap_or(last);
    let mut all = Operations::default();
    for line in &process.lines {
        all.add(line.t.min(end), &line.event, process, end);
    }
    let mut operations = all.operations;
    for hold in operations.iter_mut().filter_map(|operation| operation.hold.as_mut()) {
        let lost = hold.lost.as_ref().map_or(u64::MAX, |(t, _)| *t);
        hold.believed = hold.left.min(hold.lease_end).min(lost).max(hold.held);
    }
    operations
}

#[derive(Debug, Default)]
struct Operations {
    operations: Vec<Operation>,
    by_op: HashMap<u64, usize>,
    /// Readers of one process may share a grant.
    by_token: HashMap<(usize, u64), Vec<usize>>,
    grants: HashMap<(usize, u64), (u64, u64, Came)>,
}

impl Operations {
    fn add(&mut self, t: u64, event: &Event, process: &ProcessHistory, end: u64) {
        match event {
            Event::Inv { op, lock } => {
                self.by_op.insert(*op, self.operations.len());
                self.operations.push(Operation {
                    process: process.process,
                    lock: *lock,
                    begin: t,
                    end,
                    hold: None,
                });
            }
            Event::Granted {
                lock,
                token,
                sent,
                passed,
            } => {
                let came = match passed {
                    true => Came::Passed,
                    false => Came::FromServer,
                };
                self.grants.insert((*lock, *token), (*sent, t, came));
            }
            Event::Held {
                op,
                lock,
                token,
                end: lease_end,
                minimum,
                mode,
                fixed,
            } => {
                let Some(index) = self.by_op.get(op) else { return };
                let (sent, granted, came) = *self.grants.get(&(*lock, *token)).unwrap_or(&(t, t, Came::FromServer));
                self.by_token.entry((*lock, *token)).or_default().push(*index);
                let operation = &mut self.operations[*index];
                operation.hold = Some(Hold {
                    process: process.process,
                    incarnation: process.incarnation,
                    op: *op,
                    lock: *lock,
                    token: *token,
                    mode: *mode,
                    fixed: *fixed,
                    sent,
                    granted,
                    came,
                    minimum: *minimum,
                    reentered: Vec::new(),
                    asked: operation.begin,
                    held: t,
                    changes: Vec::new(),
                    believed: 0,
                    lease_end: *lease_end,
                    left: end,
                    lost: None,
                });
            }
            Event::Armed {
                lock,
                token,
                end: lease_end,
            } => {
                for index in self.by_token.get(&(*lock, *token)).into_iter().flatten() {
                    if let Some(hold) = &mut self.operations[*index].hold {
                        hold.lease_end = hold.lease_end.max(*lease_end);
                    }
                }
            }
            Event::Downgrading { op } => {
                if let Some(hold) = self.hold(*op) {
                    let token = hold.changes.last().map_or(hold.token, |change| change.token);
                    hold.change(t, Held::Shared, token);
                }
            }
            Event::Upgraded {
                op,
                token,
                end: lease_end,
            } => {
                let Some(index) = self.by_op.get(op) else { return };
                let operation = &mut self.operations[*index];
                self.by_token.entry((operation.lock, *token)).or_default().push(*index);
                if let Some(hold) = &mut operation.hold {
                    hold.change(t, Held::Exclusive, *token);
                    hold.lease_end = hold.lease_end.max(*lease_end);
                }
            }
            Event::Reentered { op, token, shared } => {
                if let Some(hold) = self.hold(*op) {
                    let (token, shared) = (*token, *shared);
                    hold.reentered.push(Reentered { t, token, shared });
                }
            }
            Event::Lost { op, cause } => {
                if let Some(hold) = self.hold(*op) {
                    hold.lost = Some((t, cause.clone()));
                }
            }
            Event::Rel { op } => {
                self.ends(*op, t);
                if let Some(hold) = self.hold(*op) {
                    hold.left = t;
                }
            }
            Event::Busy { op }
            | Event::Failed { op, .. }
            | Event::Dropped { op }
            | Event::Released { op }
            | Event::NotReleased { op, .. } => self.ends(*op, t),
            Event::Start { .. }
            | Event::Downgraded { .. }
            | Event::NotChanged { .. }
            | Event::Starved { .. }
            | Event::Usage { .. }
            | Event::Drained
            | Event::Panic { .. } => {}
        }
    }

    fn hold(&mut self, op: u64) -> Option<&mut Hold> {
        self.operations[*self.by_op.get(&op)?].hold.as_mut()
    }

    fn ends(&mut self, op: u64, t: u64) {
        if let Some(index) = self.by_op.get(&op) {
            self.operations[*index].end = t;
        }
    }
}
