//! The SQL for MySQL and MariaDB: the page has that of the crate, whose own tests run it.

use polylock::mysql::{Fence, MySqlConfig, schema};

use super::PAGE;

/// The block of the page with this title, to its end.
fn block(title: &str) -> &str {
    let (_, rest) = PAGE.split_once(&format!("-- {title}\n")).expect("it is on the page");
    rest.split_once("```").expect("it ends").0
}

#[test]
fn the_page_has_the_statements_of_the_crate() {
    let table = schema::fences(MySqlConfig::DEFAULT_TABLE).expect("a good name");
    assert_eq!(block("create the table of fences"), table);
    assert_eq!(block("enter in MySQL"), Fence::ENTER);
    assert_eq!(block("enter as a reader in MySQL"), Fence::ENTER_SHARED);
    assert_eq!(block("check as a reader in MySQL"), Fence::CHECK_SHARED);
}
