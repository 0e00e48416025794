//! Initialised data directories, which new servers are copied from: initialising takes a MariaDB or a PostgreSQL half a
//! second of every core, and a MySQL some seconds. Each is made once on a machine, under `target/servers`.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, data, locate};

/// Begins the names of templates, which is followed by a hash of what made it.
const TEMPLATE: &str = "template-";

/// Removes the data directories that new servers were copied from. For when the installed server is replaced.
///
/// # Errors
/// [`Error::Io`].
pub fn forget_templates() -> Result<(), Error> {
    let entries = fs::read_dir(locate::installed_dir()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPLATE)) {
        fs::remove_dir_all(entry.path()).map_err(Error::io(format!("removing {}", entry.path().display())))?;
    }
    Ok(())
}

/// The directory that this program makes with these options. `make` fills an empty one, if it is not there yet.
pub(crate) fn of(
    program: &Path,
    options: impl Hash,
    make: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (
        program,
        fs::metadata(program).and_then(|program| program.modified()).ok(),
        options,
    )
        .hash(&mut hasher);
    let base = locate::installed_dir();
    let template = base.join(format!("{TEMPLATE}{:016x}", hasher.finish()));
    if template.is_dir() {
        return Ok(template);
    }
    fs::create_dir_all(&base).map_err(Error::io(format!("creating {}", base.display())))?;
    let lock = base.join("templates.lock");
    let lock = File::create(&lock).map_err(Error::io(format!("creating {}", lock.display())))?;
    lock.lock().map_err(Error::io("locking the templates"))?;
    if template.is_dir() {
        return Ok(template);
    }
    let unfinished = base.join("template.tmp");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(Error::io("removing an unfinished template"))?;
    }
    fs::create_dir(&unfinished).map_err(Error::io("creating a template"))?;
    make(&unfinished)?;
    fs::rename(&unfinished, &template).map_err(Error::io("naming a template"))?;
    Ok(template)
}

/// Runs a program that fills or changes `data`, with this on its standard input.
pub(crate) fn run(mut command: Command, input: &[u8], data: &Path) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Not in the data directory: a MySQL demands an empty one.
    let log = data.with_extension("log");
    let output = File::create(&log).map_err(Error::io("creating a log"))?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .map_err(Error::io(format!("starting {program}")))?;
    // Our end closes it, also when we are killed: no server stays.
    let sent = child.stdin.take().expect("its stdin is piped").write_all(input);
    let status = child.wait().map_err(Error::io(format!("waiting for {program}")))?;
    if status.success() && sent.is_ok() {
        return fs::remove_file(&log).map_err(Error::io("removing a log"));
    }
    Err(Error::Start {
        server: "a data directory",
        problem: status.to_string(),
        log: data::log_tail(&log),
    })
}
