//! polylock's figures for Prometheus, with buckets.
//!
//! ```text
//! cargo run --example metrics --features metrics
//! ```
//!
//! It prints the page that a service would serve at `/metrics`. Without buckets, the exporter makes summaries: quantiles of one
//! process, which cannot be added up over several.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// From a round trip on a fast network to the default TTL, in seconds.
const WAIT: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];
/// From a quick update to a nightly job.
const HOLD: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Once, before the first lock.
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("polylock_wait_seconds".into()), &WAIT)?
        .set_buckets_for_metric(Matcher::Full("polylock_hold_seconds".into()), &HOLD)?
        .install_recorder()?;

    let locks = polylock::connect("memory:").await?;
    let guard = locks.lock("orders/42").acquire().await?;
    let taken = locks.lock("orders/42").acquire_within(Duration::from_millis(20)).await;
    println!(
        "# the second one: {}",
        taken.err().map_or("acquired".into(), |error| error.to_string())
    );
    guard.release().await?;
    locks.shutdown().await?;

    println!("{}", prometheus.render());
    Ok(())
}
