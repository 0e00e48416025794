//! Passwords from files and variables.

use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};

use crate::error::{Error, ErrorKind, Result};
use crate::of_process::{OfProcess, PROCESSES};

/// No password is longer. A file without an end would fill the memory.
const LONGEST: u64 = 64 * 1024;

/// For each path that is being read: the lock that the read has.
type Reads = Mutex<BTreeMap<PathBuf, Weak<AsyncMutex<()>>>>;

static READS: [OfProcess<Reads>; PROCESSES] = [const { OfProcess::new(Mutex::new(BTreeMap::new())) }; PROCESSES];

pub(super) async fn file(path: PathBuf) -> Result<String> {
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
    alone(&of_path, read).await
}

/// Reads on a thread of its own, which may wait for ever for a file system or a pipe. Tokio's threads for blocking work are limited,
/// and a runtime waits for them when it ends. Another read of the path waits for this one, so that only one thread hangs.
pub(super) async fn alone<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
    let turn = turn(path).await;
    let (tell, told) = oneshot::channel();
    let reading = move || {
        drop(tell.send(read()));
        drop(turn);
    };
    let started = thread::Builder::new().name("polylock-password".into()).spawn(reading);
    started.map_err(|error| unavailable("no thread can be started to read the password file").with_source(error))?;
    // It does not panic.
    let ended = |error| Err(unavailable("the password file was not read").with_source(error));
    told.await.unwrap_or_else(ended)
}

/// Waits until no other read of the path is under way in this process.
async fn turn(path: &Path) -> Option<OwnedMutexGuard<()>> {
    let of_path = {
        let mut reads = OfProcess::own(&READS)?.lock().unwrap_or_else(PoisonError::into_inner);
        reads.retain(|_, reading| reading.strong_count() > 0);
        reads.get(path).and_then(Weak::upgrade).unwrap_or_else(|| {
            let reading = Arc::default();
            reads.insert(path.to_owned(), Arc::downgrade(&reading));
            reading
        })
    };
    Some(of_path.lock_owned().await)
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
