//! The examples, run as a user runs them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running example. It is killed when this is dropped.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let test = std::env::current_exe().expect("a test knows where it is");
        // Cargo builds the examples before it runs the tests, beside them.
        let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        let program = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let mut child = Command::new(folder.join("examples").join(program))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example was built");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test may have seen enough.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Reads on to the line with this text.
    fn wait_for(&self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line with {text:?}"),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// One of the processes that it has started, if it still has any.
    #[cfg(feature = "mysql")]
    fn a_child(&self) -> Option<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let first = children.split_whitespace().next()?;
        Pid::from_raw(first.parse().expect("a number"))
    }

    /// The lines that were not read, once it has ended successfully.
    fn finish(self) -> Vec<String> {
        let (lines, status) = self.end();
        assert!(status.success(), "{status}: {lines:?}");
        lines
    }

    fn end(mut self) -> (Vec<String>, ExitStatus) {
        let lines = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        (lines, self.child.wait().expect("it ends"))
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(name: &str, arguments: &[&str]) -> Vec<String> {
    Example::start(name, arguments).finish()
}

#[test]
fn quickstart() {
    assert_quickstart(&run("quickstart", &[]));
}

fn assert_quickstart(lines: &[String]) {
    let expected = [
        "acquired the lock \"orders/42\", fencing token ",
        "a second caller does not get it",
        "worked while it was held",
        "released it",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "{lines:?}");
    }
}

#[test]
fn a_fenced_write_of_an_expired_holder_is_rejected() {
    assert_fenced_write(&run("fenced_write", &[]));
}

fn assert_fenced_write(lines: &[String]) {
    assert!(lines[2].contains("its write is rejected"), "{lines:?}");
    assert_eq!(lines[3], "the balance is 70");
}

#[test]
fn one_process_leads() {
    let leader = Example::start("leader", &[]);
    leader.wait_for("works as the leader");
    leader.wait_for("works as the leader"); // by now it listens for signals
    leader.signal(Signal::INT);
    assert!(leader.finish().last().expect("a line").ends_with(" stops"));
    let leader = Example::start("leader", &[]);
    leader.wait_for("works as the leader");
    leader.wait_for("works as the leader");
    leader.signal(Signal::TERM);
    assert!(leader.finish().last().expect("a line").ends_with(" stops"));
}

#[test]
fn a_cron_job_runs() {
    assert_eq!(run("cron", &[]), ["this host ran the job"]);
}

#[test]
fn readers_and_a_writer_share_a_catalog() {
    assert_rw_lock(&run("rw_lock", &[]));
}

fn assert_rw_lock(lines: &[String]) {
    let mut readers = lines[..3].to_vec();
    readers.sort();
    assert_eq!(readers, ["reader 1 reads", "reader 2 reads", "reader 3 reads"]);
    assert!(lines[3].starts_with("the writer changes the catalog"), "{lines:?}");
    assert_eq!(lines[4..], ["the writer checks what it wrote", "reader 4 reads"]);
}

#[test]
fn a_semaphore_admits_three_calls_at_a_time() {
    assert_semaphore(&run("semaphore", &[]));
}

fn assert_semaphore(lines: &[String]) {
    let (mut running, mut most) = (0_usize, 0);
    for line in lines {
        match line.ends_with("begins") {
            true => running += 1,
            false => running -= 1,
        }
        most = most.max(running);
    }
    assert_eq!((lines.len(), running), (20, 0), "{lines:?}");
    assert!(most <= 3, "{lines:?}");
}

#[test]
fn transfers_in_both_directions_end() {
    assert_acquire_all(&run("acquire_all", &[]));
}

fn assert_acquire_all(lines: &[String]) {
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[3], "all transfers are done");
}

#[cfg(feature = "blocking")]
#[test]
fn a_pool_of_workers_ships_each_order_once() {
    assert_worker_pool(&run("worker_pool", &[]));
}

#[cfg(feature = "blocking")]
fn assert_worker_pool(lines: &[String]) {
    let ends = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        (ends(" is shipped, "), ends(" was shipped before")),
        (8, 8),
        "{lines:?}"
    );
    assert_eq!(lines.last().expect("a line"), "all locks are released");
}

#[cfg(feature = "blocking")]
#[test]
fn a_migration_runs_at_start_up() {
    assert_eq!(run("migration", &[]), ["migrated 3 steps"]);
}

/// The service on a port of its own, and its address.
fn service(url: &str) -> (Example, String) {
    let service = Example::start("service", &[url, "127.0.0.1:0"]);
    let line = service.wait_for("listening on ");
    (service, line.replace("listening on ", ""))
}

fn begin_to_ship(address: &str, order: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "POST /orders/{order}/ship HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    stream
}

/// The status of the answer.
fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE)).expect("it can");
    stream.read_to_string(&mut answer).expect("it answers");
    answer.split(' ').nth(1).expect("a status").to_owned()
}

