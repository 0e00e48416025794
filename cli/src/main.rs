//! `polylock`: distributed locks for shell scripts. What it does is described in `cli.rs`, which is the text of `--help` and of
//! the man page, and in docs/shell.md.

#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!("polylock-cli needs process groups and signals, which it has on Unix alone: use the library `polylock`");

mod acquire;
mod bench;
mod break_hold;
mod cli;
mod command;
mod doctor;
mod environment;
mod events;
mod exit;
#[cfg(test)]
mod fuzz;
mod guard;
mod held;
mod hold;
mod list;
mod message;
mod migrate;
mod processes;
mod run;
mod server;
mod signals;
mod status;
mod terminal;
mod texts;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use crate::cli::{Cli, Subcommand};
use crate::exit::{Code, Failure};
use crate::message::{redacted_lines, say};

fn main() -> ExitCode {
    let cli = Cli::try_parse();
    // `run` waits for its guard, and would kill one that ends late.
    let is_guard = matches!(&cli, Ok(cli) if matches!(cli.subcommand, Subcommand::Guard(_)));
    let code = match cli.map(dispatch) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            say(&failure.message);
            failure.code
        }
        Err(error) => usage(&error),
    };
    match is_guard {
        true => message::flush(),
        false => message::flush_at_end(),
    }
    code.into()
}

fn dispatch(cli: Cli) -> Result<Code, Failure> {
    let output = cli.output;
    let server = cli.server;
    match cli.subcommand {
        // These run within `run`: without a runtime of many threads, and without a connection.
        Subcommand::Guard(arguments) => guard::guard(&arguments),
        Subcommand::Exec(arguments) => Err(guard::exec(&arguments)),
        Subcommand::Completions { shell } => texts::completions(shell),
        Subcommand::Man => texts::man(),
        Subcommand::Run(arguments) => {
            // Before anything else opens a file, so that the command finds it as its file 3.
            let loss = run::LossPipe::new()?;
            events::install(output);
            on_runtime(run::run(*arguments, &server, output, loss))
        }
        Subcommand::Hold(arguments) => {
            // Also the threads of the runtime. It starts no program.
            terminal::use_from_background();
            events::install(output);
            on_runtime(hold::hold(&arguments, &server, output))
        }
        Subcommand::Status(arguments) => {
            events::install(output);
            on_runtime(status::status(&arguments, &server))
        }
        Subcommand::List(arguments) => {
            events::install(output);
            on_runtime(list::list(&arguments, &server))
        }
        Subcommand::Break(arguments) => {
            events::install(output);
            on_runtime(break_hold::break_hold(&arguments, &server))
        }
        Subcommand::Doctor(arguments) => on_runtime(doctor::doctor(&arguments, &server, events::record())),
        Subcommand::Bench(arguments) => {
            events::install(output);
            on_runtime(bench::bench(&arguments, &server, output))
        }
        Subcommand::Migrate(arguments) => {
            events::install(output);
            on_runtime(migrate::migrate(&arguments, &server))
        }
    }
}

/// Runs the future on this thread, which lives as long as the process: the command's parent must. Renewals have another one.
fn on_runtime(future: impl Future<Output = Result<Code, Failure>>) -> Result<Code, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::os("cannot start the runtime", &error))?;
    let result = runtime.block_on(future);
    // A thread may be reading from standard input for ever.
    runtime.shutdown_background();
    result
}

/// Help and version go to standard output with code 0. Wrong usage is code 64, and never repeats a password.
fn usage(error: &clap::Error) -> Code {
    if !error.use_stderr() {
        // Whoever closed the output does not want it.
        let _ = error.print();
        return Code::SUCCESS;
    }
    message::raw(&redacted_lines(&error.render().to_string()));
    Code::USAGE
}
