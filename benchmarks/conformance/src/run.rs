//! Running the cases of a library.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use benchmarks_programs::Program;
use conformance_tests::{Case, Outcome, ServerUse, cases, execute};
use testbed::Server;

use crate::claims::CASES;
use crate::harness::{PeerHarness, started_with};
use crate::libraries::Library;
use crate::process::Process;
use crate::results::{OfCase, OfLibrary};

/// A case that fails is run so often in all.
const RUNS: u32 = 3;
/// Cases mostly wait.
const AT_A_TIME: usize = 4;

/// Runs the cases whose claims the library makes and whose names contain this.
pub(crate) async fn library(library: &'static Library, only: &str, date: &str) -> Result<OfLibrary, String> {
    let program = library.build().await?;
    let server = library.start_server().await?;
    let (_, version) = Process::start(&started_with(&program, library, &server.url())).await?;
    println!("{} {version}", library.name);
    let chosen = CASES
        .iter()
        .filter(|(name, needs)| name.contains(only) && library.claims_all(needs));
    let chosen: Vec<&'static Case> = cases::all()
        .iter()
        .filter(|case| chosen.clone().any(|(name, _)| *name == case.name))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|threads| {
        for _ in 0..AT_A_TIME {
            threads.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut result = OfCase::default();
                    run(library, &program, &server, case, &mut result);
                    lock(&done).insert(case.name.to_owned(), result);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // With nothing beside it.
    for case in chosen {
        let result = done.entry(case.name.to_owned()).or_default();
        while result.passed == 0 && result.runs < RUNS || result.passed > 0 && (2..RUNS).contains(&result.runs) {
            run(library, &program, &server, case, result);
        }
    }
    Ok(OfLibrary {
        version,
        server: library.server_version(&server).await?,
        date: date.to_owned(),
        cases: done,
    })
}

fn run(library: &'static Library, program: &Program, shared: &Server, case: &'static Case, result: &mut OfCase) {
    result.runs += 1;
    match once(library, program, shared, case) {
        Outcome::Passed => result.passed += 1,
        outcome => result.failure = Some(outcome.to_string()),
    }
    println!("{}: {}: {}", library.name, case.name, said(result));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn once(library: &'static Library, program: &Program, shared: &Server, case: &'static Case) -> Outcome {
    let server = match case.server {
        ServerUse::Shared => Ok(shared.clone()),
        ServerUse::Own => apart(library.start_server()),
    };
    match server {
        Ok(server) => {
            let needs = CASES.iter().find(|(name, _)| *name == case.name);
            let needs = needs.map_or(&[][..], |(_, needs)| needs);
            let observing = started_with(program, library, &server.url());
            match apart(Process::start(&observing)) {
                Ok((observer, _)) => {
                    let harness = PeerHarness::new(library, program.clone(), server, observer, needs);
                    execute(case, Arc::new(harness), case.name)
                }
                Err(error) => Outcome::Panicked(error),
            }
        }
        Err(error) => Outcome::Panicked(error),
    }
}

/// On a thread and a runtime of its own: the caller may be on one.
fn apart<T: Send>(starting: impl Future<Output = Result<T, String>> + Send) -> Result<T, String> {
    let alone = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(starting)
    };
    std::thread::scope(|threads| threads.spawn(alone).join()).unwrap_or_else(|_| Err("it did not start".to_owned()))
}

fn said(result: &OfCase) -> String {
    let OfCase { passed, runs, failure } = result;
    match (failure, passed) {
        (None, _) => "passed".to_owned(),
        (Some(failure), 0) => format!("FAILED {runs} times: {failure}"),
        (Some(failure), passed) => format!("passed in {passed} of {runs}: {failure}"),
    }
}
