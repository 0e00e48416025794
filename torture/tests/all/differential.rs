//! Holds what decides at the servers (Redis's scripts, the statements of MySQL and PostgreSQL, the memory backend) to the rules that the
//! models are about: the same requests to both, and the same answers, holds, ends and tokens. What waits in Redis is held
//! to the queue's model: entries, offers, reservations, and who is told when to look.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use lock_redis::redis;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use torture_models::mutant::Mutant;

use self::pair::Pair;
use self::subjects::Subject;

mod pair;
mod queue;
mod scripts;
mod subjects;

/// Nothing ends by itself on a real server while a sequence runs.
const TTLS: [Duration; 3] = [
    Duration::from_secs(100),
    Duration::from_secs(200),
    Duration::from_secs(400),
];

/// Below each ttl, and longer than a busy machine stands still.
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver's defaults, a second to connect and half a second for an answer, are what a busy machine may take.
fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(usize, Duration),
    Renew(usize, Duration),
    Release(usize),
    Abandon(usize),
    /// The hold ends at the server, as it does when its time is up.
    Expire,
    /// Where time is the test's own, it passes.
    Pass,
}

#[tokio::test(start_paused = true)]
async fn memory_decides_by_the_rules() {
    examine(&subjects::Memory::default(), None, 500, 40).await;
}

#[testbed::test]
async fn redis_scripts_decide_by_the_rules() {
    examine(&subjects::Redis::start().await, None, 100, 40).await;
}

#[testbed::test]
async fn mysql_row_lock_statements_decide_by_the_rules() {
    examine(&subjects::MySqlRow::start().await, None, 30, 25).await;
}

#[testbed::test]
async fn postgres_lease_statements_decide_by_the_rules() {
    examine(&subjects::PostgresLease::start().await, None, 100, 40).await;
}

/// A model that is not as the statements are is found out.
#[testbed::test]
async fn a_model_of_other_postgres_statements_is_caught() {
    for mutant in [
        Mutant::DeletesWithoutCompare,
        Mutant::RenewalAdds,
        Mutant::RenewalResurrects,
        Mutant::RenewalShortens,
    ] {
        // Names of its own: what another examination left would be a disagreement, too.
        let subject = subjects::PostgresLease::start().await;
        let examined = AssertUnwindSafe(examine(&subject, Some(mutant), 50, 40))
            .catch_unwind()
            .await;
        let disagreement = examined.expect_err("an examination that fails");
        let disagreement = disagreement.downcast_ref::<String>().expect("a message of ours");
        assert!(disagreement.contains("seed "), "{mutant:?}: {disagreement}");
    }
}

/// As a server that is not by the rules would disagree with the model, so does a model that is not.
#[test]
fn whoever_does_not_decide_by_the_rules_is_caught() {
    let mutants = [
        Mutant::AskerCutsHolder,
        Mutant::DeletesWithoutCompare,
        Mutant::RenewalAdds,
        Mutant::RenewalResurrects,
        Mutant::RenewalShortens,
    ];
    for mutant in mutants {
        let examined = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
            runtime.block_on(examine(&subjects::Memory::default(), Some(mutant), 500, 40));
        });
        let disagreement = examined.join().expect_err("an examination that fails");
        let disagreement = disagreement.downcast_ref::<String>().expect("a message of ours");
        assert!(disagreement.contains("seed "), "{mutant:?}: {disagreement}");
    }
}

/// Puts so many random sequences of steps to it, and to a model with this mutant.
async fn examine(subject: &impl Subject, mutant: Option<Mutant>, sequences: u64, steps: usize) {
    let mut answers = Answers::default();
    for seed in 0..sequences {
        let mut random = StdRng::seed_from_u64(seed);
        let mut pair = Pair::new(subject, mutant, seed);
        for _ in 0..steps {
            let ttl = TTLS[random.random_range(0..TTLS.len())];
            let client = random.random_range(0..CLIENTS);
            let step = match random.random_range(0..12) {
                0..5 => Step::Acquire(client, ttl),
                5..8 => Step::Renew(client, ttl),
                8 | 9 => Step::Release(client),
                10 if random.random_bool(0.5) => Step::Abandon(client),
                10 => Step::Expire,
                _ => Step::Pass,
            };
            pair.take(step, random.random_bool(0.2), &mut answers).await;
            pair.compare_status().await;
        }
    }
    println!("{answers:?} in {sequences} sequences");
    // Sequences that get no further than "busy" would agree with anything.
    assert!(
        answers.granted > sequences && answers.repeated > 0 && answers.busy > 0,
        "{answers:?}"
    );
    assert!(answers.done > 0 && answers.not_yours > 0, "{answers:?}");
}

const CLIENTS: usize = 3;

#[derive(Debug, Default)]
struct Answers {
    granted: u64,
    repeated: u64,
    busy: u64,
    done: u64,
    not_yours: u64,
}
