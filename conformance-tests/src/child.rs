//! Other processes: the test binary again, told by its environment to be a client of the parent's server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::context::Cx;
use crate::harness::{Harness, Route};
use crate::job::Job;
use crate::parent::{MARK, Parent};
use crate::verdict::{OrFail, Stop, Verdict};

const ADDRESS: &str = "POLYLOCK_CONFORMANCE_ADDRESS";
const NAMESPACE: &str = "POLYLOCK_CONFORMANCE_NAMESPACE";
const JOB: &str = "POLYLOCK_CONFORMANCE_JOB";

/// Whether this process was started by a case.
pub(crate) fn is_child() -> bool {
    std::env::var_os(JOB).is_some()
}

/// What a child says that was granted a name of another holder.
pub(crate) const SECOND: &str = "second one";
/// What a child says of a hold that another one may have.
pub(crate) const BELIEVES: &str = "believes";

/// The failure if a child says what means two holders.
fn means_two(said: &str) -> Option<Stop> {
    let message = format!("the child process said {said:?}");
    match said {
        BELIEVES => Some(Stop::safety(message)),
        _ => said.starts_with(SECOND).then(|| Stop::by_ttl(message)),
    }
}

/// Another process that uses the same server. It is killed when this is dropped, and ends by itself when this
/// process does.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    commands: ChildStdin,
    said: UnboundedReceiver<String>,
}

impl Child {
    /// Starts one that does this job.
    pub(crate) fn start(cx: &Cx, job: &Job) -> Result<Self, Stop> {
        let mut command = Command::new(std::env::current_exe().or_fail("find this program")?);
        command
            .args([cx.test(), "--exact", "--nocapture", "--test-threads=1"])
            .env(ADDRESS, cx.address()?)
            .env(NAMESPACE, cx.namespace())
            .env(JOB, job.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // A subject whose client is a process of its own starts it in the same group, which is killed and paused as one.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().or_fail("start a child process")?;
        let (Some(commands), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Stop::assertion("a child process without its pipes"));
        };
        let (say, said) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, words)) = line.split_once(MARK)
                    && say.send(words.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            commands,
            said,
        })
    }

    /// The next thing it says, which must begin with `word`; what follows that.
    pub(crate) async fn says(&mut self, cx: &Cx, word: &str, within: Duration) -> Result<String, Stop> {
        let what = format!("a child process to say {word:?}");
        let said = cx.within(within + cx.patience(), &what, self.said.recv()).await?;
        let said =
            said.ok_or_else(|| Stop::assertion(format!("the child process ended instead of saying {word:?}")))?;
        match said.strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(means_two(&said)
                .unwrap_or_else(|| Stop::assertion(format!("the child process said {said:?} instead of {word:?}")))),
        }
    }

    /// Fails if one that was killed has said that it had what another one holds.
    pub(crate) async fn had_nothing_of_others(&mut self, cx: &Cx) -> Verdict {
        let what = "the output of a killed process to end";
        while let Some(said) = cx.soon(what, self.said.recv()).await? {
            means_two(&said).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Tells it something.
    pub(crate) fn tell(&mut self, command: &str) -> Result<(), Stop> {
        writeln!(self.commands, "{command}").or_fail("talk to a child process")
    }

    /// Ends it at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) -> Result<(), Stop> {
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL)?;
        self.process.kill().or_fail("kill a child process")?;
        self.process.wait().or_fail("wait for a child process").map(drop)
    }

    /// Stops it in the middle of whatever it does.
    #[cfg(unix)]
    pub(crate) fn pause(&self) -> Result<(), Stop> {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Lets it go on.
    #[cfg(unix)]
    pub(crate) fn resume(&self) -> Result<(), Stop> {
        self.signal(rustix::process::Signal::CONT)
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> Result<(), Stop> {
        let signalled = match rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            Some(pid) => rustix::process::kill_process_group(pid, signal).map_err(std::io::Error::from),
            None => Err(std::io::Error::other("no such process")),
        };
        signalled.or_fail("signal a child process")
    }

    /// Elsewhere a process cannot be paused.
    #[cfg(not(unix))]
    pub(crate) fn pause(&self) -> Result<(), Stop> {
        Err(Stop::Skipped(crate::verdict::Skip::NoSignals))
    }

    /// Elsewhere a process cannot be paused.
    #[cfg(not(unix))]
    pub(crate) fn resume(&self) -> Result<(), Stop> {
        Err(Stop::Skipped(crate::verdict::Skip::NoSignals))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended already where these fail.
        if let Ok(None) = self.process.try_wait() {
            let _ = self.kill();
        }
    }
}

/// Does the job and ends the process, if this is a child; else comes back.
#[doc(hidden)]
pub fn run_as_child<H: Harness>() {
    let (Ok(address), Ok(namespace), Ok(job)) = (std::env::var(ADDRESS), std::env::var(NAMESPACE), std::env::var(JOB))
    else {
        return;
    };
    let job: Job = job
        .parse()
        .unwrap_or_else(|error| panic!("no job for a child process: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("no runtime for a child process: {error}"));
    let harness = {
        // It may spawn tasks.
        let _context = runtime.enter();
        H::attach(&address)
    };
    runtime.block_on(async {
        let subject = harness.subject(&namespace, &Route::Direct).await;
        job.run(subject, Parent::start()).await;
    });
    // This drops nothing. A panic of the job drops the harness outside of the runtime: it may own one.
    std::process::exit(0);
}
