//! Passwords from files and variables.

use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::fs::File;
use std::future::pending;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::error::{Error, ErrorKind, Result};
use crate::of_process::{OfProcess, PROCESSES};

/// No password is longer. A file without an end would fill the memory.
const LONGEST: u64 = 64 * 1024;

/// The most reads of one path at a time. One that hangs keeps its thread for ever. The next ones may find another file there.
pub(super) const AT_ONCE: usize = 16;

/// For each path that is being read: what the reads have permits of.
type Reads = Mutex<BTreeMap<PathBuf, Weak<Semaphore>>>;

static READS: [OfProcess<Reads>; PROCESSES] = [const { OfProcess::new(Mutex::new(BTreeMap::new())) }; PROCESSES];

pub(super) async fn file(path: PathBuf, limit: Duration) -> Result<String> {
    let of_path = path.clone();
    let read = move || {
        let content = content(&path).map_err(|error| {
            let message = format!(
                "the password file {} cannot be read: check its path and permissions",
                path.display()
            );
            misconfigured(message).with_source(error)
        });
        password(content?, &format!("the password file {}", path.display()))
    };
    on_a_thread(&of_path, limit, read).await
}

/// Reads on a thread of its own, which may wait for ever for a file system or a pipe. Tokio's threads for blocking work are limited,
/// and a runtime waits for them when it ends. So one of these waits for the read, no longer than `limit`, which also keeps Tokio's paused
/// clock still. Pending after that.
pub(super) async fn on_a_thread<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
    let turn = turn(path).await;
    let (tell, told) = sync_channel(1);
    let reading = move || {
        drop(tell.send(read()));
        drop(turn);
    };
    let started = thread::Builder::new().name("polylock-password".into()).spawn(reading);
    started.map_err(|error| unavailable("no thread can be started to read the password file").with_source(error))?;
    match spawn_blocking(move || told.recv_timeout(limit)).await {
        Ok(Ok(read)) => read,
        Ok(Err(RecvTimeoutError::Timeout)) => pending().await,
        // The read does not panic.
        Ok(Err(RecvTimeoutError::Disconnected)) => Err(unavailable("the password file was not read")),
        Err(error) => {
            Err(unavailable("the password file was not read, since the Tokio runtime ends").with_source(error))
        }
    }
}

/// Waits until fewer than [`AT_ONCE`] reads of the path are under way in this process.
async fn turn(path: &Path) -> Option<OwnedSemaphorePermit> {
    let of_path = {
        let mut reads = OfProcess::own(&READS)?.lock().unwrap_or_else(PoisonError::into_inner);
        reads.retain(|_, reading| reading.strong_count() > 0);
        reads.get(path).and_then(Weak::upgrade).unwrap_or_else(|| {
            let reading = Arc::new(Semaphore::new(AT_ONCE));
            reads.insert(path.to_owned(), Arc::downgrade(&reading));
            reading
        })
    };
    // Nobody closes it.
    of_path.acquire_owned().await.ok()
}

fn content(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut content)?;
    Ok(content)
}

pub(super) fn variable(name: &str) -> Result<String> {
    // The system's calls take none of these.
    let is_name = !name.is_empty() && !name.contains(['=', '\0']);
    let value = if is_name {
        env::var(name)
    } else {
        Err(VarError::NotPresent)
    };
    let what = format!("the environment variable {name}");
    match value {
        Ok(value) => password(value.into_bytes(), &what),
        Err(VarError::NotPresent) => Err(misconfigured(format!(
            "{what}, which is to have the password, is not set: set it"
        ))),
        Err(VarError::NotUnicode(_)) => Err(misconfigured(not_utf8(&what))),
    }
}

/// Without the line break that editors and `echo` add.
pub(super) fn password(content: Vec<u8>, what: &str) -> Result<String> {
    if content.len() as u64 > LONGEST {
        let message = format!("{what} has more than {LONGEST} bytes: name one that has a password and nothing else");
        return Err(misconfigured(message));
    }
    // Its error would show the password.
    let mut password = String::from_utf8(content).map_err(|_| misconfigured(not_utf8(what)))?;
    if password.ends_with('\n') {
        password.pop();
        if password.ends_with('\r') {
            password.pop();
        }
    }
    match password.is_empty() {
        true => Err(misconfigured(format!("{what} is empty: put the password into it"))),
        false => Ok(password),
    }
}

fn not_utf8(what: &str) -> String {
    format!("{what} is not UTF-8: use a password that is")
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}
