//! Other processes: this test binary again, told by its environment what to do.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use testbed::happens;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdout, Command};
use tokio::time::timeout;

const TASK: &str = "POLYLOCK_TEST_TASK";
/// Stands before what a child reports, because the test runner writes to the same place.
const MARK: &str = "@child ";

/// Another process. It is killed when this is dropped, with all that it started.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts one that runs `test`, a path as `module::test`, and finds `task` there.
    pub(crate) fn start(test: &str, task: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a test knows where it is"))
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Some of them fail as planned.
            .stderr(Stdio::null())
            // What it starts ends with it.
            .process_group(0)
            .spawn()
            .expect("a process can be started");
        let output = process.stdout.take().expect("its output is piped");
        Self {
            process,
            output: BufReader::new(output).lines(),
        }
    }

    /// The next thing that it reports.
    pub(crate) async fn report(&mut self) -> String {
        let mut before = Vec::new();
        let reading = async {
            while let Some(line) = self.output.next_line().await.expect("a child writes UTF-8") {
                if let Some((_, report)) = line.split_once(MARK) {
                    return Some(report.to_owned());
                }
                before.push(line);
            }
            None
        };
        match happens("a report of a child", reading).await {
            Some(report) => report,
            None => panic!("a child ended without a report, after {before:#?}"),
        }
    }

    /// How it ended, unless it still runs when the time is up.
    pub(crate) async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let ended = timeout(within, self.process.wait()).await.ok()?;
        Some(ended.expect("a child can be waited for"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // `None` once it was waited for: then its number may be somebody else's.
        let group = self.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(group) = group {
            // It has ended already where this fails.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What this process is to do, if it is a child. It then ends with its parent.
pub(crate) fn task() -> Option<String> {
    let task = std::env::var(TASK).ok()?;
    end_with_parent();
    Some(task)
}

/// Has the kernel kill this process when the thread that started it ends, however that happens.
pub(crate) fn end_with_parent() {
    // Elsewhere it ends by itself, unless the test fails.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
}

/// Reports to the parent.
pub(crate) fn report(what: &str) {
    println!("{MARK}{what}");
}

/// The path of the test that runs on this thread.
pub(crate) fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().expect("the test runner names its threads").to_owned()
}
