//! zookeeper-client's own recipe. The first argument is the server's URL.

use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject, offer, serve};
use zookeeper_client::{Acls, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("the server's URL is missing")?;
    let rest = url.strip_prefix("zookeeper://").ok_or("the URL is not ZooKeeper's")?;
    let address = rest.split(['/', '?']).next().unwrap_or(rest);
    serve([("zookeeper-client", ("0.11.2", offer(Recipe(address.to_owned()))))].into()).await
}

struct Recipe(String);

struct RecipeClient(zookeeper_client::Client);

struct RecipeLock {
    client: zookeeper_client::Client,
    directory: String,
}

impl Subject for Recipe {
    type Client = RecipeClient;

    async fn connect(&self) -> Result<RecipeClient> {
        let mut connector = zookeeper_client::Client::connector();
        connector = connector.with_session_timeout(Duration::from_secs(10));
        Ok(RecipeClient(connector.connect(&self.0).await?))
    }
}

impl Client for RecipeClient {
    type Lock = RecipeLock;

    async fn lock(&self, name: &str) -> Result<RecipeLock> {
        let directory = format!("/recipe/{}", name.replace('/', "-"));
        let client = self.0.clone();
        client
            .mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .await?;
        Ok(RecipeLock { client, directory })
    }
}

impl Lock for RecipeLock {
    type Held = OwnedLockClient;

    async fn acquire(&mut self) -> Result<OwnedLockClient> {
        let prefix = LockPrefix::new_curator(&self.directory, "lock-")?;
        let options = LockOptions::new(Acls::anyone_all());
        let lock = self.client.lock(prefix, b"", options).await?;
        Ok(lock.into_owned())
    }

    /// It releases in the background only.
    async fn release(&mut self, held: OwnedLockClient) -> Result<()> {
        self.release_in_background(held)
    }

    fn release_in_background(&mut self, held: OwnedLockClient) -> Result<()> {
        drop(held);
        Ok(())
    }
}
