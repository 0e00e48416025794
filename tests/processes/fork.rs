//! Forking, in a process of its own, so that nobody else's threads are in the way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::runtime::{Builder, Runtime};

use crate::child::{Child, end_with_parent, report, task, test_name};

/// What a forked process reports if nothing was wrong.
pub(crate) const FINE: &str = "fine";
/// What the process that forks reports at its end.
const ENDED: &str = "ended";

unsafe extern "C" {
    /// libc's: 0 in the child, else the child's number, or -1.
    fn fork() -> i32;
}

/// Forks. The child does `work`, reports what was wrong, and exits.
pub(crate) fn fork_off(work: impl FnOnce() -> Result<(), String>) -> Pid {
    // SAFETY: the C library stays usable in the child of a process that has other threads, and the standard library uses
    // nothing of them. Whether the locks in this library do is what the tests are for.
    match unsafe { fork() } {
        0 => {
            end_with_parent();
            let done = catch_unwind(AssertUnwindSafe(work));
            report(&match done {
                Ok(Ok(())) => FINE.to_owned(),
                Ok(Err(wrong)) => wrong,
                Err(panic) => format!("panicked: {:?}", panic.downcast_ref::<String>()),
            });
            std::process::exit(0);
        }
        child => Pid::from_raw(child).expect("fork succeeds"),
    }
}

/// Waits until a forked process has exited.
pub(crate) fn wait_for(child: Pid) {
    waitpid(Some(child), WaitOptions::empty()).expect("it is a child of this process");
}

/// Starts this test again as a process that does `forking` with this task, and hands all that it and its forks report
/// to `look`. In that process, it does the task.
pub(crate) fn in_a_process_of_its_own(task_there: &str, forking: impl FnOnce(&str), look: impl FnOnce(Vec<String>)) {
    if let Some(task) = task() {
        forking(&task);
        return report(ENDED);
    }
    let reports = current_thread().block_on(async {
        let mut process = Child::start(&test_name(), task_there);
        let mut reports = Vec::new();
        loop {
            match process.report().await {
                end if end == ENDED => return reports,
                report => reports.push(report),
            }
        }
    });
    look(reports);
}

/// The same with the server's URL as the task.
#[cfg(any(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) fn in_a_process_with(
    server: impl Future<Output = Result<testbed::Server, testbed::Error>>,
    parameters: &str,
    forking: impl FnOnce(&str),
    look: impl FnOnce(Vec<String>),
) {
    if task().is_some() {
        return in_a_process_of_its_own("", forking, look);
    }
    if !testbed::skip_offline() {
        let server = current_thread().block_on(server).expect("a server");
        in_a_process_of_its_own(&format!("{}{parameters}", server.url()), forking, look);
    }
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
