//! The command line. Its texts are those of `--help` and of the man page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use clap_complete::Shell;
use polylock::backend::parse_duration;
use polylock::{FencingToken, Guarantee};
use rustix::process::Signal;

pub(crate) use self::values::{OnLoss, Permits};

mod values;

/// Distributed locks for shell scripts, in Redis, MySQL, PostgreSQL or ZooKeeper.
///
/// The server is named by --url, --url-file or --config, or by the environment variable POLYLOCK_URL. Everybody can read the
/// arguments of a process: if the URL has a password, use the variable or a file.
///
/// Durations have a unit: 500ms, 10s, 5m, 1h.
#[derive(Debug, Parser)]
#[command(name = "polylock", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) subcommand: Subcommand,
}

/// Which server.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The server: redis://HOST, mysql://USER@HOST/DATABASE, postgres://USER@HOST/DATABASE, zookeeper://USER@HOST, quorum:URL|URL|URL. Default: the
    /// variable POLYLOCK_URL
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["url_file", "config"])]
    pub(crate) url: Option<String>,
    /// A file whose first line is the URL; - is standard input
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "config")]
    pub(crate) url_file: Option<PathBuf>,
    /// A TOML file with the fields of polylock's Config, like url, ttl and label
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Time limit of one attempt to connect; the parameter connect_timeout of the URL limits it as well
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub(crate) connect_timeout: Duration,
    /// Refuse a server that does not keep these guarantees, as in fifo,failover,ttl:1s; `doctor` lists them
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    pub(crate) require: Vec<Guarantee>,
    /// Take your word for these guarantees where the server cannot be asked
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    pub(crate) trusting: Vec<Guarantee>,
}

/// The options for messages on standard error.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Only say why polylock fails
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say what happens to the lock, on standard error. The variable RUST_LOG chooses more finely
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Run a command while a lock is held
    Run(Box<RunArgs>),
    /// Hold a lock until standard input ends, or a signal comes
    ///
    /// Once it holds the lock, it prints the fencing token on standard output. It releases the lock and ends on SIGINT, SIGTERM, SIGHUP,
    /// and at the end of standard input. If the lock is lost, the exit code is 76.
    Hold(HoldArgs),
    /// Show who holds locks, and how many wait
    ///
    /// Exit code 0: held. 1: free (if one lock is named).
    Status(StatusArgs),
    /// List the names that somebody holds or waits for
    ///
    /// Names that are taken or freed meanwhile may be listed or not.
    List(ListArgs),
    /// End the hold of somebody else, by its token
    ///
    /// Without --now its holder cannot renew it any more, and the lock is free when its lease ends: two holders never overlap.
    ///
    /// Exit code 0: done. 1: no hold has that token any more, and nothing was changed.
    Break(BreakArgs),
    /// Check the server: connection, settings, permissions, times
    ///
    /// Exit code 0: no findings. 1: warnings. 78: it cannot keep locks.
    Doctor(DoctorArgs),
    /// Measure how often a second locks can be acquired and released at this server
    ///
    /// It loads the server, for a minute at most. Its locks are named polylock:bench and polylock:bench:NUMBER, and all are released at the
    /// end. Each task is a client with a connection of its own.
    ///
    /// Exit code 0: measured. 75: another benchmark loads this server.
    Bench(BenchArgs),
    /// Make the tables that locks in MySQL, MariaDB or PostgreSQL need, or print their SQL
    Migrate(MigrateArgs),
    /// Print completions for a shell
    Completions {
        /// Which one
        shell: Shell,
    },
    /// Print the man page
    Man,
    /// Supervises the command of `run`
    #[command(name = "__guard", hide = true)]
    Guard(GuardArgs),
    /// Becomes the command of `run`
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),
}

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
    /// If the server cannot be reached before the lock was granted: wait for it, start the command without the lock, or fail
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) on_unreachable: OnUnreachable,
    /// Signal for the command if the lock is lost: term, kill, ignore, or a signal like INT. After --grace it gets
    /// SIGKILL
    #[arg(long, value_name = "WHAT", value_parser = OnLoss::parse, default_value = "term", help_heading = "Command")]
    pub(crate) on_loss: OnLoss,
    /// Time that the command may take to end after a signal
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s", help_heading = "Command")]
    pub(crate) grace: Duration,
    /// Treat the lock as lost so long before its lease ends, so that the command is gone by then. Default: --grace, or a
    /// sixth of the TTL if that is less
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
    /// Leave the command in polylock's process group, for commands that need the terminal's job control
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
  POLYLOCK_TTL_MS   the TTL in milliseconds
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

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// Release it after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) limit: Option<Duration>,
    /// Go on when standard input ends, as it does at once under systemd and cron
    #[arg(long)]
    pub(crate) ignore_stdin: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The lock's name. May be repeated
    #[arg(long, required = true, value_name = "NAME")]
    pub(crate) lock: Vec<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print it again after each such time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) watch: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Prefix of the names
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Only names that are held: asks for the status of each
    #[arg(long)]
    pub(crate) held: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BreakArgs {
    /// The lock's name
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: String,
    /// The token of the hold, as `status` shows it. If another hold is there by then, nothing is changed
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: FencingToken,
    /// Free the lock at once. Its holder may go on beside the next one until it notices
    #[arg(long)]
    pub(crate) now: bool,
    /// Do not ask before --now
    #[arg(long, requires = "now")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Number of clients that acquire at a time, at most 64. Several numbers: one run after the other
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "1,16")]
    pub(crate) tasks: Vec<usize>,
    /// A lock of its own for each client, or one lock for all
    #[arg(long, value_name = "WHICH", default_value = "own")]
    pub(crate) locks: BenchLocks,
    /// Seconds that each run takes: all together at most 60
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which locks a benchmark acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchLocks {
    /// One for each client
    Own,
    /// One for all
    One,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Print the SQL, for an administrator, and change nothing. Default: that for the server of the URL, or for mysql
    #[arg(long, value_name = "SERVER", require_equals = true, num_args = 0..=1)]
    pub(crate) print: Option<Option<TablesOf>>,
    /// With --print: what the tables' names begin with. Otherwise the URL says it, as in ?table=shop_locks
    #[arg(long, value_name = "NAME", requires = "print")]
    pub(crate) table: Option<String>,
}

/// The servers that need tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TablesOf {
    /// MySQL and MariaDB
    Mysql,
    /// PostgreSQL
    Postgres,
}

#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// The process that holds the lock
    #[arg(long)]
    pub(crate) parent: i32,
    /// Its process group, which has the terminal before and after the command
    #[arg(long)]
    pub(crate) parent_group: i32,
    /// The read end of the pipe over which it says go
    #[arg(long)]
    pub(crate) go: i32,
    #[arg(long)]
    pub(crate) grace_ms: u64,
    #[arg(long)]
    pub(crate) no_group: bool,
    #[arg(long)]
    pub(crate) leave_children: bool,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The guard
    #[arg(long)]
    pub(crate) parent: i32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write it with a unit, as in 500ms, 10s, 5m or 1h".to_owned())
}

/// The signal with this name, with or without SIG, in any case.
fn signal(name: &str) -> Option<Signal> {
    let name = name.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        _ => return None,
    })
}
