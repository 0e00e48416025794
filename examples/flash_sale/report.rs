//! What became of the buyers.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Options;

/// What a buyer tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bought one, after waiting this long for the lock.
    Sold(Duration),
    /// Nothing was left.
    SoldOut(Duration),
    /// Something went wrong.
    Failed(String),
}

impl Event {
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Sold(waited) => format!("sold {}", waited.as_micros()),
            Self::SoldOut(waited) => format!("sold-out {}", waited.as_micros()),
            Self::Failed(message) => format!("failed {}", message.replace('\n', " ")),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let waited = || rest.parse().ok().map(Duration::from_micros);
        match word {
            "sold" => waited().map(Self::Sold),
            "sold-out" => waited().map(Self::SoldOut),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    items: u32,
    left: u32,
    sold: u32,
    failures: Vec<String>,
    waits: Vec<Duration>,
    no_lock: bool,
    started: Instant,
    took: Duration,
    bar: ProgressBar,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let bar = ProgressBar::new(options.buyers.into());
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} buyers  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (items, left, no_lock) = (options.stock, options.stock, options.no_lock);
        let started = Instant::now();
        Self {
            items,
            left,
            sold: 0,
            failures: vec![],
            waits: vec![],
            no_lock,
            started,
            took: Duration::ZERO,
            bar,
        }
    }

    pub(crate) fn add(&mut self, event: Event) {
        self.bar.inc(1);
        match event {
            Event::Sold(waited) => {
                self.sold += 1;
                self.waits.push(waited);
            }
            Event::SoldOut(waited) => self.waits.push(waited),
            Event::Failed(message) => {
                self.bar.suspend(|| eprintln!("flash_sale: {message}"));
                self.failures.push(message);
            }
        }
    }

    /// `sold` is what the stock itself knows: the buyers of a process that was killed may not have told of all.
    pub(crate) fn finish(&mut self, left: u32, sold: Option<u32>) {
        self.bar.finish();
        self.took = self.started.elapsed();
        self.left = left;
        self.sold = sold.unwrap_or(self.sold);
        self.waits.sort();
    }

    /// How many sales the stock does not know of.
    pub(crate) fn lost(&self) -> i64 {
        i64::from(self.sold) - (i64::from(self.items) - i64::from(self.left))
    }

    pub(crate) fn print(&self) -> ExitCode {
        let row = |what: &str, value: String| println!("{what:<20}{value:>14}");
        row("sold", self.sold.to_string());
        row("left", self.left.to_string());
        row("lost updates", self.lost().to_string());
        if !self.no_lock {
            row("wait p50", in_ms(percentile(&self.waits, 50)));
            row("wait p99", in_ms(percentile(&self.waits, 99)));
            row(
                "holds per second",
                format!("{:.1}", self.waits.len() as f64 / self.took.as_secs_f64()),
            );
        }
        if !self.failures.is_empty() {
            row("failed buyers", self.failures.len().to_string());
        }
        println!("RESULT sold={} left={} lost={}", self.sold, self.left, self.lost());
        match self.lost() {
            1.. if !self.no_lock => ExitCode::from(1),
            _ if self.failures.is_empty() => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last * percent).div_ceil(100)).copied().unwrap_or_default()
}

fn in_ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some drivers repeat their cause.
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
