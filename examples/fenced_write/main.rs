//! A holder that is paused past its lease writes too late. Storage that knows the fencing tokens rejects the write.
//!
//! ```text
//! cargo run --example fenced_write
//! cargo run --example fenced_write --features redis -- redis://127.0.0.1:6379
//! cargo run --example fenced_write --features mysql -- mysql://app:secret@127.0.0.1:3306/app
//! cargo run --example fenced_write --features postgres -- postgres://app:secret@127.0.0.1:5432/app
//! ```
//!
//! With MySQL and PostgreSQL the account is in the database, under a `polylock::mysql::Fence` or a `polylock::postgres::Fence`. For
//! storage in another database see `docs/fencing.md`, and for storage in a Redis `polylock::redis::Fence`.

use std::error::Error;
use std::time::Duration;

use crate::account::Account;

mod account;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?;
    let lock = locks.lock("accounts/7");
    let mut account = Account::open(&url, 100).await?;

    // A short lease that nobody renews stands for a process that is paused.
    let ttl = locks.capabilities().shortest_ttl.max(Duration::from_secs(1));
    let paused = lock.clone().ttl(ttl).fixed_lease().acquire().await?;
    let seen = account.read(paused.token()).await?;
    println!("the first holder reads a balance of {seen}, and is paused");

    let second = lock.acquire().await?; // when the first lease has expired
    let balance = account.read(second.token()).await?;
    account.write(second.token(), balance - 30).await?;
    println!("the second holder withdraws 30");

    match account.write(paused.token(), seen - 10).await {
        Ok(()) => println!("the first holder resumes and writes: the second holder's update is lost"),
        Err(rejected) => println!("the first holder resumes; its write is rejected: {rejected}"),
    }
    println!("the balance is {}", account.read(second.token()).await?);
    second.release().await?;
    drop(paused);
    Ok(locks.shutdown().await?)
}
