//! `bare`: polylock's own requests. An ephemeral sequential node and the list go out together; who is not first
//! watches the one before.

use benchmarks_load::{Lock, Result};
use zookeeper_client::{Acls, CreateMode, Error};

pub(crate) struct BareLock {
    pub(super) client: zookeeper_client::Client,
    pub(super) directory: String,
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