/// The statuses of two requests for one order that are sent at once, as they come.
fn ship_twice(address: &str, order: u32) -> impl Iterator<Item = String> + use<> {
    let (sender, statuses) = channel();
    for request in [begin_to_ship(address, order), begin_to_ship(address, order)] {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(answer(request)));
    }
    statuses.into_iter()
}

#[test]
fn a_service_ships_an_order_once_at_a_time_and_stops_gracefully() {
    let (service, address) = service("memory:");
    // On a busy machine one request may be done when the other one comes.
    let refused = (1..=10).find_map(|order| {
        let mut statuses = ship_twice(&address, order);
        match statuses.next().expect("an answer").as_str() {
            "409" => Some((order, statuses)),
            first => {
                assert_eq!(first, "200");
                statuses.next().expect("another answer");
                None
            }
        }
    });
    // The other request is under way.
    let (order, mut statuses) = refused.expect("two at a time");
    service.signal(Signal::INT);
    assert_eq!(statuses.next().expect("an answer"), "200");
    let lines = service.finish();
    assert!(lines.contains(&format!("order {order} is shipped")), "{lines:?}");
    assert_eq!(
        lines[lines.len() - 2..],
        ["all requests are answered", "all locks are released"]
    );
}

/// Of hosts that start the job at once, one runs it, and one that comes later does not.
///
/// A host counts as one that starts at once if it asks within so many seconds.
#[cfg(any(feature = "redis", feature = "mysql"))]
fn assert_one_cron_job(url: &str, seconds: &str) {
    let hosts: Vec<Example> = (0..3).map(|_| Example::start("cron", &[url, seconds])).collect();
    let mut lines: Vec<String> = hosts.into_iter().flat_map(Example::finish).collect();
    lines.sort();
    let another = "another host runs the job, or has just run it";
    assert_eq!(lines, [another, another, "this host ran the job"]);
}

#[cfg(feature = "redis")]
mod on_redis {
    use std::time::Instant;

    use super::*;

    async fn redis() -> testbed::Server {
        testbed::Redis::new().start().await.expect("a server")
    }

    #[testbed::test]
    async fn quickstart_and_fenced_write() {
        let server = redis().await;
        assert_quickstart(&run("quickstart", &[&server.url()]));
        assert_fenced_write(&run("fenced_write", &[&server.url()]));
    }

    #[testbed::test]
    async fn another_process_leads_after_a_kill_and_after_a_stop() {
        let server = redis().await;
        let start = || {
            let candidate = Example::start("leader", &[&server.url(), "1"]);
            candidate.wait_for("waits for its turn");
            candidate
        };
        let first = start();
        first.wait_for("leads, term");
        let second = start();
        first.signal(Signal::KILL);
        second.wait_for("leads, term");
        let third = start();
        second.signal(Signal::INT);
        third.wait_for(&format!("the leader is \"process {}\"", third.child.id()));
        second.finish();
    }

    #[testbed::test]
    async fn a_cron_job_runs_on_one_host() {
        let server = redis().await;
        assert_one_cron_job(&server.url(), "60");
    }

    #[cfg(feature = "blocking")]
    #[testbed::test]
    async fn one_of_three_instances_migrates() {
        let (server, folder) = (redis().await, tempfile::tempdir().expect("a folder"));
        let file = folder.path().join("schema.txt");
        let arguments = [&server.url(), file.to_str().expect("UTF-8")];
        let instances: Vec<Example> = (0..3).map(|_| Example::start("migration", &arguments)).collect();
        let mut lines: Vec<String> = instances.into_iter().flat_map(Example::finish).collect();
        lines.sort();
        assert_eq!(lines, ["migrated 3 steps", "nothing to migrate", "nothing to migrate"]);
        assert_eq!(std::fs::read_to_string(file).expect("it is there").lines().count(), 3);
        assert_worker_pool(&run("worker_pool", &[&server.url()]));
    }

    /// Ships an order until this is the status. On a busy machine the server may be slower than the service waits.
    fn assert_ships(address: &str, expected: &str, meanwhile: &[&str]) {
        let start = Instant::now();
        loop {
            let status = answer(begin_to_ship(address, 1));
            if status == expected {
                return;
            }
            assert!(meanwhile.contains(&status.as_str()), "{status}");
            assert!(
                start.elapsed() < PATIENCE,
                "{status} all the time, and never {expected}"
            );
        }
    }

    #[testbed::test]
    async fn a_service_without_its_server_answers_503() {
        let server = redis().await;
        let (_service, address) = service(&server.url());
        assert_ships(&address, "200", &["409", "503"]);
        server.kill().expect("it runs");
        assert_ships(&address, "503", &["409"]);
        server.restart().await.expect("it starts again");
        assert_ships(&address, "200", &["409", "503"]);
    }
}

#[cfg(feature = "mysql")]
mod on_mysql {
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
        let arguments = ["--processes", "4", "--buyers", "80", "--ttl", "6s", "--backend", &url];
        let sale = Example::start("flash_sale", &arguments);
        let mut database = MySqlConnection::connect(&server.url()).await.expect("it runs");
        let some_sales = async {
            while sold(&mut database).await < 5 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, some_sales).await.expect("it sells");
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
}
