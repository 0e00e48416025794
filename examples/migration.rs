//! Migrations at start-up, without async: all instances of a service start at once, one of them migrates, and the others
//! wait until it is done.
//!
//! ```text
//! cargo run --example migration --features blocking
//! cargo run --example migration --features blocking,redis -- redis://127.0.0.1:6379 schema.txt
//! ```
//!
//! A file stands for the database: it has a line for each step that was done, with the fencing token of who did it.

use std::error::Error;
use std::fs::{OpenOptions, read_to_string};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use polylock::FencingToken;
use polylock::blocking::{self, Guard};

const STEPS: [&str; 3] = [
    "create the table orders",
    "add the column shipped",
    "create an index on it",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".into());
    let folder = tempfile::tempdir()?;
    let database = arguments.next().map_or(folder.path().join("schema.txt"), Into::into);

    // Waits for the release at its end, also after an error or a panic.
    let done = blocking::connect(&url)?.scope(|locks| {
        let lock = locks.lock("shop/migrations");
        // An instance that waits in vain does not start.
        lock.with_within(Duration::from_secs(60), |held| migrate(&database, held))
    })???;
    match done {
        0 => println!("nothing to migrate"),
        done => println!("migrated {done} steps"),
    }
    Ok(())
}

/// Does the steps that are missing, and returns how many.
fn migrate(database: &Path, held: &Guard) -> Result<usize, Box<dyn Error>> {
    let done = steps_done(database, held.token())?;
    for step in &STEPS[done..] {
        // Nothing stops a thread: look before each step that must not be done twice.
        held.check()?;
        let mut file = OpenOptions::new().create(true).append(true).open(database)?;
        writeln!(file, "{} {step}", held.token())?;
    }
    Ok(STEPS.len() - done)
}

/// Refuses a holder whose token is smaller than one that it has seen.
fn steps_done(database: &Path, token: FencingToken) -> Result<usize, Box<dyn Error>> {
    if !database.exists() {
        return Ok(0);
    }
    let text = read_to_string(database)?;
    for line in text.lines() {
        let seen: FencingToken = line.split(' ').next().unwrap_or_default().parse()?;
        if seen > token {
            return Err(format!("a later holder, with token {seen}, has migrated").into());
        }
    }
    Ok(text.lines().count())
}
