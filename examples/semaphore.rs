//! At most three calls of an API at a time, counted over all processes that run this.
//!
//! ```text
//! cargo run --example semaphore
//! cargo run --example semaphore --features redis -- redis://127.0.0.1:6379
//! ```

use std::error::Error;
use std::time::Duration;

use polylock::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

const AT_MOST: u32 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?;
    let api = locks.semaphore("api", AT_MOST);
    let mut calls = JoinSet::new();
    for number in 1..=10 {
        calls.spawn(call(api.clone(), number));
    }
    let done = all_done(&mut calls).await;
    calls.shutdown().await; // after an error: drops the other calls, and with them their permits
    let released = locks.shutdown().await; // waits until these are released
    done?;
    released?;
    Ok(())
}

async fn all_done(calls: &mut JoinSet<polylock::Result<()>>) -> Result<(), Box<dyn Error>> {
    while let Some(called) = calls.join_next().await {
        called??;
    }
    Ok(())
}

async fn call(api: Semaphore, number: u32) -> Result<(), polylock::Error> {
    let guard = api.permits(1).acquire_within(Duration::from_secs(30)).await?;
    println!("call {number} begins");
    sleep(Duration::from_millis(100)).await; // the request
    println!("call {number} ends");
    guard.release().await?;
    Ok(())
}
