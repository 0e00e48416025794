//! A small library in C that is loaded into a server before all others, and a page by which a test commands it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::watchdog::Watchdog;
use crate::{Clock, Disk, Error, data};

/// How large the page is.
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Preload {
    /// What the library has mapped.
    page: File,
    watchdog: Watchdog,
}

impl Preload {
    /// Compiles it; the page is all zeros.
    pub(crate) fn new(name: &str, source: &[u8]) -> Result<Self, Error> {
        let watchdog = Watchdog::start(&data::base(), name)?;
        compile(source, &watchdog.dir().join(LIBRARY))?;
        let creating = || Error::io("creating a page in memory that a server reads");
        let page = File::create_new(watchdog.dir().join(PAGE_NAME)).map_err(creating())?;
        page.set_len(PAGE).map_err(creating())?;
        Ok(Self { page, watchdog })
    }

    /// Writes the numbers, beginning with the one at `index`. Each is whole whenever it is read.
    pub(crate) fn set(&self, index: u64, numbers: &[i64]) -> Result<(), Error> {
        for (number, index) in numbers.iter().zip(index..) {
            let written = self.page.write_all_at(&number.to_ne_bytes(), index * 8);
            written.map_err(Error::io("writing to a page in memory that a server reads"))?;
        }
        Ok(())
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.watchdog.dir().join(LIBRARY)
    }

    pub(crate) fn page(&self) -> PathBuf {
        self.watchdog.dir().join(PAGE_NAME)
    }
}

/// Compiles a library.
pub(crate) fn compile(source: &[u8], library: &Path) -> Result<(), Error> {
    let compiling = || Error::io("compiling a library with the C compiler `cc`");
    let mut cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o"])
        .arg(library)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(compiling())?;
    let sent = cc.stdin.take().expect("its stdin is piped").write_all(source);
    let status = cc.wait().map_err(compiling())?;
    sent.map_err(compiling())?;
    match status.success() {
        true => Ok(()),
        false => Err(compiling()(std::io::Error::other(status.to_string()))),
    }
}

/// Has a server run on this clock, and write to this disk.
pub(crate) fn load(command: &mut Command, clock: Option<&Clock>, disk: Option<&Disk>) {
    command.envs(clock.map(Clock::variable));
    command.envs(disk.map(Disk::variable));
    let clock = clock.map(Clock::library);
    for library in clock.into_iter().chain(disk.map(Disk::library)) {
        add(command, &library);
    }
}

/// Has a program load this library, too, before all others.
pub(crate) fn add(command: &mut Command, library: &Path) {
    let is_preload = |(name, _): &(&OsStr, _)| *name == PRELOAD;
    let before = command.get_envs().find(is_preload).and_then(|(_, value)| value);
    let mut libraries = before.map(OsStr::to_owned).unwrap_or_default();
    if !libraries.is_empty() {
        libraries.push(":");
    }
    libraries.push(library);
    command.env(PRELOAD, libraries);
}

const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "preload.so";
const PAGE_NAME: &str = "page";
