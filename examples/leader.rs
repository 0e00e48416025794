//! Leader election: one of many processes leads, and another one takes over when it ends.
//!
//! Start it in several terminals, then kill the process that leads:
//!
//! ```text
//! cargo run --example leader --features redis -- redis://127.0.0.1:6379
//! ```
//!
//! If the leader is killed, its lock frees itself within the TTL: 10 s, or as many seconds as a second argument says. If
//! the leader stops by Ctrl-C, the next one takes over at once.

use std::convert::Infallible;
use std::error::Error;
use std::process;
use std::time::Duration;

use polylock::Locker;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".into());
    let ttl = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let locks = polylock::connect(&url).await?.with_ttl(Duration::from_secs(ttl));
    tokio::select! {
        Err(error) = lead_again_and_again(&locks) => return Err(error.into()),
        _ = tokio::signal::ctrl_c() => println!("process {} stops", process::id()),
    }
    locks.shutdown().await?; // the guard was dropped: this waits for its release
    Ok(())
}

async fn lead_again_and_again(locks: &Locker) -> Result<Infallible, polylock::Error> {
    let me = process::id();
    loop {
        println!("process {me} waits for its turn");
        let guard = locks.lock("leader").acquire().await?;
        println!("process {me} leads, fencing token {}", guard.token());
        let Err(lost) = guard.run(lead()).await;
        println!("process {me} leads no longer: {lost}");
    }
}

/// The leader's work. It is dropped at its next `await` once the lock is lost.
async fn lead() -> Infallible {
    loop {
        println!("process {} works as the leader", process::id());
        sleep(Duration::from_secs(1)).await;
    }
}
