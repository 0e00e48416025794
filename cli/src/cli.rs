//! The command line. Its texts are those of `--help` and of the man page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use clap_complete::Shell;
use polylock::{FencingToken, Guarantee};

pub(crate) use self::run::{LockArgs, OnUnreachable, RunArgs};
pub(crate) use self::values::OnLoss;

use self::values::{LONGEST_GRACE, duration};

mod run;
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
    ///
    /// In a script, & makes /dev/null the standard input, which ends at once: add --ignore-stdin, or give it a pipe. After & on a
    /// terminal, it does not read the terminal until `fg`.
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

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// Release it after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) limit: Option<Duration>,
    /// Go on when standard input ends, as it does at once under systemd and cron, and with & in a script
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
    /// Print the SQL, for an administrator, and change nothing
    ///
    /// It is the SQL of the tables that the configured servers need; with SERVER, of those of this kind alone. If no server of this kind is
    /// configured, the tables have their default names. Without SERVER and without a configured server, it is the SQL for mysql.
    #[arg(long, value_name = "SERVER", require_equals = true, num_args = 0..=1)]
    pub(crate) print: Option<Option<TablesOf>>,
    /// What the tables' names begin with, if no server of this kind is named. A URL says it, as in ?table=shop_locks
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
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=LONGEST_GRACE.as_secs() * 1000))]
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
