//! The queue entries of a name: named locks that say which processes wait for it and have no mark in its row.
//!
//! A row has one mark. Whoever was granted the name has used it up, and calls one of those who wait, which then leaves the next
//! mark. A named lock ends with its connection, so that no entry outlives its process, and costs no commit. A connection may have
//! any number of them, so that its process waits for any number of names.
//!
//! A few entries are enough, as each grant frees one. Rows in a table would take two commits for each wait. A named lock that all
//! wait for in the server, which wakes them in order, would take a connection for each waiting name.

use lock_core::LockName;

use super::{IS_MARKED, LeaseStatements};
use crate::error::SqlError;
use crate::names::name_literal;
use crate::protocol::{StatementResult, column};

/// The most waiters that have an entry at a time.
const ENTRIES: usize = 16;

impl LeaseStatements {
    /// Takes a free entry for the connection, looking from the `first` one on. [`entered`] reads the answer.
    /// `GET_LOCK` also succeeds for an entry that this connection already has, so `IS_FREE_LOCK` comes first.
    pub(crate) fn enter_queue(&self, name: &LockName, first: usize) -> String {
        let takes = numbers(first).map(|number| {
            let entry = self.entry(name, number);
            format!("WHEN IS_FREE_LOCK({entry}) AND GET_LOCK({entry},0) THEN {number}")
        });
        format!(
            "SELECT CAST(CASE {} END AS SIGNED)",
            takes.collect::<Vec<_>>().join(" ")
        )
    }

    /// Gives back the connection's entry of this number, or all that it has.
    pub(crate) fn leave_queue(&self, name: &LockName, number: Option<usize>) -> String {
        let given = match number {
            Some(number) => vec![number],
            None => numbers(0).collect(),
        };
        let gives = given
            .into_iter()
            .map(|number| format!("RELEASE_LOCK({})", self.entry(name, number)));
        format!("DO {}", gives.collect::<Vec<_>>().join(","))
    }

    /// Wakes a process that has an entry, looking from the `first` one on. If there is none, the error is
    /// [`NO_SUCH_CONNECTION`](crate::protocol::NO_SUCH_CONNECTION).
    pub(crate) fn call_next(&self, name: &LockName, first: usize) -> String {
        let entries = numbers(first).map(|number| format!("IS_USED_LOCK({})", self.entry(name, number)));
        let connection = format!("COALESCE({})", entries.collect::<Vec<_>>().join(","));
        format!("KILL QUERY IS_USED_LOCK(CONCAT('{SLEEPER_OF}',{connection}))")
    }

    /// Selects whether a waiter has its mark in the row. [`holds`](super::holds) reads the answer.
    pub(crate) fn is_marked(&self, name: &LockName) -> String {
        format!(
            "SELECT CAST(COALESCE(MAX({IS_MARKED}),0) AS SIGNED) FROM `{}` WHERE `name`={}",
            self.leases,
            name_literal(name)
        )
    }

    /// The named lock of an entry. Its name takes 64 bytes at most, and no letters that differ by their case.
    fn entry(&self, name: &LockName, number: usize) -> String {
        let of = hash(&[
            self.database.as_bytes(),
            self.leases.as_bytes(),
            name.as_str().as_bytes(),
        ]);
        format!("'polylock:queue:{of:016x}:{number}'")
    }
}

/// The numbers of all entries, from the `first` one on.
fn numbers(first: usize) -> impl Iterator<Item = usize> {
    (0..ENTRIES).map(move |entry| first.wrapping_add(entry) % ENTRIES)
}

/// The number of the entry that was taken; `None`: others have all.
pub(crate) fn entered(result: &StatementResult) -> Result<Option<usize>, SqlError> {
    const WHAT: &str = "queue entry";
    let row = result.rows.first().ok_or(SqlError::UnexpectedAnswer(WHAT))?;
    let number: Option<i64> = column(row, 0, WHAT)?;
    let number = number.map(usize::try_from).transpose();
    number.map_err(|_| SqlError::UnexpectedAnswer(WHAT))
}

/// The named lock of the connection that sleeps for a process, found by the number of its connection of acquires.
pub(crate) fn sleeper_of(connection: u64) -> String {
    format!("'{SLEEPER_OF}{connection}'")
}

const SLEEPER_OF: &str = "polylock:sleeper:of:";

