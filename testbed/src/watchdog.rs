//! Ends what a test process started when the test process itself no longer can.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Error;

/// A shell that owns a directory and knows which process groups run in it. When our end of its pipe closes, which the
/// kernel sees to however we end, it kills those groups and removes the directory.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
    /// `None` only while it is dropped.
    pipe: Option<ChildStdin>,
    dir: PathBuf,
}

/// Reads "+ PID" and "- PID" until the pipe closes. A killed process may still create files for a moment, and on a
/// system whose first process reaps nobody it never goes: so wait, but not for ever.
const SCRIPT: &str = r#"
dir=$(mktemp -d "$1/polylock-$2-XXXXXX") || exit 1
echo "$dir"
exec >&-
pids=
while read -r sign pid; do
    rest=
    for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done
    pids=$rest
    [ "$sign" = + ] && pids="$pids $pid"
done
for p in $pids; do kill -s KILL -- "-$p"; done
for i in 1 2 3 4 5 6 7 8 9 10; do
    alive=
    for p in $pids; do kill -s 0 -- "-$p" && alive=1; done
    [ -z "$alive" ] && break
    sleep 0.1
done
rm -rf -- "$dir" || { sleep 1; rm -rf -- "$dir"; }
"#;

impl Watchdog {
    /// Makes a directory `polylock-NAME-…` under `base` and watches over it.
    pub(crate) fn start(base: &Path, name: &str) -> Result<Self, Error> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(base)
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Neither Ctrl-C nor a kill of the test's whole process group may reach it.
            .process_group(0)
            .spawn()
            .map_err(Error::io("starting a watchdog shell"))?;
        let pipe = shell.stdin.take();
        let answer = shell.stdout.take().expect("its stdout is piped");
        let mut dir = String::new();
        BufReader::new(answer)
            .read_line(&mut dir)
            .map_err(Error::io("reading from the watchdog"))?;
        let dir = PathBuf::from(dir.trim_end_matches('\n'));
        // First, so that the shell is reaped also when it failed.
        let watchdog = Self { shell, pipe, dir };
        if !watchdog.dir.is_dir() {
            let source = std::io::ErrorKind::PermissionDenied.into();
            return Err(Error::io(format!("creating a directory under {}", base.display()))(
                source,
            ));
        }
        Ok(watchdog)
    }

    /// The directory that goes when this does.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The end of the pipe into which a child writes "+ PID" before it becomes a server. It must not outlive that.
    pub(crate) fn registration(&self) -> Result<OwnedFd, Error> {
        use std::os::fd::AsFd;
        self.pipe()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::io("copying the watchdog's pipe"))
    }

    /// To call when the process is dead but not yet reaped: from then on its number may be somebody else's.
    pub(crate) fn forget(&self, pid: u32) {
        // A watchdog that somebody killed cannot kill others.
        let _ = writeln!(self.pipe(), "- {pid}");
    }

    fn pipe(&self) -> &ChildStdin {
        self.pipe.as_ref().expect("taken only in drop")
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It ends within a second or two, whatever it finds.
        let _ = self.shell.wait();
    }
}
