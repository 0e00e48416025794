//! A holder that is paused past its lease writes too late. Storage that knows the fencing tokens rejects the write.
//!
//! ```text
//! cargo run --example fenced_write
//! cargo run --example fenced_write --features redis -- redis://127.0.0.1:6379
//! ```
//!
//! For storage in a database see `docs/fencing.md`, and for storage in a Redis `polylock::redis::Fence`.

use std::error::Error;
use std::time::Duration;

use polylock::FencingToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = polylock::connect(&url).await?;
    let ttl = locks.capabilities().shortest_ttl.max(Duration::from_secs(1));
    let lock = locks.lock("accounts/7").ttl(ttl);
    let mut account = Account {
        balance: 100,
        newest: None,
    };

    // A lease that nobody renews stands for a process that is paused.
    let paused = lock.clone().fixed_lease().acquire().await?;
    let seen = *account.access(paused.token())?;
    println!("the first holder reads a balance of {seen}, and is paused");

    let second = lock.acquire().await?; // when the first lease has expired
    *account.access(second.token())? -= 30;
    println!("the second holder withdraws 30");
    second.release().await?;

    match account.access(paused.token()) {
        Ok(balance) => *balance = seen - 10, // the second holder's update would be lost
        Err(rejected) => println!("the first holder resumes; its write is rejected: {rejected}"),
    }
    println!("the balance is {}", account.balance);
    drop(paused);
    Ok(locks.shutdown().await?)
}

/// Storage that rejects any token lower than the highest it has seen.
struct Account {
    balance: i64,
    newest: Option<FencingToken>,
}

impl Account {
    /// Every access needs the token, reads included: a holder's first read already shuts out all older holders. If only
    /// writes did, an older holder could still write after that read, and its update would be lost.
    fn access(&mut self, token: FencingToken) -> Result<&mut i64, String> {
        if self.newest.is_some_and(|newest| token < newest) {
            return Err(format!("token {token} is lower than the newest one"));
        }
        self.newest = Some(token);
        Ok(&mut self.balance)
    }
}
