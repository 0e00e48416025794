//! Processes that tests start. They end with the test: if `polylock run` is killed, its command is.

use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
pub(crate) use testbed::steady::blocking::receives;

use testbed::steady::blocking::{eventually, next};

/// `polylock`, with this server in its environment.
pub(crate) fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = with_signals();
    let program = env!("CARGO_BIN_EXE_polylock");
    command
        .arg(program)
        .args(arguments)
        .env("POLYLOCK_URL", url)
        .env_remove("RUST_LOG");
    command
}

/// Becomes the program that is its next argument, with no signal ignored: whoever runs the tests in the background may ignore
/// SIGINT, and `polylock` heeds that. It is killed when the thread of the test ends, however that ends.
pub(crate) fn with_signals() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "env", "--default-signal"]);
    command
}

/// A process that nobody but the test ends.
pub(crate) struct Left(pub(crate) Pid);

impl Left {
    /// Ends it, and returns whether it still ran.
    pub(crate) fn end(self) -> bool {
        let ran = kill_process(self.0, Signal::KILL).is_ok();
        std::mem::forget(self);
        ran
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // It fails if it has ended.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// A running `polylock`, whose outputs are read line by line.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    messages: Receiver<String>,
}

/// The output and the status of a command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: Vec<String>,
    pub(crate) messages: String,
}

impl Running {
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        Self::spawn(&mut command(url, arguments))
    }

    /// `run` on the lock `a`, with a text of the shell that has said "started".
    pub(crate) fn started(url: &str, options: &[&str], text: &str) -> Self {
        let running = Self::start(url, &[&["run", "--lock", "a"], options, &["--shell", text]].concat());
        running.wait_for("started");
        running
    }

    /// In a group of its own: a group that has no parent outside gets SIGHUP as soon as one of its processes is stopped, and another one
    /// ends whose parent is outside.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut running = Self::spawn_with(command, Stdio::piped());
        running.messages = lines(running.child.stderr.take().expect("it is piped"));
        running
    }

    /// Its messages go there, and are not read.
    pub(crate) fn spawn_with(command: &mut Command, messages: impl Into<Stdio>) -> Self {
        let command = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages);
        let mut child = command.spawn().expect("it was built");
        let (_, none) = channel();
        Self {
            input: child.stdin.take(),
            output: lines(child.stdout.take().expect("it is piped")),
            messages: none,
            child,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads on to this line of its output.
    pub(crate) fn wait_for(&self, text: &str) {
        read_to(&self.output, text);
    }

    /// The next line of its output.
    pub(crate) fn line(&self) -> String {
        receives("another line", &self.output)
    }

    /// Reads on to this message.
    pub(crate) fn wait_for_message(&self, text: &str) {
        read_to(&self.messages, text);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Ends it by a second SIGTERM, which comes again and again: one that comes too soon after the first is taken for the same.
    pub(crate) fn terminate_again(&mut self) {
        eventually("SIGTERM ends it", || {
            let ended = self.child.try_wait().expect("it is ours");
            if ended.is_none() {
                self.signal(Signal::TERM);
            }
            ended
        });
    }

    pub(crate) fn write(&mut self, text: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(text.as_bytes()).expect("it reads");
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits until no process has its output any more: neither `polylock` nor anything that it has started.
    pub(crate) fn rest(&self) -> Vec<String> {
        read_to_end(&self.output)
    }

    /// Ends its input, and waits for its end and for that of all that it has started.
    pub(crate) fn end(mut self) -> Ended {
        self.close_input();
        let output = self.rest();
        self.ended(output)
    }

    /// Waits for its end alone.
    pub(crate) fn end_alone(mut self) -> (Ended, Receiver<String>) {
        self.close_input();
        let (_, none) = channel();
        let output = std::mem::replace(&mut self.output, none);
        (self.ended(Vec::new()), output)
    }

    fn ended(&mut self, output: Vec<String>) -> Ended {
        Ended {
            code: self.child.wait().expect("it ends").code(),
            output,
            messages: read_to_end(&self.messages).join("\n"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it to its end.
pub(crate) fn run(url: &str, arguments: &[&str]) -> Ended {
    let mut running = Running::start(url, arguments);
    running.close_input();
    running.end()
}

/// Runs it to its end, up to four times if the server did not answer in time: on a busy machine, it may be late now and then.
pub(crate) fn run_answered(url: &str, arguments: &[&str]) -> Ended {
    const UNAVAILABLE: Option<i32> = Some(69);
    let mut ended = run(url, arguments);
    for _ in 1..4 {
        if ended.code != UNAVAILABLE {
            break;
        }
        ended = run(url, arguments);
    }
    ended
}

/// Ends all holds of the name at the server.
pub(crate) fn delete_lock(url: &str, name: &str) {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_connection().expect("it runs");
    let deleted: i32 = redis::cmd("DEL")
        .arg(format!("polylock:{name}"))
        .query(&mut connection)
        .expect("it deletes");
    assert_eq!(deleted, 1);
}

pub(crate) async fn redis() -> testbed::Server {
    testbed::Redis::new().start().await.expect("a server")
}

/// Writes until nothing more fits into the pipe.
pub(crate) fn fill(mut pipe: &PipeWriter) {
    let flags = fcntl_getfl(pipe).expect("it is open");
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("it is open");
    while pipe.write(b"\n").is_ok() {}
    fcntl_setfl(pipe, flags).expect("it is open");
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The test may have seen enough.
            let _ = sender.send(line);
        }
    });
    lines
}

/// Reads on to a line with this text. Returns what it has read.
pub(crate) fn read_to(lines: &Receiver<String>, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match next(&format!("a line with {text:?} after {seen:?}"), lines) {
            Some(line) => seen.push(line),
            None => panic!("no line with {text:?}, but {seen:?}"),
        }
        if seen.last().is_some_and(|line| line.contains(text)) {
            return seen.join("\n");
        }
    }
}

/// The process with the number that is this text.
pub(crate) fn pid(text: &str) -> Pid {
    text.trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .expect("the number of a process")
}

pub(crate) fn read_to_end(lines: &Receiver<String>) -> Vec<String> {
    std::iter::from_fn(|| next("the end of the output: a process still has it", lines)).collect()
}
