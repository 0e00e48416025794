//! From events to operations and holds.

use std::collections::HashMap;

use crate::record::Event;

use crate::history::ProcessHistory;

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
    pub(crate) token: u64,
    /// When what it was granted for was sent, and when the grant was there.
    pub(crate) sent: u64,
    pub(crate) granted: u64,
    /// Whether the process's hold before was handed over.
    pub(crate) handed: bool,
    /// For how long the name is to stay taken in any case.
    pub(crate) minimum: u64,
    /// What came of asking again with the same re-entry key.
    pub(crate) reentered: Vec<Reentered>,
    /// When it was asked for.
    pub(crate) asked: u64,
    pub(crate) held: u64,
    /// Until when the guard said yes to whoever asked it.
    pub(crate) believed: u64,
    /// When the lease ended by the clock.
    pub(crate) lease_end: u64,
    /// When its holder began to release it, or was killed, or the history ends.
    pub(crate) left: u64,
    /// When the loss was told, and why.
    pub(crate) lost: Option<(u64, String)>,
}

/// An answer to whoever had the hold already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reentered {
    pub(crate) t: u64,
    pub(crate) token: Option<u64>,
    pub(crate) shared: Option<bool>,
}

/// What a process did, in the order in which it began.
pub(crate) fn operations(process: &ProcessHistory) -> Vec<Operation> {
    let last = process.lines.last().map_or(0, |line| line.t);
    // What a dying process still wrote, it did before it was dead.
    let end = process.killed.unwrap_or(last);
    let mut operations: Vec<Operation> = Vec::new();
    let mut by_op = HashMap::new();
    let mut by_token = HashMap::new();
    let mut grants = HashMap::new();
    for line in &process.lines {
        let t = line.t.min(end);
        match &line.event {
            Event::Inv { op, lock } => {
                by_op.insert(*op, operations.len());
                operations.push(Operation {
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
                handed,
            } => _ = grants.insert((*lock, *token), (*sent, t, *handed)),
            Event::Held {
                op,
                lock,
                token,
                end: lease_end,
                minimum,
            } => {
                let Some(index) = by_op.get(op) else { continue };
                let (sent, granted, handed) = *grants.get(&(*lock, *token)).unwrap_or(&(t, t, false));
                by_token.insert((*lock, *token), *index);
                operations[*index].hold = Some(Hold {
                    process: process.process,
                    incarnation: process.incarnation,
                    op: *op,
                    lock: *lock,
                    token: *token,
                    sent,
                    granted,
                    handed,
                    minimum: *minimum,
                    reentered: Vec::new(),
                    asked: operations[*index].begin,
                    held: t,
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
                let hold = by_token
                    .get(&(*lock, *token))
                    .and_then(|index| operations[*index].hold.as_mut());
                if let Some(hold) = hold {
                    hold.lease_end = hold.lease_end.max(*lease_end);
                }
            }
            Event::Reentered { op, token, shared } => {
                if let Some(hold) = by_op.get(op).and_then(|index| operations[*index].hold.as_mut()) {
                    let (token, shared) = (*token, *shared);
                    hold.reentered.push(Reentered { t, token, shared });
                }
            }
            Event::Lost { op, cause } => {
                if let Some(hold) = by_op.get(op).and_then(|index| operations[*index].hold.as_mut()) {
                    hold.lost = Some((t, cause.clone()));
                }
            }
            Event::Rel { op } => {
                let Some(index) = by_op.get(op) else { continue };
                operations[*index].end = t;
                if let Some(hold) = &mut operations[*index].hold {
                    hold.left = t;
                }
            }
            Event::Busy { op }
            | Event::Failed { op, .. }
            | Event::Dropped { op }
            | Event::Released { op }
            | Event::NotReleased { op, .. } => {
                if let Some(index) = by_op.get(op) {
                    operations[*index].end = t;
                }
            }
            Event::Start { .. }
            | Event::Starved { .. }
            | Event::Usage { .. }
            | Event::Drained
            | Event::Panic { .. } => {}
        }
    }
    for hold in operations.iter_mut().filter_map(|operation| operation.hold.as_mut()) {
        let lost = hold.lost.as_ref().map_or(u64::MAX, |(t, _)| *t);
        hold.believed = hold.left.min(hold.lease_end).min(lost).max(hold.held);
    }
    operations
}
