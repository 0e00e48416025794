//! Transfers between accounts in both directions at the same time: each holds the locks of both accounts, and no two
//! transfers wait for each other.
//!
//! ```text
//! cargo run --example acquire_all
//! cargo run --example acquire_all --features redis -- redis://127.0.0.1:6379
//! ```

use std::error::Error;
use std::time::Duration;

use polylock::{Locker, acquire_all_within};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?;
    let done = tokio::try_join!(transfer(&locks, 3, 7), transfer(&locks, 7, 3), transfer(&locks, 3, 9));
    let released = locks.shutdown().await; // also after an error: the locks of the other transfers are released
    done?;
    released?;
    println!("all transfers are done");
    Ok(())
}

async fn transfer(locks: &Locker, from: u32, to: u32) -> Result<(), polylock::Error> {
    let accounts = [from, to].map(|account| locks.lock(format!("account/{account}")));
    let guard = acquire_all_within(accounts, Duration::from_secs(30)).await?;
    // Stops if either lock is lost.
    guard.run(sleep(Duration::from_millis(100))).await?;
    println!("transferred from {from} to {to}");
    guard.release().await
}
