//! `polylock hold`: holds a lock until somebody says that it is enough.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::time::Duration;

use polylock::{FencingToken, LockName};
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::acquire::{acquire, locker};
use crate::cli::{HoldArgs, OnUnreachable, OutputArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::message::say;
use crate::signals::{Reaction, Signals, WHILE_WAITING, while_waiting};
use crate::terminal;

/// The time to wait for the answer to the release.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);

/// The time between two looks at a terminal that others have.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Holds the locks. Returns the code to exit with.
///
/// # Errors
/// If they cannot be acquired, or if they are lost.
pub(crate) async fn hold(arguments: &HoldArgs, server: &ServerArgs, output: OutputArgs) -> Result<Code, Failure> {
    let locks = locker(&arguments.lock, server, OsStr::new("hold"))?;
    let mut signals = Signals::default();
    signals.listen(&WHILE_WAITING)?;
    let acquired = tokio::select! {
        biased;
        code = ended(&mut signals) => Err(Failure::new(code, "ended by a signal while waiting for the lock")),
        acquired = acquire(&locks, &arguments.lock, server.connect_timeout, OnUnreachable::Wait, output) => acquired,
    };
    let result = match acquired {
        Err(failure) => Err(failure),
        // It is not asked for.
        Ok(None) => Err(Failure::new(Code::UNEXPECTED, "there is no lock")),
        Ok(Some(held)) => {
            let lost_code = Code::new(arguments.lock.lost_code);
            let waited = match print(&held.tokens(), arguments.json) {
                // Nobody reads the token: the lock is released all the same.
                Err(failure) => Err(failure),
                Ok(()) => tokio::select! {
                    biased;
                    loss = held.lost(Duration::ZERO) => Err(Failure::new(lost_code, loss.to_string())),
                    _ = ended(&mut signals) => Ok(()),
                    () = limit(arguments.limit) => Ok(()),
                    () = end_of_input(), if !arguments.ignore_stdin => {
                        if !output.quiet {
                            say("standard input has ended: releasing");
                        }
                        Ok(())
                    }
                },
            };
            waited.and(match timeout(RELEASED_WITHIN, held.release()).await {
                Ok(Ok(())) => Ok(Code::SUCCESS),
                Ok(Err(error)) if error.is_lost() => Err(Failure::new(lost_code, error.to_string())),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Failure::new(
                    Code::UNAVAILABLE,
                    "the server did not answer to the release",
                )),
            })
        }
    };
    if timeout(RELEASED_WITHIN, locks.shutdown()).await.is_err() && !output.quiet {
        say("the server did not answer at the end: what was not released ends with its ttl");
    }
    result
}

async fn ended(signals: &mut Signals) -> Code {
    loop {
        let signal = signals.next().await;
        if while_waiting(signal) == Reaction::GiveUp {
            return Code::of_signal(signal);
        }
    }
}

async fn limit(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of standard input. In the background, a terminal is left to the others until this process gets it.
async fn end_of_input() {
    let mut input = tokio::io::stdin();
    let mut buffer = [0; 1024];
    loop {
        while terminal::is_of_others() {
            sleep(LOOK_EVERY).await;
        }
        match input.read(&mut buffer).await {
            Ok(bytes) if bytes > 0 => {}
            // It came into the background while it read.
            Err(_) if terminal::is_of_others() => {}
            // If the input cannot be read, that is its end.
            _ => return,
        }
    }
}

fn print(tokens: &[(LockName, FencingToken)], json: bool) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let mut lines = tokens.iter().map(|(name, token)| match json {
        true => serde_json::json!({"name": name.as_str(), "token": token.to_string()}).to_string(),
        false => format!("token {token}"),
    });
    let printed = lines
        .try_for_each(|line| writeln!(output, "{line}"))
        .and_then(|()| output.flush());
    printed.map_err(|error| Failure::os("cannot write to standard output", &error))
}
