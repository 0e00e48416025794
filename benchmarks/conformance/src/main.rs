//! Runs cases of polylock's conformance suite against other lock libraries, and writes `docs/peers.md`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use results::Results;

mod backend;
mod claims;
mod harness;
mod libraries;
mod page;
mod process;
mod results;
mod run;
mod subject;
mod view;

#[derive(Debug, Parser)]
#[command(about = "Cases of polylock's conformance suite, run against other lock libraries")]
struct Arguments {
    /// Only these libraries, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only the cases whose names contain this; nothing is written then
    #[arg(long)]
    case: Option<String>,
    /// Runs nothing, and writes the page from the results that are there
    #[arg(long)]
    page: bool,
}

fn main() -> ExitCode {
    conformance_tests::run_as_child::<harness::PeerHarness>();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let only = &arguments.only;
    for name in only {
        libraries::named(name).ok_or_else(|| format!("there is no library {name} here"))?;
    }
    let chosen = libraries::ALL
        .iter()
        .filter(|library| only.is_empty() || only.iter().any(|name| name == library.name));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    for library in chosen.filter(|_| !arguments.page) {
        let case = arguments.case.as_deref().unwrap_or_default();
        let result = runtime.block_on(run::library(library, case, &page::today()))?;
        if arguments.case.is_none() {
            result.write(library.name)?;
        }
    }
    if arguments.case.is_none() {
        page::write(&Results::read(libraries::names())?)?;
    }
    Ok(())
}
