//! `polylock break`: ends the hold of somebody else.

use std::io::{self, BufRead, Write};

use polylock::backend::{Revoke, Revoked};
use polylock::{FencingToken, Locker};
use tokio::time::timeout;

use crate::cli::{BreakArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::message::{self, say};
use crate::server::{self, SHUTDOWN};
use crate::terminal;

/// Revokes the hold with the token. Returns the code to exit with: 1 if no hold has that token any more.
///
/// # Errors
/// If nobody agrees to end it at once, if the server cannot be asked, or cannot revoke holds.
pub(crate) async fn break_hold(arguments: &BreakArgs, server: &ServerArgs) -> Result<Code, Failure> {
    if arguments.now && !arguments.yes && !agrees(arguments)? {
        return Err(Failure::usage(
            "nothing was changed: --now frees the lock while its holder may still act, and needs --yes, or a terminal on which \
             somebody answers yes",
        ));
    }
    let locks = server::config(server)?.connect_lazy()?;
    server::connect(&locks, server.connect_timeout).await?;
    let revoked = revoke(&locks, arguments).await;
    let _ = timeout(SHUTDOWN, locks.shutdown()).await;
    revoked
}

async fn revoke(locks: &Locker, arguments: &BreakArgs) -> Result<Code, Failure> {
    let how = match arguments.now {
        true => Revoke::Now,
        false => Revoke::AtLeaseEnd,
    };
    match locks.revoke(&arguments.lock, arguments.token, how).await? {
        Revoked::Done { lease_left, .. } => {
            let left = lease_left.map(|left| format!("{:.1}s", left.as_secs_f64()));
            say(&match (how, left) {
                (Revoke::AtLeaseEnd, Some(left)) => {
                    format!("the hold is revoked: the lock is free in {left} at the latest")
                }
                (Revoke::AtLeaseEnd, None) => "the hold is revoked: the lock is free when its lease ends".to_owned(),
                (_, Some(left)) => format!("the lock is free; its former holder may act for up to {left}"),
                (_, None) => "the lock is free; its former holder may act until it notices".to_owned(),
            });
            Ok(Code::SUCCESS)
        }
        _ => {
            say(&format!(
                "no hold has the token {} any more: nothing was changed",
                arguments.token
            ));
            Ok(Code::ONE)
        }
    }
}

/// Asks at the terminal, and returns whether the answer is yes.
fn agrees(arguments: &BreakArgs) -> Result<bool, Failure> {
    if !terminal::is_terminal() {
        return Ok(false);
    }
    let question = question(&arguments.lock, arguments.token);
    message::flush();
    let asked = io::stderr().write_all(question.as_bytes());
    asked.map_err(|error| Failure::os("cannot write to standard error", &error))?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::os("cannot read from standard input", &error))?;
    Ok(answer.trim() == "yes")
}

fn question(lock: &str, token: FencingToken) -> String {
    format!(
        "Lock {lock:?}: the holder with token {token} may go on beside the next one until it notices. Free the lock now? \
         Answer yes or no: "
    )
}
