//! The first steps: acquire a lock, work while it is held, release it.
//!
//! ```text
//! cargo run --example quickstart
//! cargo run --example quickstart --features redis -- redis://127.0.0.1:6379
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?; // an application keeps one of these
    let lock = locks.lock("orders/42");

    // Waits for at most 5 s while somebody else holds the lock.
    let guard = lock.acquire_within(Duration::from_secs(5)).await?;
    println!("acquired the lock {:?}, fencing token {}", guard.name(), guard.token());

    // Returns at once: `None` if the lock is taken.
    match lock.try_acquire().await? {
        None => println!("a second caller does not get it"),
        Some(_) => println!("two holders at once: this never happens"),
    }

    // Runs the work, and stops it if the lock is lost meanwhile.
    guard.run(work()).await?;

    // Reports whether the lock was held until now.
    guard.release().await?;
    println!("released it");

    // At the end of `main`: waits for the releases of dropped guards.
    locks.shutdown().await?;
    Ok(())
}

async fn work() {
    sleep(Duration::from_millis(100)).await;
    println!("worked while it was held");
}
