//! `bare`: polylock's own requests. An ephemeral sequential node and the list go out together; who is not first
//! watches the one before.

use benchmarks_load::{Client, Lock, Result, Subject};
use zookeeper_client::{Acls, CreateMode, Error};

use super::{connect, make};

pub(crate) struct Bare(String);

pub(crate) struct BareClient(zookeeper_client::Client);

pub(crate) struct BareLock {
    client: zookeeper_client::Client,
    directory: String,
}

impl Bare {
    pub(crate) fn new(address: &str) -> Self {
        Self(address.into())
    }
}

impl Subject for Bare {
    type Client = BareClient;

    async fn connect(&self) -> Result<BareClient> {
        let client = connect(&self.0).await?;
        make(&client, "/bare").await?;
        Ok(BareClient(client))
    }
}

impl Client for BareClient {
    type Lock = BareLock;

    async fn lock(&self, name: &str) -> Result<BareLock> {
        let directory = format!("/bare/{}", name.replace('/', "-"));
        make(&self.0, &directory).await?;
        let client = self.0.clone();
        Ok(BareLock { client, directory })
    }
}

impl Lock for BareLock {
    type Held = String;

    async fn acquire(&mut self) -> Result<String> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let prefix = format!("_c_{:032x}-lock-", rand::random::<u128>());
        let path = format!("{}/{prefix}", self.directory);
        let created = self.client.create(&path, b"", &options);
        let listed = self.client.get_children(&self.directory);
        let (created, listed) = tokio::join!(created, listed);
        let mine = format!("{prefix}{}", created?.1);
        let mut children = listed?.0;
        loop {
            children.sort_by(|a, b| sequence(a).cmp(sequence(b)));
            match children.iter().position(|child| *child == mine) {
                Some(0) => return Ok(format!("{}/{mine}", self.directory)),
                Some(place) => {
                    let before = format!("{}/{}", self.directory, children[place - 1]);
                    match self.client.get_and_watch_data(&before).await {
                        Ok((_, _, watch)) => drop(watch.changed().await),
                        Err(Error::NoNode) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                None => return Err("somebody deleted the node".into()),
            }
            children = self.client.get_children(&self.directory).await?.0;
        }
    }

    async fn release(&mut self, path: String) -> Result<()> {
        Ok(self.client.delete(&path, None).await?)
    }

    fn release_in_background(&mut self, path: String) -> Result<()> {
        drop(self.client.delete(&path, None));
        Ok(())
    }
}

fn sequence(node: &str) -> &str {
    node.rsplit('-').next().unwrap_or(node)
}
