//! Reads that a write fell into.

use std::collections::HashMap;

use crate::record::{Access, Use};

/// The accesses of one operation that belong together, by their places in the order of all: what it read, or what it wrote.
#[derive(Clone, Copy, Debug)]
struct Span {
    lock: usize,
    operation: (usize, u64),
    reader: bool,
    first: usize,
    last: usize,
}

/// The places of the reads that saw what a write had half done, and of those that a write fell in between.
///
/// Whoever was refused in the middle of a write leaves it half done, which is no fault of the fence: the next writer mends it.
pub(super) fn reads(uses: &[Use], fenced: bool) -> Vec<usize> {
    let mut torn = Vec::new();
    let mut open: Vec<Span> = Vec::new();
    for span in spans(uses, fenced) {
        open.retain(|earlier| earlier.lock == span.lock && earlier.last > span.first);
        // Whoever may change its mode reads and writes in turns.
        let across = open
            .iter()
            .filter(|earlier| earlier.reader != span.reader && earlier.operation != span.operation);
        torn.extend(across.map(|earlier| if span.reader { span.first } else { earlier.last }));
        open.push(span);
    }
    torn
}

/// By lock and order.
fn spans(uses: &[Use], fenced: bool) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut known = HashMap::new();
    for (at, used) in uses.iter().enumerate() {
        let belongs = used.reader || matches!(used.access, Access::Write | Access::Finish);
        if !belongs || used.refused || used.token.is_some() != fenced {
            continue;
        }
        let operation = (used.process, used.op);
        // An older version uses the numbers of its operations again after a kill.
        let begins = used.access == Access::Write;
        let index = known.get(&(operation, used.reader)).copied().filter(|_| !begins);
        if let Some(index) = index {
            let span: &mut Span = &mut spans[index];
            span.last = at;
            continue;
        }
        known.insert((operation, used.reader), spans.len());
        spans.push(Span {
            lock: used.lock,
            operation,
            reader: used.reader,
            first: at,
            last: at,
        });
    }
    spans.sort_by_key(|span| (span.lock, span.first));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(op: u64, access: Access, reader: bool) -> Use {
        Use {
            t: 0,
            process: 0,
            op,
            lock: 0,
            access,
            reader,
            token: Some(op),
            base: 0,
            version: 0,
            refused: false,
        }
    }

    #[test]
    fn a_write_within_a_read_and_a_read_within_a_write_are_torn() {
        let read = [used(1, Access::Claim, true), used(1, Access::Read, true)];
        let write = [
            used(2, Access::Claim, false),
            used(2, Access::Write, false),
            used(2, Access::Finish, false),
        ];
        let torn = |order: [usize; 5]| {
            let all: Vec<Use> = [&write[..], &read[..]].concat();
            reads(&order.map(|at| all[at].clone()), true).len()
        };
        assert_eq!(torn([0, 1, 2, 3, 4]), 0);
        assert_eq!(torn([3, 0, 4, 1, 2]), 0, "a claim writes nothing");
        assert_eq!(torn([3, 0, 1, 2, 4]), 1);
        assert_eq!(torn([0, 1, 3, 4, 2]), 1);
        assert_eq!(torn([3, 0, 1, 4, 2]), 1);
    }

    #[test]
    fn what_was_refused_is_not_seen() {
        let mut last = used(1, Access::Read, true);
        last.refused = true;
        let uses = [used(1, Access::Claim, true), used(2, Access::Write, false), last];
        assert!(reads(&uses, true).is_empty());
        assert!(reads(&uses, false).is_empty());
    }
}
