//! polylock side by side with the raw protocols and with other lock libraries: `benchmarks --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use benchmarks_load::Result;
use clap::Parser;

use crate::benchmark::Benchmark;
use crate::entry::Backend;
use crate::results::Results;

mod benchmark;
mod candidate;
mod entry;
mod goals;
mod machine;
mod maker;
mod participant;
mod peers;
mod report;
mod results;
mod run;
mod subjects;
mod workload;

/// Measures polylock beside the bare client that sends the same requests, and beside other lock libraries, in
/// interleaved rounds on servers of its own.
///
/// Exits with 0 when everything was measured, whatever the figures; with 2 when something of polylock's or of the bare
/// client's was not.
#[derive(Debug, Parser)]
struct Cli {
    /// Which lock server
    #[arg(required = true, value_enum)]
    backends: Vec<Backend>,
    /// Short rounds: figures to see whether anything is badly wrong
    #[arg(long)]
    quick: bool,
    /// Prints one JSON object for each figure instead of the tables
    #[arg(long)]
    json: bool,
    /// Only the workloads of these names, or with one of these in their names: `one-16,beside`
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only this subject: to profile it
    #[arg(long)]
    subject: Option<String>,
    /// How many rounds are counted, at least 9; one more comes first that is not
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(9..=99))]
    rounds: u16,
    /// Writes docs/benchmarks.md with these backends' sections anew, their charts, and the README's figures; others' stay as
    /// they are. With `--only`, the other workloads keep the figures of the last whole run with `--docs` on this machine
    #[arg(long, conflicts_with = "subject")]
    docs: bool,
    /// Runs this process, its server and the peers on the first two cores that it may use
    #[arg(long)]
    pinned: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == candidate::CANDIDATE
    {
        return exit(block_on(candidate::candidate(rest)).map(|()| true));
    }
    let cli = Cli::parse();
    // Before there are threads and processes, which inherit it.
    if cli.pinned
        && let Err(error) = machine::pin(2)
    {
        eprintln!("error: this process cannot be pinned: {error}");
        return ExitCode::from(2);
    }
    exit(block_on(measure(&cli)))
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("there is no runtime: {error}"))?;
    runtime.block_on(work)
}

fn exit(all_there: Result<bool>) -> ExitCode {
    match all_there {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all that matters was measured.
async fn measure(cli: &Cli) -> Result<bool> {
    let mut all_there = true;
    for backend in &cli.backends {
        let is_part = !cli.only.is_empty();
        // Before anything is measured in vain.
        let whole = (cli.docs && is_part)
            .then(|| report::kept::read(*backend))
            .transpose()?;
        let plan = run::Plan {
            rounds: cli.rounds.into(),
            time: Duration::from_millis(if cli.quick { 100 } else { 500 }),
            only: cli.only.clone(),
            subject: cli.subject.clone(),
        };
        let started = Instant::now();
        let benchmark = Benchmark::start(*backend).await?;
        let mut results = run::run(&benchmark, &plan).await?;
        drop(benchmark);
        results.took = started.elapsed();
        all_there &= results.is_complete();
        show(&results, cli);
        if cli.docs {
            let results = match whole {
                Some(whole) => whole.with_part(results),
                None => results,
            };
            report::kept::write(&results)?;
            report::docs::write(&results)?;
        }
    }
    Ok(all_there)
}

fn show(results: &Results, cli: &Cli) {
    if cli.json {
        print!("{}", report::json(results));
    } else {
        println!("{}", report::text(results));
    }
}
