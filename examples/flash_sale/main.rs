//! The flash sale: many buyers, one stock, and nothing but a lock between them.
//!
//! Each buyer takes the lock `productA`, reads the stock, thinks for a while, writes the stock less one, and gives the
//! lock back. The stock is a file without any protection of its own, so a lock that fails shows as lost updates; so
//! does `--no-lock`. With a MySQL the stock is in the database, and protected by a fence.
//!
//! ```text
//! cargo run -p polylock --example flash_sale -- --compare
//! cargo run --example flash_sale
//! cargo run --example flash_sale -- --no-lock
//! cargo run --example flash_sale --features redis -- --backend redis://127.0.0.1:6379 --processes 4
//! ```
//!
//! The last line is `RESULT sold=.. left=.. lost=..`. It exits with 0 when no update was lost (and with `--no-lock`),
//! with 1 when one was, and with 2 when anything else went wrong, a buyer without the lock included. With `--compare` the
//! stock is sold twice, without the lock and with it; the exit code is that of the sale with the lock.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::report::Report;
use crate::stock::Stock;

mod buyer;
mod processes;
mod report;
mod stock;

/// Sells a stock to many buyers at once, with a distributed lock between them.
#[derive(Clone, Debug, Parser)]
#[command(name = "flash_sale")]
struct Options {
    /// The lock server: memory:, redis://.., mysql://.. or zookeeper://..
    #[arg(long, value_name = "URL", default_value = "memory:")]
    backend: String,
    /// How many buyers there are.
    #[arg(long, value_name = "N", default_value_t = 50)]
    buyers: u32,
    /// How many items there are.
    #[arg(long, value_name = "N", default_value_t = 500)]
    stock: u32,
    /// How many processes share the buyers.
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// A buyer thinks for up to this many milliseconds while holding the lock.
    #[arg(long, value_name = "N", default_value_t = 20)]
    think_ms: u64,
    /// How long a buyer waits for the lock, as in 2s or 500ms; for ever by default.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// How long a dead buyer's lock survives.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Leaves out the lock, to show what happens then.
    #[arg(long)]
    no_lock: bool,
    /// Sells the stock twice: without the lock, then with it.
    #[arg(long, conflicts_with = "no_lock")]
    compare: bool,
    /// What a child process is told: where the stock is.
    #[arg(long, hide = true, value_name = "PLACE")]
    child_of: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse(); // exits with 2 by itself
    if let Some(place) = &options.child_of {
        return processes::child(&options, place).await;
    }
    let sold = if options.compare {
        compare(&options).await
    } else {
        sell(&options).await.map(|report| report.print())
    };
    sold.unwrap_or_else(|error| {
        eprintln!("flash_sale: {}", report::chain(error.as_ref()));
        ExitCode::from(2)
    })
}

/// Sells the same stock without the lock and with it; the exit code is that of the second sale.
async fn compare(options: &Options) -> Result<ExitCode, Box<dyn std::error::Error + Send + Sync>> {
    let (buyers, stock) = (options.buyers, options.stock);
    println!("{buyers} buyers at once take one item each from a stock of {stock}.");
    println!("\n--- without a lock");
    let unlocked = Options {
        no_lock: true,
        ..options.clone()
    };
    let without = sell(&unlocked).await?;
    without.print();
    println!("\n--- with a lock around each sale");
    let with = sell(options).await?;
    let code = with.print();
    println!(
        "\nLost updates: {} without the lock, {} with it.",
        without.lost(),
        with.lost()
    );
    Ok(code)
}

async fn sell(options: &Options) -> Result<Report, Box<dyn std::error::Error + Send + Sync>> {
    if options.processes > 1 && options.backend.starts_with("memory:") && !options.no_lock {
        return Err("memory: locks live in one process: use --processes 1, or a lock server with --backend".into());
    }
    if !options.no_lock {
        polylock::connect_lazy(&options.backend)?; // once, before every process says what is wrong with it
    }
    let folder = tempfile::Builder::new().prefix("flash_sale").tempdir()?;
    let stock = Stock::create(&options.backend, folder.path(), options.stock).await?;
    let mut report = Report::new(options);
    if options.processes == 1 {
        buyer::run(options, &stock, 0..options.buyers, |event| report.add(event)).await?;
    } else {
        tokio::task::block_in_place(|| processes::run(options, &stock, |event| report.add(event)))?;
    }
    let (left, sold) = stock.close().await?;
    report.finish(left, sold);
    Ok(report)
}
