//! What goes over the wire: statements, and the answers to them.

use tokio_postgres::types::Type;

use crate::connection::Statement;

pub(crate) mod answers;
pub(crate) mod dead_rows;
#[cfg(test)]
mod fuzz;
pub(crate) mod lease;
mod renewals;
pub(crate) mod session;
pub(crate) mod session_setup;
pub(crate) mod sharing;
pub(crate) mod terms;
#[cfg(test)]
mod tests;

/// The server's clock, when the text that asks was received. It stands still while a statement waits for a row.
pub(crate) const NOW: &str = "statement_timestamp()";

/// The clock by which a hold has ended. If the clock was set back while the statement waited for the row, somebody may have cut the
/// hold to what its term allows by the clock since: the moment before the step says nothing about that.
pub(crate) const EARLIER_CLOCK: &str = "LEAST(statement_timestamp(),clock_timestamp())";

/// Until when somebody is in the queue. A mark that lasts longer than any does is from before the clock was set back.
pub(crate) const MARK: &str =
    "(CASE WHEN wanted<=statement_timestamp()+interval '10 s' THEN wanted ELSE '-infinity' END)";

/// Whether an entry of the queue, in the table `w`, counts.
pub(crate) const IS_LIVE: &str = "w.expires BETWEEN statement_timestamp() AND statement_timestamp()+interval '10 s'";

/// The longest time that an entry of the queue lasts without a refresh, in microseconds.
pub(crate) const LONGEST_ENTRY: u64 = 10_000_000;

/// The place of a request that has none: behind all.
pub(crate) const NO_PLACE: i64 = i64::MAX;

/// The end of a hold that was released: it stays in the past if the clock is set back.
pub(crate) const LONG_AGO: &str = "'-infinity'::timestamptz";

/// A new place at the end of the queue. A crash may undo that it was given. If the clock was also set back, it is given again, so a
/// place counts only with the entry of its holder.
pub(crate) const NEXT_PLACE: &str =
    "GREATEST(last_place+1,(extract(epoch from statement_timestamp())*1000000)::bigint)";

/// The holder of a name that is kept after its release, until its minimum is over.
pub(crate) const NOBODY: &str = "'00000000-0000-0000-0000-000000000000'::uuid";

/// The SQL of an interval of so many microseconds as a parameter or a number says.
pub(crate) fn micros(value: &str) -> String {
    format!("({value}*interval '1 microsecond')")
}

/// The SQL of an interval's microseconds, as a number.
pub(crate) fn in_micros(interval: &str) -> String {
    format!("(extract(epoch from {interval})*1000000)::bigint")
}

fn statement(sql: String, types: &[Type]) -> Statement {
    let types = types.to_vec();
    Statement { sql, types }
}
