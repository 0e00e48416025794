//! A process that ends while it holds locks, waits for one and has others to undo exits at once, however it ends.

use std::time::{Duration, Instant};

use polylock::{Guard, Locker};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::child::{Child, report, task, test_name};

/// How many processes end on each server.
const PROCESSES: usize = 200;
/// How many of them run at once, on all servers together. If one ends late, this machine's load is not the reason.
static PLACES: Semaphore = Semaphore::const_new(4);
/// How long a process may take from the moment when it begins to end: less than a backend waits for an answer.
const AT_MOST: Duration = Duration::from_secs(4);
/// If so many of a kind end late, one after the other, the reason is not that the machine stood still.
const TRIES: usize = 3;
/// Longer than the test: nothing that a process left may expire meanwhile.
const TTL: Duration = Duration::from_secs(300);
/// What a process reports when it begins to end.
const ENDING: &str = "ending";
/// The test runner's exit code if a test failed or panicked.
const FAILED: i32 = 101;
const OWN_CODE: i32 = 3;

#[test]
fn every_process_ends_on_memory() -> polylock::Result<()> {
    each_in_its_place(|| async { all_end("memory:ending", None).await })
}

#[cfg(feature = "redis")]
#[test]
fn every_process_ends_on_redis() -> polylock::Result<()> {
    each_in_its_place(|| all_end_on(testbed::Redis::new().start()))
}

#[cfg(feature = "mysql")]
#[test]
fn every_process_ends_on_mysql() -> polylock::Result<()> {
    each_in_its_place(|| all_end_on(testbed::MariaDb::new().start()))
}

#[cfg(feature = "postgres")]
#[test]
fn every_process_ends_on_postgres() -> polylock::Result<()> {
    each_in_its_place(|| all_end_on(testbed::Postgres::new().start()))
}

#[cfg(feature = "zookeeper")]
#[test]
fn every_process_ends_on_zookeeper() -> polylock::Result<()> {
    each_in_its_place(|| all_end_on(testbed::ZooKeeper::new().start()))
}

