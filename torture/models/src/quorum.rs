//! A quorum of independent nodes, simulated: clients acquire, renew and release one name over and over, while messages are
//! late, lost or stuck, clients are paused, cut off from a node or from a majority, and die, and nodes restart with and
//! without their data.
//!
//! The other models search everything within small bounds. A quorum has too many states for that: five servers and eight clients, each
//! with its own clock. So this one runs single histories of discrete events instead, each decided by its seed. The clients
//! acquire by [`lock_quorum::protocol`], which is the backend's own code, and hold by [`lock_quorum::rules`]; leases and nodes decide by
//! [`lock_core::backend::rules`].
//!
//! ```
//! use torture_models::quorum::{Scenario, run};
//! let figures = run(&Scenario::default(), 1);
//! assert!(figures.violation.is_none() && figures.grants > 0);
//! ```
//!
//! # What is simulated
//! - **Nodes**: a hold, a queue with offers, ids that were ended, the last token, a clock. A node that restarts without its data
//!   gives no fresh vote for the restart delay, but restores votes that were live when it forgot them.
//! - **Clients**: all of the protocol but shared holds and permits. Each has its own clock and one inbox.
//! - **Clocks** run up to 5 % apart. The nodes' dates, by which tokens count, differ by up to 600 ms; that is less than the
//!   restart delay, or tokens would not survive that all nodes forget one after the other.
//! - **Messages** of one client to one node arrive in their order, but for those that are stuck.
//! - **Faults** end before the run does, so that every client has to be served at its end. In other scenarios a fault lasts for the
//!   whole run, and clients that reach a majority have to be served meanwhile, within a bound far below the TTL.
//!
//! # What it leaves out
//! More than one name, readers, fixed leases, passes within a process, and a server's own loss of acknowledged data while
//! it runs.

pub use self::figures::{Figures, Totals, Violation};
pub use self::mutant::QuorumMutant;
pub use self::scenario::{Faults, Network, Reinstall, Scenario, Strategy};

/// Runs one history to its end.
pub fn run(scenario: &Scenario, seed: u64) -> Figures {
    Simulation::new(scenario, seed, false).run().0
}

/// The same, with the last events up to the violation, or to the end.
pub fn run_traced(scenario: &Scenario, seed: u64) -> (Figures, Vec<String>) {
    Simulation::new(scenario, seed, true).run()
}

/// Runs the histories of these seeds.
pub fn run_all(scenario: &Scenario, seeds: impl IntoIterator<Item = u64>) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        totals.add(seed, &run(scenario, seed));
    }
    totals
}

use self::simulation::Simulation;

mod acquire;
mod client;
mod decisions;
mod fault;
mod figures;
mod hold;
mod link;
mod message;
mod mutant;
mod node;
mod scenario;
mod scenarios;
mod simulation;
mod votes;
mod world;
