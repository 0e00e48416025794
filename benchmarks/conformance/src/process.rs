//! A client of a peer: a process that speaks JSON, a line for each order and each answer.
//!
//! Orders are `{"id":7,"do":"acquire","name":"a","ttl":3000,"wait":null}` (milliseconds; `null` waits for ever, 0 is a try),
//! `cancel`, `release`, `extend` with `ttl`, and `state`, each `"of"` an acquire. An answer has the order's `id`, and `error` with
//! `message` if it failed. That of an acquire says `busy`, or `token` if the library has tokens. That of `extend` and `state` says how
//! many milliseconds the hold is `valid`, if the library knows.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use benchmarks_programs::Program;
use lock_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
    orders: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
}

/// Who waits for an answer, by its order; empty for good once the process has ended.
#[derive(Debug)]
struct Waiting(Option<HashMap<u64, Reply>>);

#[derive(Debug)]
enum Reply {
    Later(oneshot::Sender<Value>),
    Now(mpsc::Sender<Value>),
}

/// The id of the line with which the process begins.
const HELLO: u64 = 0;
/// How long a process may take to begin, and to note that an acquire is cancelled.
const PATIENCE: Duration = Duration::from_secs(60);

impl Process {
    /// Starts one, and waits until it is there. Also returns the version of the library.
    pub(crate) async fn start(program: &Program) -> std::result::Result<(Arc<Self>, String), String> {
        let mut command = program.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{program:?}: {error}"))?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(answers)) = (orders, answers) else {
            return Err("a process without its pipes".to_owned());
        };
        let (hello, begun) = oneshot::channel();
        let waiting = Waiting(Some([(HELLO, Reply::Later(hello))].into()));
        let waiting = Arc::new(Mutex::new(waiting));
        let process = Arc::new(Self {
            child: Mutex::new(child),
            orders: Mutex::new(orders),
            waiting: waiting.clone(),
            next: AtomicU64::new(HELLO + 1),
        });
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(std::result::Result::ok) {
                answer(&waiting, &line);
            }
            // Whoever waits learns it by its sender that is dropped.
            lock(&waiting).0 = None;
        });
        let hello = tokio::time::timeout(PATIENCE, begun).await;
        let hello = hello.map_err(|_| format!("{program:?} does not begin"))?;
        let hello = hello.map_err(|_| format!("{program:?} ended"))?;
        let version = hello["version"].as_str().unwrap_or("unknown").to_owned();
        Ok((process, version))
    }

    /// Gives an order, whose answer is to come. Dropping it cancels it.
    pub(crate) fn order(self: &Arc<Self>, order: &str, mut details: Value) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        details["do"] = order.into();
        self.send(id, details, Reply::Later(reply));
        Pending {
            process: self.clone(),
            id,
            answer,
            is_done: order != "acquire",
        }
    }

    /// Gives an order, and blocks until it is answered.
    pub(crate) fn ask(&self, order: &str, of: u64) -> Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = mpsc::channel();
        self.send(id, json!({"do": order, "of": of}), Reply::Now(reply));
        let answer = answer.recv_timeout(PATIENCE);
        checked(answer.map_err(|_| ended())?)
    }

    fn send(&self, id: u64, mut order: Value, reply: Reply) {
        order["id"] = id.into();
        if let Some(waiting) = &mut lock(&self.waiting).0 {
            waiting.insert(id, reply);
        }
        // If it has ended, its answers have, too.
        let _ = writeln!(lock(&self.orders), "{order}");
    }
}

fn answer(waiting: &Mutex<Waiting>, line: &str) {
    let Ok(answer) = serde_json::from_str::<Value>(line) else {
        eprintln!("no answer: {line}");
        return;
    };
    let id = answer["id"].as_u64().unwrap_or(HELLO);
    let reply = lock(waiting).0.as_mut().and_then(|waiting| waiting.remove(&id));
    // Nobody may wait any more.
    match reply {
        Some(Reply::Later(reply)) => drop(reply.send(answer)),
        Some(Reply::Now(reply)) => drop(reply.send(answer)),
        None => {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It has ended already where these fail.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// An answer that is to come. Dropping that of an acquire cancels it, and returns when the process has noted it.
#[derive(Debug)]
pub(crate) struct Pending {
    process: Arc<Process>,
    id: u64,
    answer: oneshot::Receiver<Value>,
    is_done: bool,
}

impl Pending {
    /// The answer.
    pub(crate) async fn answered(&mut self) -> Result<Value> {
        let answer = (&mut self.answer).await;
        self.is_done = true;
        checked(answer.map_err(|_| ended())?)
    }

    /// What later orders call it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_done {
            // If the process has ended, nothing is left to cancel.
            let _ = self.process.ask("cancel", self.id);
        }
    }
}

fn checked(answer: Value) -> Result<Value> {
    let Some(kind) = answer["error"].as_str() else {
        return Ok(answer);
    };
    let message = answer["message"].as_str().unwrap_or(kind).to_owned();
    let kind = match kind {
        "timeout" => ErrorKind::TimedOut,
        "unavailable" => ErrorKind::Unavailable,
        "lost" => ErrorKind::Lost,
        "refused" => ErrorKind::Misconfigured,
        _ => ErrorKind::Unexpected,
    };
    Err(Error::new(kind, message.clone()).with_source(message))
}

fn ended() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        "the peer's process has ended, or does not answer",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