/// The child's part in a child, else the parent's.
fn each_in_its_place<F: Future<Output = ()>>(parent: impl FnOnce() -> F) -> polylock::Result<()> {
    if let Some(task) = task() {
        return Ending::parse(&task).run();
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(parent());
    Ok(())
}

#[cfg(any(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
async fn all_end_on(server: impl Future<Output = Result<testbed::Server, testbed::Error>>) {
    if testbed::skip_offline() {
        return;
    }
    let server = server.await.expect("a server");
    let locks = polylock::connect(&server.url()).await.expect("the server answers");
    all_end(&server.url(), Some(locks)).await;
}

/// Ends all processes. `locks` looks at what they left, where another process can.
async fn all_end(url: &str, locks: Option<Locker>) {
    let mut ends = JoinSet::new();
    for number in 0..PROCESSES {
        let url = url.to_owned();
        ends.spawn(ended(test_name(), Ending { number, url }, locks.clone()));
    }
    let ends = ends.join_all().await;
    let wrong: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {PROCESSES}: {wrong:#?}", wrong.len());
}

/// What was wrong with the end of a process.
async fn ended(test: String, ending: Ending, locks: Option<Locker>) -> Result<(), String> {
    let _place = PLACES.acquire().await.expect("nobody closes it");
    let mut late = Vec::new();
    for turn in 0..TRIES {
        match ended_in_time(&test, &ending.in_turn(turn), locks.as_ref()).await? {
            Ok(()) => return Ok(()),
            Err(still_runs) => late.push(still_runs),
        }
    }
    Err(late.join("; "))
}

/// What was wrong with the end of a process, but that it was late; and whether it was.
async fn ended_in_time(test: &str, ending: &Ending, locks: Option<&Locker>) -> Result<Result<(), String>, String> {
    let (number, way, workers) = (ending.number, ending.way(), ending.workers());
    let which = format!("process {number}, {way:?}, workers: {workers:?}");
    let mut child = Child::start(test, &format!("{number} {}", ending.url));
    let reported = child.report().await;
    let began = Instant::now();
    if reported != ENDING {
        return Err(format!("{which}: {reported}"));
    }
    let Some(status) = child.ended(AT_MOST).await else {
        return Ok(Err(format!("{which}: it still runs after {:?}", began.elapsed())));
    };
    if status.code() != Some(way.code()) {
        return Err(format!("{which}: it ended with {status}"));
    }
    let Some(locks) = locks.filter(|_| way == Way::Shutdown) else {
        return Ok(Ok(()));
    };
    match locks.status(ending.name(DROPPED)).await {
        Ok(status) if !status.is_held() => Ok(Ok(())),
        other => Err(format!("{which}: it was shut down, and left {other:?}")),
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `main` returns.
    Return,
    /// `main` returns after it dropped its guards and shut its locker down.
    Shutdown,
    /// `main` returns an error.
    Error,
    /// `main` panics.
    Panic,
    /// By `std::process::exit`.
    Exit,
}

const WAYS: [Way; 5] = [Way::Return, Way::Shutdown, Way::Error, Way::Panic, Way::Exit];

impl Way {
    fn code(self) -> i32 {
        match self {
            Self::Return | Self::Shutdown => 0,
            Self::Error | Self::Panic => FAILED,
            Self::Exit => OWN_CODE,
        }
    }
}

/// A process that ends.
#[derive(Clone, Debug)]
struct Ending {
    number: usize,
    url: String,
}

/// The names that a process locks, each followed by the process's number.
const DROPPED: &str = "dropped before the runtime";
const IN_A_TASK: &str = "held in a task";
const OUTLIVING: &str = "dropped after the runtime";
const ORPHANED: &str = "of a locker that has gone";

impl Ending {
    fn parse(task: &str) -> Self {
        let (number, url) = task.split_once(' ').expect("a number and a URL");
        Self {
            number: number.parse().expect("a number"),
            url: url.to_owned(),
        }
    }

    /// Another one of the same kind, with names of its own.
    fn in_turn(&self, turn: usize) -> Self {
        // As often as all ways, runtimes and moments come round.
        const NEXT: usize = 10 * 140;
        Self {
            number: self.number + turn * NEXT,
            url: self.url.clone(),
        }
    }

    fn way(&self) -> Way {
        WAYS[self.number % WAYS.len()]
    }

    /// The worker threads of its runtime; `None` for a current-thread one.
    fn workers(&self) -> Option<usize> {
        [None, Some(1), Some(2), Some(4)][self.number / WAYS.len() % 4]
    }

    fn name(&self, what: &str) -> String {
        format!("{what} {}", self.number)
    }

    fn runtime(&self) -> Runtime {
        let mut builder = match self.workers() {
            Some(_) => Builder::new_multi_thread(),
            None => Builder::new_current_thread(),
        };
        builder.worker_threads(self.workers().unwrap_or(1)).enable_all();
        builder.build().expect("a runtime")
    }

    /// What `#[tokio::main] async fn main` does.
    fn run(self) -> polylock::Result<()> {
        let mut outliving = None;
        self.runtime().block_on(async {
            let life = self.live(&mut outliving).await;
            let (locks, guards) = life.inspect_err(|error| report(&format!("{error:?}")))?;
            report(ENDING);
            match self.way() {
                Way::Return => Ok(()),
                Way::Shutdown => {
                    drop(guards);
                    locks.shutdown().await
                }
                Way::Error => Err(polylock::Error::new(polylock::ErrorKind::Unexpected, "as planned")),
                // Not by `panic!`, whose message would look like a failure in the log.
                Way::Panic => std::panic::resume_unwind(Box::new("as planned")),
                Way::Exit => std::process::exit(OWN_CODE),
            }
        })
    }

    /// Acquires some locks, and leaves acquires under way. The guards that it returns are dropped before the runtime.
    async fn live(&self, outliving: &mut Option<Guard>) -> polylock::Result<(Locker, Vec<Guard>)> {
        let locks = self.locker().await?;
        let dropped = locks.lock(self.name(DROPPED)).acquire().await?;
        let orphaned = self.locker().await?.lock(self.name(ORPHANED)).acquire().await?;
        let in_a_task = locks.lock(self.name(IN_A_TASK)).acquire().await?;
        tokio::spawn(async move { in_a_task.lost().await });
        *outliving = Some(self.locker().await?.lock(self.name(OUTLIVING)).acquire().await?);
        let taken = locks.lock(self.name(OUTLIVING));
        for _ in 0..2 {
            let taken = taken.clone();
            tokio::spawn(async move { taken.acquire().await.map(drop) });
        }
        // One is given up. In some processes the acquires have reached the server by then, in some they have not.
        let moment = Duration::from_millis((self.number % 7).pow(2) as u64);
        let granted = timeout(moment, taken.acquire()).await;
        assert!(granted.is_err(), "it is held: {granted:?}");
        Ok((locks, vec![dropped, orphaned]))
    }

    async fn locker(&self) -> polylock::Result<Locker> {
        Ok(polylock::connect(&self.url).await?.with_ttl(TTL))
    }
}
