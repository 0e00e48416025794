//! A child process's view of its parent: the commands that it reads, the answers that it prints.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Stands before all that a child says to its parent, since the test runner prints to the same place.
pub(crate) const MARK: &str = "@child ";

/// A child's side of the conversation with its parent.
#[derive(Debug)]
pub(crate) struct Parent {
    commands: UnboundedReceiver<String>,
}

impl Parent {
    /// Listens to the parent; the process ends when the parent has gone.
    pub(crate) fn start() -> Self {
        let (send, commands) = unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
            std::process::exit(3);
        });
        Self { commands }
    }

    /// Says something to the parent.
    pub(crate) fn say(&self, words: &str) {
        println!("{MARK}{words}");
    }

    /// Waits for the parent to say something.
    pub(crate) async fn command(&mut self) -> String {
        match self.commands.recv().await {
            Some(command) => command,
            None => std::future::pending().await,
        }
    }
}
