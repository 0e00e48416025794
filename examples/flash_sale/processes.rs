//! Several processes that share the buyers: copies of this one, each telling of its buyers line by line.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;

use crate::report::Event;
use crate::stock::Stock;
use crate::{Options, buyer, report};

/// Runs the children to their end.
pub(crate) fn run(
    options: &Options,
    stock: &Stock,
    mut tell: impl FnMut(Event),
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (sender, events) = mpsc::channel();
    let mut children = Vec::new();
    for number in 0..options.processes {
        let mut child = Running(spawn(options, stock, number)?);
        let lines = BufReader::new(child.0.stdout.take().ok_or("a child without a standard output")?).lines();
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The receiver lives until all senders have gone.
                let _ = sender.send(line);
            }
        });
        children.push(child);
    }
    drop(sender);
    for line in events {
        tell(Event::from_line(&line).ok_or_else(|| format!("a child said {line:?}"))?);
    }
    for child in &mut children {
        let status = child.0.wait()?;
        if !status.success() {
            tell(Event::Failed(format!("a child process failed ({status})")));
        }
    }
    Ok(())
}

fn spawn(options: &Options, stock: &Stock, number: u32) -> std::io::Result<Child> {
    let Options {
        backend,
        buyers,
        stock: items,
        processes,
        think_ms,
        wait,
        ttl,
        no_lock,
        compare: _,
        child_of: _,
    } = options;
    let share = buyers / processes + u32::from(number < buyers % processes);
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--child-of")
        .arg(stock.place())
        .arg("--backend")
        .arg(backend);
    command.args([
        "--buyers",
        &share.to_string(),
        "--stock",
        &items.to_string(),
        "--think-ms",
        &think_ms.to_string(),
    ]);
    command.args(["--ttl", &humantime::format_duration(*ttl).to_string()]);
    if let Some(wait) = wait {
        command.args(["--wait", &humantime::format_duration(*wait).to_string()]);
    }
    if *no_lock {
        command.arg("--no-lock");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// What a child does, with the stock at this place.
pub(crate) async fn child(options: &Options, place: &str) -> ExitCode {
    let sell = async {
        let stock = Stock::open(&options.backend, place).await?;
        buyer::run(options, &stock, 0..options.buyers, |event| {
            println!("{}", event.to_line());
        })
        .await
    };
    match sell.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flash_sale: {}", report::chain(error.as_ref()));
            ExitCode::from(2)
        }
    }
}

/// A child that does not outlive its parent's interest in it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail for a child that has ended, which is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
