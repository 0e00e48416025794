//! A server's log of its statements and refusals.

use lock_core::backend::HolderId;
use testbed::Postgres;

use crate::lease::support::*;

/// A server whose log [`logged`] reads.
pub(super) fn that_logs() -> Postgres {
    Postgres::new()
        .setting("logging_collector", "on")
        .setting("log_statement", "all")
}

/// How often the server has logged this text, a regular expression that does not match itself.
pub(super) async fn logged(fixture: &Fixture, text: &str) -> i64 {
    const LOG: &str = "pg_read_file(pg_current_logfile())";
    // The log is written in the background, but in order.
    let mark = HolderId::random();
    fixture.value(&format!("SELECT '{mark}'")).await;
    eventually("the log", async || {
        let at = format!("SELECT strpos({LOG},'SELECT ''{mark}''')");
        fixture.number(&at).await > 0
    })
    .await;
    let count = format!("SELECT count(*) FROM regexp_matches({LOG},'{text}','g')");
    fixture.number(&count).await
}
