//! What a test process starts ends with it, however it ends. Needs the servers: `cargo xtask servers --install`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use testbed::Redis;
use testbed::steady::blocking::eventually;

const KINDS: [&str; 4] = ["redis", "mariadb", "zookeeper", "ensemble"];
/// An ensemble has three.
const SERVERS: usize = 6;

#[testbed::test]
fn a_killed_process_takes_its_servers_along() {
    let mut test = Program::start(&KINDS, &[]);
    let ports: Vec<u16> = (0..SERVERS).map(|_| test.port()).collect();
    let dirs = test.data_dirs();
    assert_eq!(dirs.len(), SERVERS, "{dirs:?}");
    // A paused server must end too.
    test.command("pause");
    // The whole group, as a CI runner does it: the watchdogs must not be in it.
    let group = rustix::process::Pid::from_raw(test.child.id().cast_signed()).expect("positive");
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it runs");
    eventually("the servers are gone", || {
        ports
            .iter()
            .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err())
    });
    eventually("their folders are gone", || dirs.iter().all(|dir| !dir.exists()));
}

#[testbed::test]
fn a_killed_process_takes_along_what_it_restarted() {
    let mut test = Program::start(&["redis"], &[]);
    let port = test.port();
    let dirs = test.data_dirs();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    test.command("kill");
    test.command("restart");
    test.child.kill().expect("it runs");
    eventually("the server and its folder are gone", || {
        is_closed(port) && !dirs[0].exists()
    });
}

#[testbed::test]
fn a_server_in_a_static_ends_with_a_panicking_process() {
    const CHILD: &str = "TESTBED_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return panic_with_a_server();
    }
    // This same test, as the only one of a process.
    let child = Command::new(std::env::current_exe().expect("it has a path"))
        .args([
            "--exact",
            "a_server_in_a_static_ends_with_a_panicking_process",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut test = Program::of(child);
    let port = test.port();
    assert!(!test.child.wait().expect("it ends").success());
    eventually("the server is gone", || is_closed(port));
}

fn panic_with_a_server() {
    static SERVER: std::sync::OnceLock<testbed::Server> = std::sync::OnceLock::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Redis::new().start()).expect("it starts");
    println!("\n{}", SERVER.get_or_init(|| server).url());
    panic!("as planned");
}

#[testbed::test]
fn a_server_that_ran_already_is_not_touched() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Redis::new().start()).expect("it starts");
    let mut test = Program::start(&["redis"], &[("POLYLOCK_REDIS_URL", &server.url())]);
    assert_eq!(test.port(), server.port());
    for control in ["kill", "pause", "resume", "restart", "restart-without-data"] {
        let answer = test.command(control);
        assert!(
            answer.contains("cannot control the redis") && answer.contains("POLYLOCK_REDIS_URL"),
            "{answer}"
        );
    }
    test.child.kill().expect("it runs");
    test.child.wait().expect("it ends");
    assert!(!is_closed(server.port()), "it ended with its guest");
}

#[test]
fn a_missing_server_is_told_with_what_to_do() {
    let program = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .arg("redis")
        .env("POLYLOCK_REDIS_SERVER", "/nowhere/redis-server")
        .env_remove("POLYLOCK_REDIS_URL")
        .output()
        .expect("it starts");
    assert!(!program.status.success());
    let error = String::from_utf8_lossy(&program.stderr);
    assert_eq!(
        error,
        "error: POLYLOCK_REDIS_SERVER is \"/nowhere/redis-server\", but there is no such file\n"
    );
}

/// A process that uses the testbed, as a test would.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(kinds: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command.args(kinds).envs(environment.iter().copied());
        Self::of(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .expect("it starts"),
        )
    }

    fn of(mut child: Child) -> Self {
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output }
    }

    /// The port in the next line that has a URL.
    fn port(&mut self) -> u16 {
        loop {
            let line = self.line();
            if line.contains("://") {
                let address = line
                    .rsplit('@')
                    .next()
                    .and_then(|rest| rest.rsplit("//").next())
                    .unwrap_or_default();
                let port = address.split(['/', ':']).nth(1).unwrap_or_default();
                return port.parse().unwrap_or_else(|_| panic!("no port in {line:?}"));
            }
        }
    }

    /// Gives a command and waits for its first line of answer.
    fn command(&mut self, command: &str) -> String {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{command}").expect("it reads");
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.output.read_line(&mut line).expect("it is text");
        assert_ne!(bytes, 0, "it ended");
        line.trim_end().into()
    }

    /// Of its servers: the working directories of its children's children, and of its children.
    fn data_dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = std::fs::read_dir("/proc")
            .expect("this is Linux")
            .flatten()
            .filter(|entry| parent(&entry.path()) == Some(self.child.id()))
            .filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok())
            .filter_map(|dir| {
                let of_server = |dir: &&std::path::Path| {
                    dir.file_name()
                        .is_some_and(|name| name.to_string_lossy().starts_with("polylock-"))
                };
                dir.ancestors().find(of_server).map(PathBuf::from)
            })
            .collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parent(process: &std::path::Path) -> Option<u32> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

fn is_closed(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
}
