//! A backend in the files of a directory, whole and with two bugs that no server-side reference can have: all its work is done
//! in the client's process, and in no time.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use conformance_tests::{
    BackendHarness, Data, Harness, Link, Linked, LockerSubject, NoServer, Route, ServerUse, Subject, Timing,
};
use lock_core::backend::{
    AcquireRequest, Attempt, Busy, Capabilities, DistributedLock, Hold, HolderId, HolderStatus, Lease, LockStatus,
    ReleaseOptions, ReleaseOutcome, Renewal, SentAt, rules,
};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Result};
use tempfile::TempDir;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A grant counts from the moment at which the file was written.
    CountsFromTheEffect,
    /// The file is emptied before it is written: a process that is killed in between loses the hold of somebody else.
    EmptiesBeforeItWrites,
}

impl Bug {
    const ALL: [Self; 2] = [Self::CountsFromTheEffect, Self::EmptiesBeforeItWrites];
}

#[derive(Debug)]
pub(crate) struct FileHarness {
    directory: PathBuf,
    bug: Option<Bug>,
    /// `None` in a child process.
    _temporary: Option<TempDir>,
}

impl FileHarness {
    pub(crate) fn with_bug(bug: Option<Bug>) -> Self {
        let temporary = tempfile::tempdir().expect("a directory");
        Self {
            directory: temporary.path().to_owned(),
            bug,
            _temporary: Some(temporary),
        }
    }

    fn files(&self, namespace: &str) -> FileBackend {
        let directory = self.directory.join(namespace);
        fs::create_dir_all(&directory).expect("make a directory");
        FileBackend {
            directory: directory.into(),
            bug: self.bug,
        }
    }
}

#[async_trait]
impl Harness for FileHarness {
    async fn start(server: ServerUse) -> std::result::Result<Self, NoServer> {
        match server {
            ServerUse::Shared => Ok(Self::with_bug(None)),
            ServerUse::Own => Err(NoServer::Offline("there is no server to restart".to_owned())),
        }
    }

    fn attach(address: &str) -> Self {
        let (bug, directory) = address.split_once(':').expect("an address of ours");
        Self {
            directory: directory.into(),
            bug: Bug::ALL.into_iter().find(|known| format!("{known:?}") == bug),
            _temporary: None,
        }
    }

    fn address(&self) -> Option<String> {
        let bug = self.bug.map(|bug| format!("{bug:?}")).unwrap_or_default();
        Some(format!("{bug}:{}", self.directory.display()))
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }

    async fn subject(&self, namespace: &str, route: &Route) -> Arc<dyn Subject> {
        Arc::new(LockerSubject::new(self.backend(namespace, route).await))
    }

    async fn take_away(&self, namespace: &str, name: &str) {
        let name = LockName::new(name).expect("a valid name");
        let files = self.files(namespace);
        let taken = files.with(&name, |entry, _| {
            entry.holder.clear();
            Ok(())
        });
        taken.expect("write the file");
    }

    async fn restart(&self, _data: Data) {
        unreachable!("`start` has none for that")
    }

    fn auxiliary_names(&self, _namespace: &str, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl BackendHarness for FileHarness {
    async fn backend(&self, namespace: &str, route: &Route) -> Arc<dyn DistributedLock> {
        match route {
            Route::Through(link) => Arc::new(Linked::new(self.files(namespace), link.clone())),
            Route::Nowhere => {
                let link = Link::new();
                link.cut();
                Arc::new(Linked::new(self.files(namespace), link))
            }
            _ => Arc::new(self.files(namespace)),
        }
    }
}

/// Each request is one critical section under the lock of the name's file.
#[derive(Clone, Debug)]
struct FileBackend {
    directory: Arc<Path>,
    bug: Option<Bug>,
}

/// One line: the token, the end in microseconds, and the holder.
#[derive(Debug, Default)]
struct Entry {
    token: u64,
    end: Duration,
    holder: String,
}

impl FileBackend {
    fn with<T>(&self, name: &LockName, change: impl FnOnce(&mut Entry, Duration) -> Result<T>) -> Result<T> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, "the file of the lock cannot be used").with_source(error)
        };
        let (mut entry, mut file) = self.open(name).map_err(failed)?;
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        let result = change(&mut entry, now)?;
        self.write(&entry, &mut file).map_err(failed)?;
        Ok(result)
    }

    /// The file is locked until it is closed.
    fn open(&self, name: &LockName) -> io::Result<(Entry, File)> {
        let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(self.directory.join(hex))?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Entry::parse(&text).unwrap_or_default(), file))
    }

    fn write(&self, entry: &Entry, file: &mut File) -> io::Result<()> {
        let line = format!(
            "{:020} {:020} {:>40}\n",
            entry.token,
            entry.end.as_micros(),
            entry.holder
        );
        if self.bug == Some(Bug::EmptiesBeforeItWrites) {
            file.set_len(0)?;
            file.rewind()?;
            return file.write_all(line.as_bytes());
        }
        // One call, which writes all of the line or nothing: it is as long as the one before.
        file.write_all_at(line.as_bytes(), 0)
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Self {
            token: words.next()?.parse().ok()?,
            end: Duration::from_micros(words.next()?.parse().ok()?),
            holder: words.next().unwrap_or_default().to_owned(),
        })
    }

    fn is_held(&self, now: Duration) -> bool {
        !self.holder.is_empty() && !rules::has_expired(self.end, now)
    }

    fn is_of(&self, holder: HolderId, now: Duration) -> bool {
        self.is_held(now) && rules::is_mine(&self.holder, &holder.to_string())
    }
}

