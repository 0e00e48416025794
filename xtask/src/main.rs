//! polylock's build and test commands: `cargo xtask --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod beside;
mod fuzz;
mod guarantees;
mod peers;
mod release;
mod servers;
mod test;

/// What can go wrong is told to people, once: text is enough.
type Result<T> = std::result::Result<T, String>;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "polylock's build and test commands")]
struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Says which lock servers the tests can start, and installs them
    Servers {
        /// Download the distribution's own packages (Debian, Ubuntu) and unpack them under target/servers; the system
        /// itself is not changed
        #[arg(long)]
        install: bool,
    },
    /// Runs processes of an older version beside those of this one, on the same names of one Redis, and checks that they
    /// exclude each other
    Beside {
        /// The older version: a commit [default: the last one without readers and permits]
        #[arg(default_value = beside::BEFORE_MODES)]
        commit: String,
    },
    /// Runs the fuzz targets, which are unit tests as well, under libFuzzer. Needs a C++ compiler
    Fuzz(fuzz::Options),
    /// Starts the servers of the test bed, asks polylock what they keep, and writes it into docs/guarantees.md and README.md
    Guarantees,
    /// Runs cases of the conformance suite against other lock libraries, and writes docs/peers.md. Needs Go, Java with Maven, and
    /// Python 3
    Peers {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Builds all crates from their packages and their documentation as docs.rs does, and prints the commands that publish them. It
    /// publishes nothing
    Release,
    /// Runs everything that must hold before a change goes in: formatting, lints, all tests, docs, licences
    Test {
        /// Install what is missing first, under target/; implied where the variable CI is set
        #[arg(long)]
        install: bool,
        /// Only what needs no lock server and no download
        #[arg(long, conflicts_with = "install")]
        offline: bool,
        /// Hours longer: all tests on all server versions (without it, a third of a backend's tests on each extra version),
        /// the oldest compilers, other systems, 10,000 quorum histories and every cell of torture
        #[arg(long, conflicts_with = "offline")]
        all: bool,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Subcommands::Servers { install } => servers::run(install),
        Subcommands::Beside { commit } => beside::run(&commit),
        Subcommands::Fuzz(options) => fuzz::run(&options),
        Subcommands::Guarantees => guarantees::run(),
        Subcommands::Peers { options } => peers::run(&options),
        Subcommands::Release => release::run(),
        Subcommands::Test { install, offline, all } => test::run(test::Options { install, offline, all }),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