/// FNV-1a. All processes must come to the same, whatever their version. Two names of the same hash share their entries: then a
/// process may be called for the other name.
fn hash(parts: &[&[u8]]) -> u64 {
    const SEED: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = parts.iter().flat_map(|part| part.iter().chain([&0]));
    bytes.fold(SEED, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rows::{Value, row};

    fn name() -> LockName {
        LockName::new("a").unwrap()
    }

    fn entries_from(first: usize) -> Vec<String> {
        let statements = LeaseStatements::new("t");
        numbers(first).map(|number| statements.entry(&name(), number)).collect()
    }

    /// Other versions of this crate look for the same.
    #[test]
    fn entries_stay_as_they_are() {
        // The test vectors of FNV-1a, for text that ends with a zero byte.
        assert_eq!(hash(&[b""]), 0xaf63_bd4c_8601_b7df);
        assert_eq!(hash(&[b"a"]), 0x089b_e207_b544_f1e4);
        let entries = entries_from(15);
        assert_eq!(entries.len(), ENTRIES);
        let of = hash(&[b"", b"t_leases", b"a"]);
        assert_eq!(entries[0], format!("'polylock:queue:{of:016x}:15'"));
        assert_eq!(entries[1], format!("'polylock:queue:{of:016x}:0'"));
        assert!(entries.iter().all(|entry| entry.len() <= 64));
        let statements = LeaseStatements::new("t");
        let leave = statements.leave_queue(&name(), None);
        assert!(
            leave.starts_with(&format!("DO RELEASE_LOCK({}),", entries[1])),
            "{leave}"
        );
        assert_eq!(leave.matches("RELEASE_LOCK").count(), ENTRIES);
        assert_eq!(
            statements.leave_queue(&name(), Some(15)),
            format!("DO RELEASE_LOCK({})", entries[0])
        );
        let call = statements.call_next(&name(), 15);
        assert!(
            call.starts_with(&format!(
                "KILL QUERY IS_USED_LOCK(CONCAT('polylock:sleeper:of:',COALESCE(IS_USED_LOCK({}),",
                entries[0]
            )),
            "{call}"
        );
        assert_eq!(sleeper_of(7), "'polylock:sleeper:of:7'");
    }

    #[test]
    fn a_process_enters_at_the_first_entry_that_is_free() {
        let statements = LeaseStatements::new("t");
        let entries = entries_from(15);
        let enter = statements.enter_queue(&name(), 15);
        let takes = |at: usize, number| {
            let entry = &entries[at];
            format!("WHEN IS_FREE_LOCK({entry}) AND GET_LOCK({entry},0) THEN {number} ")
        };
        let first = format!("SELECT CAST(CASE {}{}", takes(0, 15), takes(1, 0));
        assert!(
            enter.starts_with(&first) && enter.ends_with(" END AS SIGNED)"),
            "{enter}"
        );
        assert_eq!(enter.matches(" GET_LOCK").count(), ENTRIES);
    }

    #[test]
    fn an_answer_says_which_entry_was_taken_or_that_all_are() {
        let answer = |value| {
            entered(&StatementResult {
                rows: vec![row(&[value])],
                ..StatementResult::default()
            })
        };
        assert_eq!(answer(Value::Signed(0)).unwrap(), Some(0));
        assert_eq!(answer(Value::Signed(15)).unwrap(), Some(15));
        assert_eq!(answer(Value::Null).unwrap(), None);
        assert!(answer(Value::Signed(-1)).is_err() && entered(&StatementResult::default()).is_err());
    }

    /// A name without a row has no mark.
    #[test]
    fn a_question_for_the_mark_has_one_answer() {
        assert_eq!(
            LeaseStatements::new("t").is_marked(&name()),
            format!("SELECT CAST(COALESCE(MAX({IS_MARKED}),0) AS SIGNED) FROM `t_leases` WHERE `name`=x'61'")
        );
    }

    #[test]
    fn a_mark_counts_for_as_long_as_for_an_acquire() {
        assert!(IS_MARKED.ends_with(&format!("+{})", super::super::LONGEST_MARK)));
    }

    #[test]
    fn names_tables_and_databases_have_entries_of_their_own() {
        let entry_in = |database, table, name| {
            LeaseStatements::new(table)
                .in_database(database)
                .entry(&LockName::new(name).unwrap(), 0)
        };
        let entry = |table, name| entry_in("app", table, name);
        assert_ne!(entry_in("app", "t", "a"), entry_in("shop", "t", "a"));
        // A server that does not tell them apart must not have two queues of one name.
        assert_eq!(entry_in("app", "t", "a"), entry_in("App", "t", "a"));
        assert_ne!(entry("t", "a"), entry("t", "b"));
        assert_ne!(entry("t", "a"), entry("u", "a"));
        assert_ne!(entry("t", "A"), entry("t", "a"));
    }
}
