//! A catalog that many read at the same time, and that one changes alone.
//!
//! ```text
//! cargo run --example rw_lock
//! cargo run --example rw_lock --features redis -- redis://127.0.0.1:6379
//! ```

use std::error::Error;
use std::time::Duration;

use polylock::RwLock;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?;
    let catalog = locks.rw_lock("catalog");

    let readers = tokio::join!(read(&catalog, 1), read(&catalog, 2), read(&catalog, 3));
    readers.0?;
    readers.1?;
    readers.2?;

    // Alone: no reader sees a part of the change.
    let mut guard = catalog.write().acquire_within(Duration::from_secs(5)).await?;
    println!("the writer changes the catalog, fencing token {}", guard.token());
    if locks.capabilities().downgrade {
        // In place: nobody writes between the change and the check.
        guard.downgrade().await?;
    }
    println!("the writer checks what it wrote");
    guard.release().await?;

    read(&catalog, 4).await?;
    locks.shutdown().await?;
    Ok(())
}

async fn read(catalog: &RwLock, reader: u32) -> Result<(), polylock::Error> {
    let guard = catalog.read().acquire_within(Duration::from_secs(5)).await?;
    println!("reader {reader} reads");
    sleep(Duration::from_millis(100)).await;
    guard.release().await?;
    Ok(())
}
