//! `polylock list`: names that are held or waited for.

use std::io::{self, Write};

use polylock::backend::ListFrom;
use polylock::{LockName, Locker};
use serde_json::json;
use tokio::time::timeout;

use crate::cli::{ListArgs, ServerArgs};
use crate::exit::{Code, Failure};
use crate::server::{self, SHUTDOWN};
use crate::status::shown;

/// The number of names in one request.
const PAGE: usize = 1000;

/// Prints the names, page by page.
///
/// # Errors
/// If the server cannot be asked, or cannot list names.
pub(crate) async fn list(arguments: &ListArgs, server: &ServerArgs) -> Result<Code, Failure> {
    let locks = server::config(server)?.connect_lazy()?;
    server::connect(&locks, server.connect_timeout).await?;
    let listed = print_all(&locks, arguments).await;
    let _ = timeout(SHUTDOWN, locks.shutdown()).await;
    listed.map(|()| Code::SUCCESS)
}

async fn print_all(locks: &Locker, arguments: &ListArgs) -> Result<(), Failure> {
    let mut next = Some(ListFrom::prefix(&arguments.prefix));
    while let Some(from) = next {
        let page = locks.list(&from, PAGE).await?;
        let mut names = page.names;
        if arguments.held {
            let mut held = Vec::new();
            for name in names {
                if locks.status(name.as_str()).await?.is_held() {
                    held.push(name);
                }
            }
            names = held;
        }
        print(&names, arguments.json)?;
        next = page.next;
    }
    Ok(())
}

fn print(names: &[LockName], json: bool) -> Result<(), Failure> {
    let line = |name: &LockName| match json {
        true => json!({"name": name.as_str()}).to_string() + "\n",
        false => shown(name.as_str()) + "\n",
    };
    let lines: String = names.iter().map(line).collect();
    let mut output = io::stdout().lock();
    match output.write_all(lines.as_bytes()).and_then(|()| output.flush()) {
        Err(error) => Err(Failure::os("cannot write to standard output", &error)),
        Ok(()) => Ok(()),
    }
}
