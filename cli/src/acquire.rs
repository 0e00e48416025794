//! From the arguments to a hold.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use polylock::{Config, ErrorKind, Lock, Locker, acquire_all, acquire_all_within};
use tokio::time::{Instant, sleep};

use crate::cli::{LockArgs, OnUnreachable, OutputArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::held::Held;
use crate::message::say;
use crate::server;

/// A label may have so many bytes.
const LONGEST_LABEL: usize = 255;

/// A locker with these arguments. Does no I/O.
///
/// # Errors
/// If they cannot be honoured.
pub(crate) fn locker(arguments: &LockArgs, server: &ServerArgs, command: &OsStr) -> Result<Locker, Failure> {
    if arguments.lock.len() > 1 && arguments.at_least.is_some() {
        return Err(Failure::usage(
            "--at-least needs a single lock: several are held together or not at all",
        ));
    }
    Ok(with_options(server::config(server)?, arguments, command).connect_lazy()?)
}

fn with_options(mut config: Config, arguments: &LockArgs, command: &OsStr) -> Config {
    config.ttl = arguments.ttl.or(config.ttl);
    config.label = match (&arguments.label, config.label) {
        (Some(label), _) => Some(label.clone()),
        (None, Some(label)) => Some(label),
        (None, None) => {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy().into_owned();
            Some(label(&host, std::process::id(), command))
        }
    };
    config
}

/// `host:pid command`, without the command's arguments: they may have secrets.
fn label(host: &str, process: u32, command: &OsStr) -> String {
    let program = Path::new(command).file_name().unwrap_or(command).to_string_lossy();
    let mut label = format!("{host}:{process} {program}");
    label.truncate(label.floor_char_boundary(LONGEST_LABEL));
    label
}

/// Acquires all locks that are named. `None`: to go on without, since no connection to the server was made.
///
/// # Errors
/// With the code that polylock exits with.
///
/// # Cancel safety
/// If it is dropped, what was sent is undone in the background. [`Locker::shutdown`] waits for that.
pub(crate) async fn acquire(
    locks: &Locker,
    arguments: &LockArgs,
    connect_timeout: Duration,
    on_unreachable: OnUnreachable,
    output: OutputArgs,
) -> Result<Option<Held>, Failure> {
    let deadline = Deadline::new(arguments);
    let acquired = match connect(locks, connect_timeout, deadline, on_unreachable, output).await {
        Ok(()) => hold(locks, arguments, deadline).await,
        Err(error) if error.kind() == ErrorKind::Unavailable && on_unreachable == OnUnreachable::Run => {
            say(&format!("going on without the lock, by --on-unreachable run: {error}"));
            return Ok(None);
        }
        Err(error) => Err(error),
    };
    match acquired {
        Ok(held) => Ok(Some(held)),
        // Also with `OnUnreachable::Run`: once the server was reached, somebody may be known to have the lock.
        Err(error) if error.is_timed_out() => Err(Failure::new(Code::new(arguments.busy_code), error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
enum Deadline {
    Never,
    At(Instant),
    /// Not at all.
    Once,
}

impl Deadline {
    fn new(arguments: &LockArgs) -> Self {
        match (arguments.once, arguments.wait) {
            (true, _) => Self::Once,
            (false, None) => Self::Never,
            (false, Some(wait)) if wait.is_zero() => Self::Once,
            // Beyond what a clock can have.
            (false, Some(wait)) => Instant::now().checked_add(wait).map_or(Self::Never, Self::At),
        }
    }

    /// `None`: for ever.
    fn rest(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Once => Some(Duration::ZERO),
        }
    }
}

/// Connects, again and again if the server is to be waited for.
async fn connect(
    locks: &Locker,
    limit: Duration,
    deadline: Deadline,
    on_unreachable: OnUnreachable,
    output: OutputArgs,
) -> polylock::Result<()> {
    let mut pause = Duration::from_millis(250);
    let mut is_told = false;
    loop {
        let limit = match deadline {
            Deadline::At(_) => deadline.rest().map_or(limit, |rest| limit.min(rest)),
            Deadline::Never | Deadline::Once => limit,
        };
        let Err(error) = server::connect(locks, limit).await else {
            return Ok(());
        };
        let is_over = || deadline.rest().is_some_and(|rest| rest.is_zero());
        if error.kind() != ErrorKind::Unavailable || on_unreachable != OnUnreachable::Wait || is_over() {
            return Err(error);
        }
        if !is_told && !output.quiet {
            say(&format!("waiting for the server: {error}"));
            is_told = true;
        }
        sleep(deadline.rest().map_or(pause, |rest| rest.min(pause))).await;
        // With no time left, another try could only say that it had none.
        if is_over() {
            return Err(error);
        }
        pause = (pause * 2).min(Duration::from_secs(4));
    }
}

async fn hold(locks: &Locker, arguments: &LockArgs, deadline: Deadline) -> polylock::Result<Held> {
    let mut wanted: Vec<Lock> = arguments.lock.iter().map(|name| lock(locks, arguments, name)).collect();
    if wanted.len() > 1 {
        return Ok(Held::All(match deadline.rest() {
            None => acquire_all(wanted).await?,
            Some(rest) => acquire_all_within(wanted, rest).await?,
        }));
    }
    // One name at least is required.
    let lock = wanted.remove(0);
    Ok(Held::One(match deadline.rest() {
        None => lock.acquire().await?,
        Some(rest) => lock.acquire_within(rest).await?,
    }))
}

fn lock(locks: &Locker, arguments: &LockArgs, name: &str) -> Lock {
    let mut lock = match (arguments.read, arguments.permits) {
        (true, _) => locks.rw_lock(name).read(),
        (false, Some(permits)) => locks.semaphore(name, permits.of).permits(permits.take),
        (false, None) => locks.lock(name),
    };
    if arguments.fixed {
        lock = lock.fixed_lease();
    }
    if let Some(minimum) = arguments.at_least {
        lock = lock.hold_at_least(minimum);
    }
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_the_program_and_is_never_too_long() {
        assert_eq!(label("web-3", 811, OsStr::new("/usr/bin/backup")), "web-3:811 backup");
        assert_eq!(label("web-3", 811, OsStr::new("backup")), "web-3:811 backup");
        let long = label("web-3", 811, OsStr::new(&"é".repeat(300)));
        assert!(
            long.len() <= LONGEST_LABEL && long.starts_with("web-3:811 éé"),
            "{long}"
        );
    }
}
