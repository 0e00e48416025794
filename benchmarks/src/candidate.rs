//! A process that is a candidate in an election: `benchmarks candidate BACKEND URL NAME TTL-MS`. It says `waits` when it campaigns and
//! `leads` when it is elected. Then it obeys a line: `resign`, after which it campaigns again; otherwise it resigns and ends.
//! peers/java/src/Candidate.java is the same for other libraries.

use std::time::Duration;

use benchmarks_load::Result;
use clap::ValueEnum;
use lock_core::Locker;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::entry::Backend;
use crate::maker::maker;

/// The first argument of such a process.
pub(crate) const CANDIDATE: &str = "candidate";

pub(crate) async fn candidate(arguments: &[String]) -> Result<()> {
    let [backend, url, name, ttl] = arguments else {
        return Err("say which backend, its URL, the election's name and the ttl in milliseconds".into());
    };
    let backend = Backend::from_str(backend, true)?;
    let locks = Locker::from_backend(maker(backend, url)()?).with_ttl(Duration::from_millis(ttl.parse()?));
    locks.connect().await?;
    let election = locks.election(name);
    let mut orders = BufReader::new(stdin()).lines();
    loop {
        println!("waits");
        let term = election.campaign().await?;
        println!("leads");
        let order = orders.next_line().await?;
        term.resign().await?;
        if order.as_deref() != Some("resign") {
            return Ok(locks.shutdown().await?);
        }
    }
}
