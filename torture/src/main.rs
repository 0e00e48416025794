//! Breaks lock servers and processes, records what happens, and judges it: `torture --help`.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::backend::Backend;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::mutant::Mutant;
use crate::names::name_of;
use crate::quorum::Quorum;

mod backend;
mod check;
mod clock;
mod config;
mod error;
mod fault;
mod history;
mod judge;
mod matrix;
mod mode;
mod mutant;
mod names;
mod nemesis;
mod observed;
mod process;
mod quorum;
mod record;
mod resource;
mod run;
mod servers;
mod timeline;
mod verdict;
mod worker;

/// Shows for every backend that the contract holds when things break.
///
/// Exits with 0 when it was kept, 1 when it was broken, 2 when nothing was shown.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a server and processes, breaks them, and judges what happened
    Run(Run),
    /// Judges the history of a run alone
    Check {
        /// Where the run left its history
        dir: PathBuf,
    },
    /// Lists the mutants of `run --mutant`, each with the check that catches it
    Mutants,
    /// Runs every backend with every fault, and the mutants, and writes a report
    Matrix(Matrix),
    /// Simulates the quorum's protocol and its mutants
    Quorum(Quorum),
    /// The process that `run` starts
    #[command(hide = true)]
    Worker { job: String },
}

#[derive(Debug, Args)]
struct Run {
    /// Which lock server
    #[arg(long, value_enum, default_value = "redis")]
    backend: Backend,
    /// Number of worker processes
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=64))]
    procs: u8,
    /// Number of locks that they share [default: 3, or what the mutant needs]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    locks: Option<u8>,
    /// Number of tasks in a process that take locks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    tasks: u8,
    /// For how long things break [default: 20, or what the mutant needs]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    secs: Option<u64>,
    /// Time for which a hold survives its process, like 500ms [default: by the backend]
    #[arg(long, value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Faults, separated by commas; `none` for nothing [default: stop,kill]
    #[arg(long, value_delimiter = ',', value_parser = parse_fault)]
    nemesis: Option<Vec<Option<Fault>>>,
    /// Decides what happens when, as far as the machine lets it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Puts a bug in, and brings the faults that it needs
    #[arg(long, value_enum)]
    mutant: Option<Mutant>,
    /// Stops this many of the processes all the time; the others hold shortly, so that their throughput shows what that
    /// costs them [default: none, and holds of all kinds]
    #[arg(long, value_name = "PROCS")]
    stopped: Option<u8>,
    /// Lets the processes write without a look at their guard: only the fence protects
    #[arg(long)]
    no_deadline_checks: bool,
    /// Lets the processes hold names together, too: as readers, and by permits
    #[arg(long)]
    modes: bool,
    /// For how long a Redis that may have forgotten holds gives no fresh grant, from four ttls [default: it does at once]
    #[arg(long, value_parser = humantime::parse_duration)]
    restart_delay: Option<Duration>,
    /// Number of replicas that must have a grant before it counts
    #[arg(long, default_value_t = 0)]
    replicas: u32,
    /// Gives a master that Sentinels watch two replicas, and lets it refuse writes while it has none
    #[arg(long)]
    min_replicas: bool,
    /// Lets every other process run another version of this program, on the same names
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
    /// Where to leave the history and its timeline, a new or empty directory [default: a temporary one, which stays if
    /// something was wrong]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Matrix {
    /// Each cell for a minute and with five seeds, not ten seconds and one
    #[arg(long)]
    long: bool,
    /// Only the cells with this in their names
    #[arg(long)]
    only: Option<String>,
    /// Lists the cells and runs none
    #[arg(long)]
    list: bool,
    /// Judges the histories that are there, and runs only the cells that have none
    #[arg(long)]
    resume: bool,
    /// Where histories and pictures go [default: target/torture]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where the report goes [default: docs/torture.md]
    #[arg(long)]
    report: Option<PathBuf>,
}

fn parse_fault(word: &str) -> std::result::Result<Option<Fault>, String> {
    if word == "none" {
        return Ok(None);
    }
    Fault::from_str(word, false).map(Some).map_err(|_| {
        let known: Vec<String> = Fault::value_variants().iter().map(name_of).collect();
        format!("no such fault; there are {}, and none", known.join(", "))
    })
}