#[async_trait]
impl DistributedLock for FileBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        if request.is_given_up() {
            return Err(Error::new(ErrorKind::Unavailable, "given up before the file was opened").not_executed());
        }
        let (sent, ttl) = (request.sending(), request.ttl());
        let granted = self.with(request.name(), |entry, now| {
            if entry.is_of(request.holder(), now) {
                entry.end = rules::prolonged(entry.end, now, ttl);
            } else if entry.is_held(now) {
                return Ok(None);
            } else {
                let clock = now.as_micros().try_into().unwrap_or(u64::MAX);
                let token = rules::next_token(entry.token, clock, request.token_floor());
                *entry = Entry {
                    token: token.map_or(u64::MAX, FencingToken::as_u64),
                    end: now + ttl,
                    holder: request.holder().to_string(),
                };
            }
            Ok(FencingToken::new(entry.token))
        })?;
        let sent = match self.bug {
            Some(Bug::CountsFromTheEffect) => SentAt::now(),
            _ => sent,
        };
        let Some(token) = granted else {
            return Ok(Attempt::Busy(Busy::new().with_ask_again(Duration::from_millis(25))));
        };
        let armed = request.lease().arm(sent, ttl)?;
        let hold = FileHold {
            files: self.clone(),
            name: request.name().clone(),
            holder: request.holder(),
            lease: request.lease().clone(),
            token,
        };
        Ok(Attempt::Granted(Arc::new(hold), armed))
    }

    async fn abandon(&self, request: &AcquireRequest) -> Result<()> {
        self.end(request.name(), request.holder()).map(drop)
    }

    async fn status(&self, name: &LockName) -> Result<LockStatus> {
        self.with(name, |entry, now| {
            Ok(match entry.is_held(now) {
                true => LockStatus::held(HolderStatus::new().with_expires_in(entry.end - now)),
                false => LockStatus::free(),
            })
        })
    }
}

impl FileBackend {
    fn end(&self, name: &LockName, holder: HolderId) -> Result<ReleaseOutcome> {
        self.with(name, |entry, now| {
            if !entry.is_of(holder, now) {
                return Ok(ReleaseOutcome::AlreadyLost);
            }
            entry.holder.clear();
            Ok(ReleaseOutcome::Released)
        })
    }
}

#[derive(Debug)]
struct FileHold {
    files: FileBackend,
    name: LockName,
    holder: HolderId,
    lease: Lease,
    token: FencingToken,
}

#[async_trait]
impl Hold for FileHold {
    fn token(&self) -> FencingToken {
        self.token
    }

    async fn renew(&self, ttl: Duration) -> Result<Renewal> {
        let sent = SentAt::now();
        let is_renewed = self.files.with(&self.name, |entry, now| {
            let is_mine = entry.is_of(self.holder, now);
            if is_mine {
                entry.end = rules::prolonged(entry.end, now, ttl);
            }
            Ok(is_mine)
        })?;
        Ok(match is_renewed {
            true => Renewal::Renewed(self.lease.arm(sent, ttl)?),
            false => Renewal::Lost,
        })
    }

    async fn release(&self, _how: ReleaseOptions) -> Result<ReleaseOutcome> {
        self.files.end(&self.name, self.holder)
    }
}
