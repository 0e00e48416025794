//! Processes that use the API without async: they exit at once, and fork.

use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use polylock::blocking::{self, Guard, Locker};
use polylock::{ErrorKind, Lost, Release, Result};

use crate::child::{Child, report, task, test_name};
use crate::fork::{FINE, current_thread, fork_off, in_a_process_of_its_own, wait_for};

/// How long a call may take to be refused, and a process to end.
const AT_MOST: Duration = testbed::steady::AT_MOST;
/// How often a process forks while its other threads make calls.
const FORKS: usize = 10;
const ENDING: &str = "ending";
const OWN_CODE: i32 = 3;

#[test]
fn a_process_exits_whatever_its_threads_wait_for() {
    if task().is_some() {
        return exit_in_the_middle();
    }
    current_thread().block_on(async {
        let mut child = Child::start(&test_name(), "exit");
        assert_eq!(child.report().await, ENDING);
        let status = child.ended(AT_MOST).await.expect("it exits");
        assert_eq!(status.code(), Some(OWN_CODE));
    });
}

fn exit_in_the_middle() {
    let locks = blocking::connect("memory:").expect("memory is there");
    let guard = locks.lock("held").acquire().expect("it is free");
    guard.on_lost(|lost| panic!("{lost}")).expect("polylock has its thread");
    for _ in 0..3 {
        let lock = locks.lock("held");
        thread::spawn(move || lock.acquire().map(drop));
    }
    thread::spawn(move || guard.wait_lost(Duration::MAX).map(drop));
    drop(locks.lock("dropped").acquire().expect("it is free"));
    report(ENDING);
    std::process::exit(OWN_CODE);
}

#[test]
fn a_forked_process_is_refused_its_parents_and_has_a_thread_for_its_own() {
    in_a_process_of_its_own("memory:", fork_while_busy, all_fine);
}

#[cfg(feature = "redis")]
#[test]
fn a_forked_process_has_a_thread_for_its_own_locker_on_redis() {
    crate::fork::in_a_process_with(testbed::Redis::new().start(), "", fork_while_busy, all_fine);
}

fn all_fine(reports: Vec<String>) {
    assert_eq!(
        reports,
        vec![FINE; 2 * FORKS],
        "one report of each child and grandchild"
    );
}

fn fork_while_busy(url: &str) {
    let locks = blocking::connect(url).expect("the server answers");
    let hold = |name| locks.lock(name).acquire().expect("it is free");
    let mut guards = Some([hold("held"), hold("held, too")]);
    let busy = locks.clone();
    let working = thread::spawn(move || keep_busy(&busy));
    for _ in 0..FORKS {
        wait_for(fork_off(|| {
            refused_all(&locks, guards.take())?;
            works(url).map_err(|error| format!("its own locker: {error}"))?;
            // And once more: a grandchild has neither its parent's thread nor that one's.
            let grandchild = fork_off(|| works(url).map_err(|error| format!("a grandchild's: {error}")));
            wait_for(grandchild);
            Ok(())
        }));
    }
    assert!(!working.is_finished(), "{:?}", working.join());
    for guard in guards.expect("each child took a copy") {
        assert_eq!(guard.release().expect("still ours"), Release::Released);
    }
}

fn keep_busy(locks: &Locker) -> Result<()> {
    loop {
        locks.lock("busy").acquire()?.release()?;
        drop(locks.lock("busy").acquire()?);
    }
}

/// Uses, and then drops, what is the parent's.
fn refused_all(locks: &Locker, guards: Option<[Guard; 2]>) -> std::result::Result<(), String> {
    let [released, _dropped] = guards.expect("nobody else takes them");
    let lock = locks.lock("free");
    refused("connect", locks.connect())?;
    refused("status", locks.status("held"))?;
    refused("acquire", lock.acquire())?;
    refused("acquire_within", lock.acquire_within(AT_MOST))?;
    refused("try_acquire", lock.try_acquire())?;
    refused(
        "acquire_all",
        blocking::acquire_all([lock.clone(), locks.lock("other")]),
    )?;
    refused("extend", released.extend(AT_MOST))?;
    refused("wait_lost", released.wait_lost(AT_MOST))?;
    refused("on_lost", released.on_lost(|_: Lost| {}))?;
    refused("shutdown", locks.shutdown())?;
    refused("release", released.release())
}

fn refused<T: Debug>(what: &str, used: Result<T>) -> std::result::Result<(), String> {
    match used {
        Err(error) if error.kind() == ErrorKind::Misconfigured && error.to_string().contains("forked") => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    }
}

/// Has a locker of its own, with its own thread.
fn works(url: &str) -> Result<()> {
    let locks = blocking::connect(url)?;
    locks.lock("the child's").with_within(AT_MOST, |held| held.check())??;
    assert_eq!(threads(), Some(1).filter(|_| cfg!(target_os = "linux")));
    locks.shutdown()
}

/// How many threads of this process are polylock's; `None` where that is not known.
fn threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.trim_end() == "polylock").count())
}