impl Run {
    fn config(&self) -> Result<RunConfig> {
        if self.mutant.is_some() && self.backend != Backend::Redis {
            return Err(Error::new("the mutants are of the Redis backend: leave out --backend"));
        }
        let mut nemesis: Vec<Fault> = match (&self.nemesis, self.mutant) {
            (Some(nemesis), _) => nemesis.iter().copied().flatten().collect(),
            (None, Some(mutant)) => mutant.nemesis(),
            (None, None) => vec![Fault::Stop, Fault::Kill],
        };
        if self.stopped.is_some_and(|stopped| stopped >= self.procs) {
            return Err(Error::new(
                "some processes must not be stopped: make --stopped less than --procs",
            ));
        }
        if self.stopped.is_some() && self.nemesis.is_none() {
            nemesis.clear();
        }
        nemesis.sort_unstable();
        nemesis.dedup();
        Ok(RunConfig {
            backend: self.backend,
            procs: self.procs.into(),
            locks: self.locks.map_or(self.mutant.map_or(3, Mutant::locks), usize::from),
            secs: self.secs.or(self.mutant.map(Mutant::secs)).unwrap_or(20),
            ttl: self.ttl.unwrap_or_else(|| self.backend.default_ttl()),
            nemesis,
            seed: self.seed,
            deadline_checks: !self.no_deadline_checks,
            mutant: self.mutant,
            tasks: self.tasks.into(),
            measured: self.stopped.map(usize::from),
            restart_delay: self.restart_delay,
            replicas: self.replicas,
            min_replicas: self.min_replicas,
            beside: self.beside.clone(),
            modes: self.modes || self.mutant.is_some_and(Mutant::needs_modes),
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Whatever goes wrong with us says nothing about the locks.
    let code = std::panic::catch_unwind(|| match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            2
        }
    });
    ExitCode::from(code.unwrap_or(2))
}

fn execute(command: Command) -> Result<u8> {
    match command {
        Command::Run(run) => run_once(&run),
        Command::Check { dir } => {
            let (_, verdict) = matrix::judge(&dir)?;
            println!("{verdict}");
            Ok(verdict.exit_code())
        }
        Command::Mutants => {
            for mutant in Mutant::value_variants() {
                println!("{} {}", name_of(mutant), mutant.caught_by());
            }
            Ok(0)
        }
        Command::Matrix(matrix) => run_matrix(matrix),
        Command::Quorum(quorum) => quorum::execute(&quorum),
        Command::Worker { job } => worker::main(&job).map(|()| 0),
    }
}

fn run_once(arguments: &Run) -> Result<u8> {
    let config = arguments.config()?;
    let temporary = tempfile::Builder::new().prefix("polylock-torture-").tempdir()?;
    let dir = match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            if std::fs::read_dir(dir)?.next().is_some() {
                return Err(Error::new(format!("{} is not empty", dir.display())));
            }
            dir.as_path()
        }
        None => temporary.path(),
    };
    let is_mutant = config.mutant.is_some();
    let verdict = runtime()?
        .block_on(run::run(config, dir))
        .and_then(|()| Ok(matrix::judge(dir)?.1));
    let as_expected = is_mutant || verdict.as_ref().is_ok_and(|verdict| verdict.exit_code() == 0);
    if !as_expected && std::fs::read_dir(temporary.path())?.next().is_some() {
        eprintln!("history and timeline: {}", temporary.keep().display());
    }
    let verdict = verdict?;
    println!("{verdict}");
    Ok(verdict.exit_code())
}

fn run_matrix(arguments: Matrix) -> Result<u8> {
    let Matrix {
        long,
        only,
        list,
        resume,
        dir,
        report,
    } = arguments;
    if list {
        let names: String = matrix::cells(long)
            .iter()
            .map(|cell| cell.name.clone() + "\n")
            .collect();
        return match std::io::stdout().lock().write_all(names.as_bytes()) {
            // The reader has enough, as `head` has.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(0),
        };
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or_else(|| Error::new("torture is no folder of a workspace"))?;
    let mut command = "cargo run --release -p torture -- matrix".to_owned();
    if long {
        command += " --long";
    }
    if resume {
        command += " --resume";
    }
    if let Some(only) = &only {
        command += &format!(" --only {only}");
    }
    matrix::run_all(&matrix::Options {
        long,
        only,
        resume,
        dir: dir.unwrap_or_else(|| root.join("target/torture")),
        report: report.unwrap_or_else(|| root.join("docs/torture.md")),
        command,
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}
