//! The arguments of `run`, and those of each subcommand that acquires a lock.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{OnLoss, Permits, duration, grace};

/// Which lock, and how it is acquired.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockArgs {
    /// The lock's name. Repeated: all of them or none
    #[arg(long, required = true, value_name = "NAME")]
    pub(crate) lock: Vec<String>,
    /// Do not wait if the lock is taken
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) once: bool,
    /// Wait at most so long, connecting included. Default: for ever
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Share the lock with other readers
    #[arg(long, conflicts_with = "permits")]
    pub(crate) read: bool,
    /// Take so many permits of a semaphore, like 1/3: three at a time
    #[arg(long, value_name = "TAKE/OF", value_parser = Permits::parse)]
    pub(crate) permits: Option<Permits>,
    /// Time for which the lock stays taken after this machine has died. It is renewed until then. Default: 30s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Never renew the lock: it is lost when its TTL ends
    #[arg(long)]
    pub(crate) fixed: bool,
    /// Keep the lock at least so long, also if the command takes less or fails: for jobs on hosts whose clocks differ
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Text that is shown to those who ask for the holder. Default: host:pid command
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Exit code if the lock is taken
    #[arg(long, value_name = "CODE", default_value_t = 75)]
    pub(crate) busy_code: u8,
    /// Exit code if the lock was lost
    #[arg(long, value_name = "CODE", default_value_t = 76)]
    pub(crate) lost_code: u8,
}

/// Run a command while a lock is held
///
/// polylock acquires the lock, runs the command, releases the lock, and exits with the command's code. It renews the lock as long as the
/// command runs. If the lock is lost, it ends the command. It writes nothing to standard output.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_NOTES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// If polylock cannot connect to the server: wait for it, start the command without the lock, or fail. Once it has
    /// connected, the command never starts without the lock: an outage is waited out, and is code 69 with --try or at the end of
    /// --wait
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) on_unreachable: OnUnreachable,
    /// Signal for the command if the lock is lost: term, kill, ignore, or a signal like INT. After --grace it gets
    /// SIGKILL
    #[arg(long, value_name = "WHAT", value_parser = OnLoss::parse, default_value = "term", help_heading = "Command")]
    pub(crate) on_loss: OnLoss,
    /// Time that the command may take to end after the signal of --on-loss, and what it has left after its end. A signal that polylock
    /// passes on sets no limit
    #[arg(long, value_name = "DURATION", value_parser = grace, default_value = "5s", help_heading = "Command")]
    pub(crate) grace: Duration,
    /// Treat the lock as lost so long before its lease ends, so that the command is gone by then. Default: --grace, or a
    /// sixth of the TTL if that is less; of the session timeout on ZooKeeper and with strategy=session
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Command")]
    pub(crate) stop_before: Option<Duration>,
    /// The command's effects are protected by the fencing token: needed for --on-loss ignore
    #[arg(long, help_heading = "Command")]
    pub(crate) i_have_fencing: bool,
    /// If the lock was lost, exit with the command's code all the same
    #[arg(long, help_heading = "Command")]
    pub(crate) lost_ok: bool,
    /// If the release fails after the command has ended, exit with code 69
    #[arg(long, help_heading = "Command")]
    pub(crate) strict_release: bool,
    /// Leave the command in polylock's process group: for a command that reads the terminal while its output goes elsewhere, or so that
    /// Ctrl-Z also stops a script that runs polylock
    #[arg(long, help_heading = "Command")]
    pub(crate) no_group: bool,
    /// After the command has ended, leave running what it has started
    #[arg(long, help_heading = "Command")]
    pub(crate) leave_children: bool,
    /// Write the fencing token to this file before the command starts
    #[arg(long, value_name = "PATH", help_heading = "Command")]
    pub(crate) token_file: Option<PathBuf>,
    /// Run /bin/sh -c TEXT in place of COMMAND
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "command",
        required_unless_present = "command",
        help_heading = "Command"
    )]
    pub(crate) shell: Option<OsString>,
    /// The command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_NOTES: &str = "\
Exit codes:
  the command's, or 128 + the number of the signal that ended it
   64  wrong usage, an invalid name, or an option that the server lacks
   69  the server is unavailable; nothing was started
   70  an unexpected error
   73  the file of --token-file cannot be written; nothing was started
   75  the lock is taken (--try), or was taken until the end of --wait; nothing was started
   76  the lock was lost while the command ran, whatever the command returned
   77  the server rejects the user or the password, or a permission is missing
   78  a setting of polylock or of the server cannot work
  126  COMMAND cannot be executed
  127  COMMAND is not found
  128 + n  signal n came while polylock waited for the lock; nothing was started

Environment of the command:
  POLYLOCK_HELD     1; or 0, without the lock, by --on-unreachable run
  POLYLOCK_NAME     the lock's name
  POLYLOCK_TOKEN    the fencing token, in decimal
  POLYLOCK_TOKENS   with several locks, in place of these two: NAME=TOKEN,NAME=TOKEN, names percent-encoded
  POLYLOCK_TTL_MS   the TTL that was asked for, in milliseconds; a session timeout counts instead of it
  POLYLOCK_LOST_FD  a file descriptor that has its end when the lock is lost
  POLYLOCK_URL      is removed";

/// If the server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnUnreachable {
    /// Try again, within --wait
    Wait,
    /// Start the command without the lock
    Run,
    /// Fail with code 69
    Fail,
}
