//! The command that simulates the quorum's protocol.

use std::time::Instant;

use clap::Args;
use torture_models::quorum::{QuorumMutant, Reinstall, Scenario, Strategy, run_all, run_traced};

use crate::error::{Error, Result};

#[derive(Debug, Args)]
pub(crate) struct Quorum {
    /// Number of histories of each scenario
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The seed of the first
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Only the scenarios and mutants with this in their names
    #[arg(long)]
    only: Option<String>,
    /// Shows the last events of this history up to its violation; takes the first scenario or mutant that `--only` leaves
    #[arg(long, value_name = "SEED")]
    trace: Option<u64>,
    /// Shows also what is not judged: how many holds survive rolling restarts, and how clients contend
    #[arg(long)]
    figures: bool,
}

/// The expectation of a scenario.
enum Expected {
    /// No property is broken.
    Kept,
    /// This one is.
    Broken(&'static str),
}

/// Runs all, and returns the exit code: 1 if anything is not as expected.
pub(crate) fn execute(arguments: &Quorum) -> Result<u8> {
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut all = scenarios();
    all.retain(|(name, ..)| wanted(name));
    if let Some(seed) = arguments.trace {
        let first = all.first().ok_or_else(|| Error::new("no scenario has such a name"))?;
        return Ok(trace(&first.1, seed));
    }
    let seeds = || arguments.from..arguments.from + arguments.seeds;
    let mut code = 0;
    for (name, scenario, expected) in all {
        let started = Instant::now();
        let totals = run_all(&scenario, seeds());
        let seconds = started.elapsed().as_secs_f64();
        println!("{name}: {totals} seconds={seconds:.1}");
        let is_as_expected = match expected {
            Expected::Kept => totals.first.is_none(),
            Expected::Broken(property) => totals.sum.broken(property) > 0,
        };
        if let (false, Some((seed, violation))) = (is_as_expected, &totals.first) {
            println!("  seed {seed}: {violation}");
        }
        if !is_as_expected {
            println!("  not as expected");
            code = 1;
        }
    }
    if arguments.figures {
        figures(arguments, wanted);
    }
    Ok(code)
}

fn scenarios() -> Vec<(String, Scenario, Expected)> {
    let kept = Scenario::all_kept().into_iter().chain(Scenario::all_going_on());
    let kept = kept.map(|(name, scenario)| (name.to_owned(), scenario, Expected::Kept));
    let broken = QuorumMutant::ALL.iter().map(|mutant| {
        let scenario = Scenario::default().with(*mutant);
        (format!("{mutant:?}"), scenario, Expected::Broken(mutant.breaks()))
    });
    let property = torture_models::properties::ONE_BELIEVER;
    let wild = (
        "clocks up to 40 % apart".to_owned(),
        Scenario::wild_clocks(),
        Expected::Broken(property),
    );
    kept.chain(broken).chain([wild]).collect()
}

fn trace(scenario: &Scenario, seed: u64) -> u8 {
    let (figures, lines) = run_traced(scenario, seed);
    for line in lines {
        println!("{line}");
    }
    match figures.violation {
        Some(violation) => {
            println!("{violation}");
            1
        }
        None => 0,
    }
}

fn figures(arguments: &Quorum, wanted: impl Fn(&str) -> bool) {
    let seeds = || arguments.from..arguments.from + arguments.seeds;
    for reinstall in [Reinstall::AtOnce, Reinstall::AfterDelay, Reinstall::Never] {
        let name = format!("rolling restarts, restored {reinstall:?}");
        if wanted(&name) {
            let totals = run_all(&Scenario::rolling_restarts(reinstall), seeds());
            let lost = 100.0 * totals.sum.lost as f64 / totals.sum.grants as f64;
            println!("{name}: {totals} lost={lost:.0} %");
        }
    }
    let name = "dates an hour apart, and data lost";
    if wanted(name) {
        println!("{name}: {}", run_all(&Scenario::hour_apart(0.5), seeds()));
    }
    for down in [None, Some(0)] {
        for clients in [1, 3, 10, 100] {
            for strategy in [Strategy::AllAtOnce, Strategy::Adaptive] {
                let down_name = if down.is_some() { ", first node down" } else { "" };
                let name = format!("contention of {clients}, {strategy:?}{down_name}");
                if wanted(&name) {
                    let scenario = Scenario::contention(clients, strategy, down);
                    let totals = run_all(&scenario, [arguments.from]);
                    let (fewest, most) = totals.sum.shares();
                    let grants = totals.sum.grants;
                    println!(
                        "{name}: {:.0} grants/s, {fewest}/{most} per client, {:.1} requests a grant, two_believers={}",
                        grants as f64 / scenario.until.as_secs_f64(),
                        totals.sum.messages as f64 / grants.max(1) as f64,
                        totals.sum.two_believers
                    );
                }
            }
        }
    }
}
