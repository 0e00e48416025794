//! `polylock bench`: how many times a second locks can be acquired and released at this server.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylock::{Config, Guard, Locker};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::figures::{Figures, Measured};
use crate::cli::{BenchArgs, BenchLocks, OutputArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::message::say;
use crate::server;
use crate::signals::{Reaction, Signals, WHILE_WAITING, while_waiting};

mod figures;

/// The prefix of the locks' names. Always the same, since some servers keep a row for each name.
const NAME: &str = "polylock:bench";

/// The longest time for all runs together.
const LONGEST: Duration = Duration::from_secs(60);

/// The largest number of clients.
const MOST_TASKS: usize = 64;

/// The time for which a lock stays taken if this process dies.
const TTL: Duration = Duration::from_secs(10);

/// The time for open requests to end.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// Measures, and prints a line for each number of tasks. Returns the code to exit with.
///
/// # Errors
/// If it would take too long, if another one runs on this server, if a signal ends it, or the error of the server.
pub(crate) async fn bench(arguments: &BenchArgs, server: &ServerArgs, output: OutputArgs) -> Result<Code, Failure> {
    check(arguments)?;
    let config = server::config(server)?;
    let mut signals = Signals::default();
    signals.listen(&WHILE_WAITING)?;
    if !output.quiet {
        say("this loads the server: do not run it beside work that matters");
    }
    let locks = config.connect_lazy()?;
    let measured = async {
        server::connect(&locks, server.connect_timeout).await?;
        let alone = lock_alone(&locks).await?;
        let measured = measure_all(arguments, &config, &mut signals).await;
        measured.and(alone.release().await.map(drop).map_err(Failure::from))
    };
    let measured = measured.await;
    let _ = timeout(ENDED_WITHIN, locks.shutdown()).await;
    measured.map(|()| Code::SUCCESS)
}

/// # Errors
/// If it would take too long, or have too many clients.
fn check(arguments: &BenchArgs) -> Result<(), Failure> {
    let BenchArgs { tasks, seconds, .. } = arguments;
    let runs = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    if *seconds == 0 || Duration::from_secs(*seconds).saturating_mul(runs) > LONGEST {
        let message =
            format!("--seconds is from 1 on, and all runs together may take {LONGEST:?}: nothing was measured");
        return Err(Failure::usage(message));
    }
    if tasks.iter().any(|tasks| !(1..=MOST_TASKS).contains(tasks)) {
        let message = format!("--tasks is from 1 to {MOST_TASKS}: nothing was measured");
        return Err(Failure::usage(message));
    }
    Ok(())
}

/// The lock that only one benchmark of a server has.
async fn lock_alone(locks: &Locker) -> Result<Guard, Failure> {
    let lock = locks.lock(NAME).ttl(ttl(locks));
    match lock.try_acquire().await? {
        Some(guard) => Ok(guard),
        None => Err(Failure::new(
            Code::BUSY,
            "another benchmark loads this server: nothing was measured",
        )),
    }
}

fn ttl(locks: &Locker) -> Duration {
    TTL.max(locks.capabilities().shortest_ttl)
}

async fn measure_all(arguments: &BenchArgs, config: &Config, signals: &mut Signals) -> Result<(), Failure> {
    for tasks in &arguments.tasks {
        let (stop, stopped) = watch::channel(false);
        let mut run = Box::pin(measure(arguments, *tasks, config, stopped));
        let figures = tokio::select! {
            biased;
            code = ended_by(signals) => {
                stop.send_replace(true);
                // Open requests are undone: nothing stays at the server.
                let _ = timeout(ENDED_WITHIN, run).await;
                return Err(Failure::new(code, "ended by a signal"));
            }
            figures = &mut run => figures?,
        };
        print(&figures, arguments, scheme(config))?;
    }
    Ok(())
}

async fn ended_by(signals: &mut Signals) -> Code {
    loop {
        let signal = signals.next().await;
        if while_waiting(signal) == Reaction::GiveUp {
            return Code::of_signal(signal);
        }
    }
}

/// One run, with a client for each task.
async fn measure(
    arguments: &BenchArgs,
    tasks: usize,
    config: &Config,
    stopped: watch::Receiver<bool>,
) -> Result<Figures, Failure> {
    let mut clients = Vec::new();
    for _ in 0..tasks {
        let locks = config.connect_lazy()?;
        locks.connect().await?;
        clients.push(locks);
    }
    let released = Arc::new(Mutex::new(None));
    let (start, length) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let mut running = JoinSet::new();
    for (number, locks) in clients.iter().enumerate() {
        let name = match arguments.locks {
            BenchLocks::Own => format!("{NAME}:{number}"),
            BenchLocks::One => format!("{NAME}:0"),
        };
        let client = Client {
            lock: locks.lock(name).ttl(ttl(locks)),
            end: start + length,
            released: (arguments.locks == BenchLocks::One).then(|| released.clone()),
            stopped: stopped.clone(),
        };
        running.spawn(client.run());
    }
    let mut measured = Vec::new();
    let mut failed = None;
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(of_task)) => measured.push(of_task),
            Ok(Err(error)) => failed = failed.or(Some(Failure::from(error))),
            Err(error) => failed = failed.or(Some(Failure::new(Code::UNEXPECTED, error.to_string()))),
        }
    }
    let took = start.elapsed();
    for locks in clients {
        let _ = timeout(ENDED_WITHIN, locks.shutdown()).await;
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Figures::new(tasks, took, measured)),
    }
}

