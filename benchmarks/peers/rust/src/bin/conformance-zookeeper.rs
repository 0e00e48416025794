//! zookeeper-client's own recipe as a client of the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peers::conformance::{Hold, Locks, Result, Wait, arguments, failed, serve, within};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode, Error, LockOptions, LockPrefix, OwnedLockClient};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (_, url, session) = arguments();
    let rest = url.trim_start_matches("zookeeper://");
    let address = rest.split(['/', '?']).next().unwrap_or(rest).to_owned();
    let client = OnceCell::new();
    serve(Recipe { address, session, client }, "0.11.2").await
}

struct Recipe {
    address: String,
    session: Duration,
    client: OnceCell<Client>,
}

struct RecipeHold {
    held: OwnedLockClient,
    is_gone: Arc<AtomicBool>,
    watching: JoinHandle<()>,
}

fn told(error: Error) -> (&'static str, String) {
    match error {
        Error::ConnectionLoss | Error::SessionExpired | Error::ClientClosed => failed("unavailable", error),
        error => failed("other", error),
    }
}

impl Locks for Recipe {
    type Hold = RecipeHold;

    async fn acquire(&self, name: &str, _: Duration, wait: Wait) -> Result<Option<RecipeHold>> {
        let connecting = || async {
            let connector = Client::connector().with_session_timeout(self.session);
            connector.connect(&self.address).await
        };
        let client = self.client.get_or_try_init(connecting).await.map_err(told)?;
        let waiting = async {
            let prefix = LockPrefix::new_curator(name, "lock-").map_err(told)?;
            let options = LockOptions::new(Acls::anyone_all());
            let options = options.with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()));
            let options = options.map_err(told)?;
            let held = client.lock(prefix, b"", options).await.map_err(told)?;
            watched(held.into_owned()).await
        };
        match wait {
            Wait::Forever => waiting.await.map(Some),
            Wait::Within(limit) => within(limit, waiting).await,
            Wait::Try => Err(failed("other", "it has no try")),
        }
    }
}

/// With a watch of its path, as its documentation advises.
async fn watched(held: OwnedLockClient) -> Result<RecipeHold> {
    let is_gone = Arc::new(AtomicBool::new(false));
    let (stat, watcher) = held.client().check_and_watch_stat(held.lock_path()).await.map_err(told)?;
    is_gone.store(stat.is_none(), Ordering::SeqCst);
    let of_watch = is_gone.clone();
    let watching = tokio::spawn(async move {
        watcher.changed().await;
        of_watch.store(true, Ordering::SeqCst);
    });
    Ok(RecipeHold { held, is_gone, watching })
}

impl Hold for RecipeHold {
    /// It releases in the background only.
    async fn release(self) -> Result<()> {
        self.watching.abort();
        drop(self.held);
        Ok(())
    }

    fn state(&self) -> (bool, Option<Duration>) {
        (!self.is_gone.load(Ordering::SeqCst), None)
    }
}
