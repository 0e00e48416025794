//! A job that many hosts start at the same minute, each by its own clock, and that shall run once.
//!
//! ```text
//! 0 2 * * * cron redis://locks.example.com
//! ```
//!
//! A lock that is released after the job is not enough: if the job takes no time, a host whose clock is a second behind
//! finds the lock free. So the name stays taken for a minimum time. That time must be longer than the clocks differ, and
//! shorter than the time between two runs: 30 s, or as many seconds as a second argument says.

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".into());
    let minimum = arguments.next().map_or(Ok(30), |seconds| seconds.parse())?;
    let minimum = Duration::from_secs(minimum);
    let locks = polylock::connect(&url).await?;

    // All servers but MySQL's row locks and PostgreSQL's sessions keep the name after the release, even if this process ends.
    let server_keeps_it = locks.capabilities().minimum_hold;
    let mut lock = locks.lock("jobs/nightly-report");
    if server_keeps_it {
        lock = lock.hold_at_least(minimum);
    }

    let Some(guard) = lock.try_acquire().await? else {
        println!("another host runs the job, or has just run it");
        return Ok(locks.shutdown().await?);
    };
    let started = Instant::now();
    guard.run(job()).await?;
    println!("this host ran the job");
    if !server_keeps_it {
        // There a lock ends with its release: this process keeps it for the minimum time. If the process dies before that,
        // a host whose clock is behind runs the job again.
        guard.run(sleep_until(started + minimum)).await?;
    }
    guard.release().await?;
    Ok(locks.shutdown().await?)
}

async fn job() {
    sleep(Duration::from_millis(10)).await;
}
