//! The quorum's protocol, simulated: it keeps its properties in every history, and each mutant breaks the one that it is
//! said to break.
//!
//! `torture quorum --seeds 10000` runs more histories, and `--trace` shows one.

use std::fmt::Write;

use torture_models::properties::ONE_BELIEVER;
use torture_models::quorum::{QuorumMutant, Reinstall, Scenario, Strategy, Totals, run, run_all, run_traced};

/// The number of histories of each scenario. All are decided by their seeds.
const SEEDS: u64 = 200;
/// The number of histories of a scenario in which the waits are judged. They are long, and much alike.
const SEEDS_OF_WAITS: u64 = 100;

#[test]
fn quorum_keeps_its_properties() {
    for (name, scenario) in Scenario::all_kept() {
        let totals = run_all(&scenario, 1..=SEEDS);
        println!("{name}: {totals}");
        assert_kept(name, &scenario, &totals);
        assert!(totals.sum.grants > 20 * SEEDS, "{name}: too few holds to show anything");
        assert!(totals.sum.lost > SEEDS, "{name}: too few losses to show anything");
    }
}

/// One sick client or node does not stop the others.
#[test]
fn whoever_reaches_a_majority_goes_on() {
    for (name, scenario) in Scenario::all_going_on() {
        let totals = run_all(&scenario, 1..=SEEDS_OF_WAITS);
        println!("{name}: {totals}");
        assert_kept(name, &scenario, &totals);
    }
}

#[test]
fn every_mutant_of_the_quorum_is_caught() {
    let mut kept = Vec::new();
    for mutant in QuorumMutant::ALL {
        let broken = Scenario::default().with(*mutant);
        let seeds = match broken.longest_wait {
            Some(_) => SEEDS_OF_WAITS,
            None => SEEDS,
        };
        let breaks = |seed: &u64| run(&broken, *seed).broken(mutant.breaks()) > 0;
        let caught = (1..=10 * seeds).find(breaks);
        println!("{mutant:?}: {:?} is broken by seed {caught:?}", mutant.breaks());
        assert!(caught.is_some(), "{mutant:?} does not break {:?}", mutant.breaks());
        // The mutant does, and not what else it needs. Several mutants need the same.
        let (same, name) = (Scenario { mutant: None, ..broken }, format!("{mutant:?} left out"));
        assert_kept(&name, &same, &run_all(&same, caught));
        if !kept.contains(&same) {
            assert_kept(&name, &same, &run_all(&same, 1..=seeds));
            kept.push(same);
        }
    }
}

/// The model can fail, and the conditions of the contract are needed.
#[test]
fn clocks_too_far_apart_show_two_believers() {
    let totals = run_all(&Scenario::wild_clocks(), 1..=SEEDS);
    println!("clocks up to 40 % apart: {totals}");
    assert!(totals.sum.broken(ONE_BELIEVER) > 0);
}

#[test]
fn a_history_is_decided_by_its_seed() {
    let scenario = Scenario::default();
    let figures = |seed| format!("{:?}", run(&scenario, seed));
    assert_eq!(figures(1), figures(1));
    assert_ne!(figures(1), figures(2));
    assert_eq!(figures(1), format!("{:?}", run_traced(&scenario, 1).0));
}

/// A vote that was live when its node forgot it is restored at once.
#[test]
fn a_hold_survives_rolling_restarts_by_restored_votes() {
    let lost = |reinstall| {
        let totals = run_all(&Scenario::rolling_restarts(reinstall), 1..=SEEDS);
        println!("rolling restarts, restored {reinstall:?}: {totals}");
        assert_eq!((totals.sum.two_believers, totals.sum.token_regressions), (0, 0));
        totals.sum.lost as f64 / totals.sum.grants as f64
    };
    let (at_once, after_delay) = (lost(Reinstall::AtOnce), lost(Reinstall::AfterDelay));
    assert!(at_once < 0.75 * after_delay && after_delay < 0.75 * lost(Reinstall::Never));
}

/// The anchor decides: those that it refuses give the other nodes back.
#[test]
fn of_simultaneous_tries_one_wins() {
    for (nodes, clients) in [(1, 100), (2, 2), (3, 2), (3, 100), (4, 10), (5, 100)] {
        let totals = run_all(&Scenario::simultaneous_tries(nodes, clients), 1..=SEEDS);
        println!("{clients} tries at {nodes} nodes: {totals}");
        assert_eq!((totals.sum.grants, totals.first.map(|first| first.0)), (SEEDS, None));
    }
}

/// Counted in requests and in simulated time.
#[test]
fn a_hundred_contenders_share_fairly_at_few_requests() {
    let contend = |clients, down| {
        let scenario = Scenario::contention(clients, Strategy::Adaptive, down);
        let figures = run(&scenario, 1);
        let requests = figures.messages as f64 / figures.grants as f64;
        let shares = figures.shares();
        println!(
            "contention of {clients}, down {down:?}: grants={} shares={shares:?} requests={requests:.1}",
            figures.grants
        );
        assert_eq!((figures.two_believers, figures.token_regressions), (0, 0));
        assert!(requests <= 8.0, "{requests} requests a grant");
        if down.is_none() {
            assert!(shares.1 as f64 <= 1.2 * shares.0 as f64, "{shares:?}");
        }
        figures.grants as f64
    };
    let few = contend(3, None);
    let many = contend(100, None);
    assert!(many > 0.9 * few);
    // Each half TTL all ask the silent node again, and lose a patience: 2 s of 20 in all.
    assert!(contend(100, Some(0)) > 0.85 * many);
}

fn assert_kept(name: &str, scenario: &Scenario, totals: &Totals) {
    let Some((seed, violation)) = &totals.first else { return };
    let mut trace = String::new();
    for line in run_traced(scenario, *seed).1 {
        // Writing to a string cannot fail.
        let _ = writeln!(trace, "{line}");
    }
    panic!("{name}, seed {seed}: {violation}\n{trace}");
}
