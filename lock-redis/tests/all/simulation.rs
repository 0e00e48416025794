//! The scripts of all modes under random faults: crashes, hangs, lost messages and answers, repetitions, a clock set back.
//!
//! `POLYLOCK_SIMULATION_SEEDS=50` runs each plan so many times; `POLYLOCK_SIMULATION_FIRST=7` begins with that seed.

use std::env;

use crate::support::scripts::Scripts;
use plan::{PLANS, Plan};
use tally::Tally;
use world::{Broken, MS, World};

mod check;
mod mistakes;
mod plan;
mod tally;
mod world;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// One run.
fn run(scripts: &mut Scripts, plan: Plan, seed: u64) -> Result<Tally, Broken> {
    World::new(scripts, plan, seed).run()
}

#[testbed::test]
async fn no_rule_is_broken_whatever_fails() {
    let Some(mut scripts) = Scripts::start().await else {
        return;
    };
    let (first, seeds) = (
        number("POLYLOCK_SIMULATION_FIRST", 1),
        number("POLYLOCK_SIMULATION_SEEDS", 3),
    );
    let mut all = Tally::default();
    for plan in PLANS {
        let (mut of_plan, start) = (Tally::default(), std::time::Instant::now());
        for seed in first..first + seeds {
            let tally =
                run(&mut scripts, plan, seed).unwrap_or_else(|wrong| panic!("{}, seed {seed}: {wrong}", plan.name));
            of_plan.add(&tally);
        }
        println!("{}: {of_plan:?} in {:?}", plan.name, start.elapsed());
        all.add(&of_plan);
    }
    println!("all: {all:?}");
    let Tally { calls, grants, .. } = all;
    assert!(calls > 20_000 && grants > calls / 10, "nothing much happened: {all:?}");
    assert!(all.crashes > 10 && all.hangs > 10 && all.steps_back > 2, "{all:?}");
    assert!(
        all.upgrades > 10 && all.downgrades > 10 && all.readers_together > 3,
        "{all:?}"
    );
    assert!(all.passes > 100, "{all:?}");
    assert!(
        all.idle < 5_000 * MS,
        "{all:?}: a name was free, and a waiter that runs did not get it"
    );
}