/// One that acquires and releases a lock, again and again.
struct Client {
    lock: polylock::Lock,
    end: Instant,
    /// When the lock that all share was last released: just before the request for it was sent.
    released: Option<Arc<Mutex<Option<Instant>>>>,
    stopped: watch::Receiver<bool>,
}

impl Client {
    async fn run(mut self) -> polylock::Result<Measured> {
        let mut measured = Measured::default();
        while Instant::now() < self.end && !*self.stopped.borrow() {
            let asked = Instant::now();
            let guard = tokio::select! {
                biased;
                // The sender is gone only when nobody waits for the figures any more.
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
                guard = self.lock.acquire() => guard?,
                // The open request is undone.
                () = sleep_until(self.end) => break,
            };
            measured.acquires.push(asked.elapsed());
            if let Some(released) = self.take_released() {
                measured.hand_offs.push(released.elapsed());
            }
            self.note_released();
            guard.release().await?;
        }
        Ok(measured)
    }

    fn take_released(&self) -> Option<Instant> {
        let released = self.released.as_ref()?;
        released.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note_released(&self) {
        if let Some(released) = &self.released {
            *released.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}

/// The URL's scheme; that of a quorum is its own.
fn scheme(config: &Config) -> &str {
    match config.url.split_once(':') {
        Some((scheme, _)) => scheme,
        None => "quorum",
    }
}

/// The load of this machine, on Linux.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

fn print(figures: &Figures, arguments: &BenchArgs, scheme: &str) -> Result<(), Failure> {
    let locks = match arguments.locks {
        BenchLocks::Own => "own",
        BenchLocks::One => "one",
    };
    let (version, load) = (env!("CARGO_PKG_VERSION"), load());
    let line = match arguments.json {
        true => {
            let mut line = figures.as_json();
            if let Value::Object(fields) = &mut line {
                fields.extend([
                    ("locks".to_owned(), json!(locks)),
                    ("version".to_owned(), json!(version)),
                    ("scheme".to_owned(), json!(scheme)),
                    ("load".to_owned(), json!(load)),
                ]);
            }
            line.to_string()
        }
        false => {
            let load = load.map_or_else(String::new, |load| format!(", load {load}"));
            format!("{figures}  (locks: {locks}, {scheme}, polylock {version}{load})")
        }
    };
    let mut output = io::stdout().lock();
    let printed = writeln!(output, "{line}").and_then(|()| output.flush());
    printed.map_err(|error| Failure::os("cannot write to standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(tasks: &[usize], seconds: u64) -> BenchArgs {
        BenchArgs {
            tasks: tasks.to_vec(),
            locks: BenchLocks::Own,
            seconds,
            json: false,
        }
    }

    #[test]
    fn it_takes_a_minute_at_most() {
        for (tasks, seconds) in [(&[1, 16][..], 30), (&[64], 60), (&[1], 1)] {
            assert!(check(&arguments(tasks, seconds)).is_ok(), "{tasks:?} {seconds}");
        }
        for (tasks, seconds) in [
            (&[1, 16][..], 31),
            (&[1], 61),
            (&[1], 0),
            (&[1], u64::MAX),
            (&[0], 1),
            (&[65], 1),
        ] {
            let refused = check(&arguments(tasks, seconds)).unwrap_err();
            assert_eq!(refused.code, Code::USAGE, "{tasks:?} {seconds}");
        }
    }
}
