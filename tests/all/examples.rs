//! The examples, run as a user runs them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use testbed::steady::AT_MOST;
use testbed::steady::blocking::next;

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
            match next(&format!("a line with {text:?}"), &self.lines) {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("no line with {text:?}"),
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
        let lines = std::iter::from_fn(|| next("the end of the output", &self.lines)).collect();
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
    stream.set_read_timeout(Some(AT_MOST)).expect("it can");
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
mod on_redis;

#[cfg(feature = "postgres")]
#[testbed::test]
async fn fenced_write_with_the_account_in_a_postgresql() {
    let server = testbed::Postgres::new().start().await.expect("a server");
    // Run again, it finds the tables and the tokens of before.
    for _ in 0..2 {
        let lines = run("fenced_write", &[&server.url()]);
        assert_fenced_write(&lines);
        assert!(lines[2].contains("the fence of \"accounts/7\""), "{lines:?}");
    }
}

#[cfg(feature = "mysql")]
mod on_mysql;
