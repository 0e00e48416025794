//! Rust's lock libraries as clients of the conformance suite: see benchmarks/conformance/src/process.rs. The arguments are the
//! library, the URL of its server, and the TTL in milliseconds that a client has if its locks have none.

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A library, which connects with its first acquire.
pub trait Locks: Send + Sync + 'static {
    type Hold: Hold;

    /// The hold, or `None` if the name is taken.
    fn acquire(&self, name: &str, ttl: Duration, wait: Wait) -> impl Future<Output = Result<Option<Self::Hold>>> + Send;
}

pub trait Hold: Send + 'static {
    fn release(self) -> impl Future<Output = Result<()>> + Send;

    fn extend(&mut self, _ttl: Duration) -> impl Future<Output = Result<()>> + Send {
        async { Err(failed("other", "it is not extended")) }
    }

    /// Whether it counts as held, and for how long if the library says that.
    fn state(&self) -> (bool, Option<Duration>) {
        (true, None)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Wait {
    Try,
    Within(Duration),
    Forever,
}

/// What an error means to the suite, and its text.
pub type Result<T> = std::result::Result<T, (&'static str, String)>;

pub fn failed(kind: &'static str, error: impl std::fmt::Display) -> (&'static str, String) {
    (kind, error.to_string())
}

/// An acquire, and what it got.
struct Acquire<H> {
    cancelled: CancellationToken,
    hold: Mutex<Option<H>>,
}

/// Obeys the orders of the standard input.
pub async fn serve<L: Locks>(locks: L, version: &str) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    println!("{}", json!({"version": version}));
    let (send, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
        // Nothing is released.
        std::process::exit(0);
    });
    let locks = Arc::new(locks);
    let mut acquires: HashMap<u64, Arc<Acquire<L::Hold>>> = HashMap::new();
    while let Some(line) = lines.recv().await {
        let order: Value = serde_json::from_str(&line)?;
        let id = order["id"].as_u64().ok_or("no id")?;
        let kind = order["do"].as_str().ok_or("no order")?.to_owned();
        if kind == "acquire" {
            let acquire = Arc::new(Acquire {
                cancelled: CancellationToken::new(),
                hold: Mutex::new(None),
            });
            acquires.insert(id, acquire.clone());
            let locks = locks.clone();
            tokio::spawn(async move { say(id, acquire_for(&*locks, &acquire, &order).await) });
            continue;
        }
        let of = acquires.get(&order["of"].as_u64().ok_or("of nothing")?).ok_or("of nobody")?.clone();
        if kind == "cancel" {
            of.cancelled.cancel();
            say(id, Ok(json!({})));
        }
        tokio::spawn(async move {
            let mut hold = of.hold.lock().await;
            match kind.as_str() {
                "cancel" => {
                    if let Some(hold) = hold.take() {
                        let _ = hold.release().await;
                    }
                }
                "release" => {
                    let released = match hold.take() {
                        Some(hold) => hold.release().await,
                        None => Err(failed("lost", "it was released before")),
                    };
                    say(id, released.map(|()| json!({})));
                }
                "extend" => {
                    let ttl = Duration::from_millis(order["ttl"].as_u64().unwrap_or(0));
                    let extended = match &mut *hold {
                        Some(hold) => hold.extend(ttl).await,
                        None => Err(failed("lost", "it was released before")),
                    };
                    let extended = extended.map(|()| seen(hold.as_ref()));
                    say(id, extended);
                }
                _ => say(id, Ok(seen(hold.as_ref()))),
            }
        });
    }
    Ok(())
}

fn seen<H: Hold>(hold: Option<&H>) -> Value {
    let (is_held, valid) = hold.map_or((false, None), Hold::state);
    let state = if is_held { "held" } else { "lost" };
    match valid {
        Some(valid) => json!({"state": state, "valid": valid.as_millis() as u64}),
        None => json!({"state": state}),
    }
}

async fn acquire_for<L: Locks>(locks: &L, acquire: &Acquire<L::Hold>, order: &Value) -> Result<Value> {
    let name = order["name"].as_str().unwrap_or_default();
    let ttl = Duration::from_millis(order["ttl"].as_u64().unwrap_or(0));
    let wait = match order["wait"].as_u64() {
        None => Wait::Forever,
        Some(0) => Wait::Try,
        Some(millis) => Wait::Within(Duration::from_millis(millis)),
    };
    let mut place = acquire.hold.lock().await;
    let held = tokio::select! {
        held = locks.acquire(name, ttl, wait) => held?,
        // As a user cancels it: by dropping the future.
        () = acquire.cancelled.cancelled() => return Err(failed("timeout", "cancelled")),
    };
    *place = held;
    match (&*place, wait) {
        (Some(_), _) => Ok(json!({})),
        (None, Wait::Try) => Ok(json!({"busy": true})),
        (None, _) => Err(failed("timeout", "it is taken")),
    }
}

fn say(id: u64, answer: Result<Value>) {
    let mut answer = answer.unwrap_or_else(|(kind, message)| json!({"error": kind, "message": message}));
    answer["id"] = id.into();
    println!("{answer}");
}

/// The arguments.
pub fn arguments() -> (String, String, Duration) {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("an argument is missing");
    let (library, url, ttl) = (next(), next(), next());
    (library, url, Duration::from_millis(ttl.parse().expect("milliseconds")))
}

/// For libraries whose wait is ended by dropping it.
pub async fn within<T>(limit: Duration, waiting: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    match timeout(limit, waiting).await {
        Ok(done) => done.map(Some),
        Err(_) => Ok(None),
    }
}
