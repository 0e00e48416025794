//! Leader election: one of many processes leads, and another one takes over when it ends. All of them know who leads.
//!
//! Start it in several terminals, then kill the process that leads:
//!
//! ```text
//! cargo run --example leader --features redis -- redis://127.0.0.1:6379
//! ```
//!
//! If the leader is killed, another process leads within the TTL: 10 s, or as many seconds as a second argument says. If
//! the leader stops by Ctrl-C or SIGTERM, the next one leads at once.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::ops::ControlFlow;
use std::process;
use std::time::Duration;

use polylock::{Observer, Watch};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or("memory:".into());
    let ttl = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let locks = polylock::connect(&url).await?.with_ttl(Duration::from_secs(ttl));
    let me = format!("process {}", process::id());
    let election = locks.election("leader").value(me.as_str());
    println!("{me} waits for its turn");
    let ended: Result<(), Box<dyn Error>> = tokio::select! {
        Err(error) = election.lead(work) => Err(error.into()),
        Err(error) = follow(election.observe()) => Err(error.into()),
        stopped = stopped() => stopped.map_err(Into::into),
    };
    println!("{me} stops");
    let released = locks.shutdown().await; // the term was dropped: this waits until another process can be elected
    ended?;
    released?;
    Ok(())
}

/// The leader's work. It is dropped at its next `await` when the term ends.
async fn work(term: Watch) -> ControlFlow<Infallible> {
    let me = process::id();
    println!("process {me} leads, term {}", term.token()); // write the term with all that only the leader may write
    loop {
        println!("process {me} works as the leader");
        sleep(Duration::from_secs(1)).await;
    }
}

/// What every process knows, whether it is a candidate or not.
async fn follow(mut seen: Observer) -> Result<Infallible, polylock::Error> {
    loop {
        let leader = seen.changed().await?;
        println!("the leader is {:?}", leader.value().unwrap_or("unknown"));
    }
}

/// Ctrl-C, or the signal by which Kubernetes, systemd and Docker stop a process.
async fn stopped() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            stopped = tokio::signal::ctrl_c() => stopped,
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
