//! An archive of the classes that a ZooKeeper loads. With it, a start takes some 0.3 instead of 0.55 seconds of a core.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{base, mode};
use crate::port::Port;
use crate::process::Process;
use crate::watchdog::Watchdog;
use crate::{Error, data, locate, template};

const NAME: &str = "classes.jsa";

/// The archive for this program, which is made once on a machine. `None` if its Java makes none.
pub(super) fn of(program: &locate::ZooKeeper) -> Option<PathBuf> {
    let made = template::of(&program.java, &program.jars, |data| {
        // Starts merely take longer without one. It is not tried again.
        if make(program, data).is_err() {
            drop(fs::remove_file(data.join(NAME)));
        }
        Ok(())
    });
    let archive = made.ok()?.join(NAME);
    archive.is_file().then_some(archive)
}

/// Java writes it when a server ends.
fn make(program: &locate::ZooKeeper, template: &Path) -> Result<(), Error> {
    let making = || Error::io("making an archive of ZooKeeper's classes");
    let port = Port::reserve().map_err(making())?;
    let watchdog = Watchdog::start(&data::base(), "zookeeper-classes")?;
    let (dir, number) = (watchdog.dir(), port.number());
    let config = format!(
        "dataDir={}/data\nclientPort={number}\n4lw.commands.whitelist=*\n",
        dir.display()
    );
    fs::write(dir.join("zoo.cfg"), config).map_err(making())?;
    let mut command = Command::new(&program.java);
    command.arg(format!("-XX:ArchiveClassesAtExit={}", template.join(NAME).display()));
    base(&mut command, program).arg(dir.join("zoo.cfg"));
    let server = Process::start(&command, &dir.join("log"), &watchdog)?;
    let served = until(|| server.has_ended() || mode(number).is_some()).and_then(|()| match server.has_ended() {
        // It has not loaded what a server needs.
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    });
    server.signal(Signal::TERM)?;
    let ended = until(|| server.has_ended());
    server.kill(&watchdog)?;
    served.and(ended).map_err(making())
}

fn until(is_so: impl Fn() -> bool) -> io::Result<()> {
    /// Many times what it takes on an overloaded machine.
    const AT_MOST: Duration = Duration::from_secs(60);
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > AT_MOST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}
