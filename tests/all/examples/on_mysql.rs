//! The examples on a MariaDB and a MySQL.

use lock_mysql::sqlx::{Connection, MySqlConnection, query_scalar};

use super::*;

#[testbed::test]
async fn fenced_write_with_the_account_in_the_database() {
    fenced_write(&mariadb().await);
}

#[testbed::test]
async fn fenced_write_with_the_account_in_a_mysql() {
    if let Some(server) = mysql9().await {
        fenced_write(&server);
    }
}

fn fenced_write(server: &testbed::Server) {
    // Run again, it finds the tables and the tokens of before.
    for strategy in STRATEGIES {
        let url = format!("{}{strategy}", server.url());
        let lines = run("fenced_write", &[&url]);
        assert_fenced_write(&lines);
        assert!(lines[2].contains("the fence of \"accounts/7\""), "{lines:?}");
    }
}

async fn mariadb() -> testbed::Server {
    testbed::MariaDb::new().start().await.expect("a server")
}

/// `None` where the tests have to do without it.
async fn mysql9() -> Option<testbed::Server> {
    testbed::skip_left_out(testbed::Edition::MySql9.start().await)
}

/// How often a sale is tried whose end may come before the kill.
const TRIES: u32 = 4;

/// How the lock may be kept, as the end of a URL.
const STRATEGIES: [&str; 2] = ["", "?strategy=lease"];

#[testbed::test]
async fn nothing_is_lost_if_one_of_four_processes_of_a_flash_sale_is_killed() {
    for strategy in STRATEGIES {
        let mut tries = 0;
        while !flash_sale_with_a_kill(&mariadb().await, strategy).await {
            tries += 1;
            assert!(tries < TRIES, "the sale is always over before the kill");
        }
    }
}

#[testbed::test]
async fn nothing_is_lost_on_a_mysql_either() {
    for strategy in STRATEGIES {
        let mut tries = 0;
        while let Some(server) = mysql9().await {
            if flash_sale_with_a_kill(&server, strategy).await {
                break;
            }
            tries += 1;
            assert!(tries < TRIES, "the sale is always over before the kill");
        }
    }
}

/// The stock is in the database, and each sale in the transaction that changes it. Returns whether the kill came in
/// time: on a busy machine the sale may be over by then.
async fn flash_sale_with_a_kill(server: &testbed::Server, strategy: &str) -> bool {
    let url = format!("{}{strategy}", server.url());
    // The ttl is longer than a busy machine stands still: the other processes lose nothing.
    let arguments = ["--processes", "4", "--buyers", "80", "--ttl", "10s", "--backend", &url];
    let sale = Example::start("flash_sale", &arguments);
    let mut database = MySqlConnection::connect(&server.url()).await.expect("it runs");
    testbed::eventually("five sales", async || sold(&mut database).await >= 5).await;
    if let Some(child) = sale.a_child() {
        // This fails if it has ended by now.
        let _ = kill_process(child, Signal::KILL);
    }
    let (lines, status) = sale.end();
    if status.success() {
        assert_eq!(lines.last().expect("a result"), "RESULT sold=80 left=420 lost=0");
        return false;
    }
    // One process failed, and the buyers of the others went on.
    assert_eq!(status.code(), Some(2), "{lines:?}");
    let failed = lines.iter().find(|line| line.starts_with("failed buyers"));
    assert!(failed.is_some_and(|line| line.ends_with(" 1")), "{lines:?}");
    let result = lines.last().expect("a result");
    let sold = result
        .strip_prefix("RESULT sold=")
        .and_then(|rest| rest.split_once(' '));
    let (sold, rest) = sold.expect("a number");
    let sold: u32 = sold.parse().expect("a number");
    assert!((60..=80).contains(&sold), "{result}");
    assert_eq!(rest, format!("left={} lost=0", 500 - sold));
    true
}

/// 0 before there is a table.
async fn sold(database: &mut MySqlConnection) -> i64 {
    let count = query_scalar("SELECT COUNT(*) FROM flash_sale_sold");
    count.fetch_one(database).await.unwrap_or_default()
}

#[testbed::test]
async fn a_cron_job_runs_on_one_host_and_another_process_leads_at_once() {
    let server = testbed::MariaDb::new().start().await.expect("a server");
    // The host that runs it waits for them.
    assert_one_cron_job(&server.url(), "8");
    let first = Example::start("leader", &[&server.url(), "60"]);
    first.wait_for("leads, term");
    let second = Example::start("leader", &[&server.url(), "60"]);
    second.wait_for("waits for its turn");
    first.signal(Signal::KILL); // closes its connection
    second.wait_for("leads, term");
}
