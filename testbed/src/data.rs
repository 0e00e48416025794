//! Where data directories go, and copies of them.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Containers often have only 64 MB of shared memory: a few servers would fill it.
const ENOUGH: u64 = 1 << 30;

/// Memory if there is plenty, as most of a test server's time is `fsync`; else the temporary directory. Either keeps
/// what a SIGKILLed server wrote.
pub(crate) fn base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let roomy = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail * fs.f_frsize > ENOUGH)
        && rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
    if roomy { memory.into() } else { std::env::temp_dir() }
}

/// Copies a directory of plain files and directories.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The end of a server's log, for error messages.
pub(crate) fn log_tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
