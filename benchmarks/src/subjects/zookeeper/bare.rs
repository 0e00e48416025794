//! `bare`: polylock's own requests, once it watches the token offset. An ephemeral sequential node and the list go out together; a
//! waiter reads who has the lock, and watches the node before its own. No heartbeats, and nobody asks the leader. A test compares them.

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
        let prefix = format!("_c_{}-lock-", hyphenated(&format!("{:032x}", rand::random::<u128>())));
        let path = format!("{}/{prefix}", self.directory);
        let created = self.client.create(&path, b"", &options);
        let (created, listed) = tokio::join!(created, self.list());
        let mine = format!("{prefix}{}", created?.1);
        let mut children = listed?;
        loop {
            children.sort_by(|a, b| sequence(a).cmp(sequence(b)));
            match children.iter().position(|child| *child == mine) {
                Some(0) => return Ok(format!("{}/{mine}", self.directory)),
                Some(place) => {
                    let holder = self.client.get_data(&format!("{}/{}", self.directory, children[0]));
                    let before = format!("{}/{}", self.directory, children[place - 1]);
                    // It fires when that node ends, and at no write of it.
                    let gone = self.client.get_and_watch_children(&before);
                    match tokio::join!(holder, gone) {
                        (_, Ok((_, _, watch))) => drop(watch.changed().await),
                        (_, Err(Error::NoNode)) => {}
                        (_, Err(error)) => return Err(error.into()),
                    }
                }
                None => return Err("somebody deleted the node".into()),
            }
            children = self.list().await?;
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

impl BareLock {
    /// The nodes of the lock.
    async fn list(&self) -> Result<Vec<String>> {
        let listed = self.client.get_children(&self.directory);
        Ok(listed.await?.0)
    }
}

/// As Curator names its nodes.
fn hyphenated(id: &str) -> String {
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

fn sequence(node: &str) -> &str {
    node.rsplit('-').next().unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use benchmarks_load::{Client, Subject};
    use lock_core::Locker;
    use lock_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
    use tokio::time::{sleep, timeout};

    use super::super::Bare;
    use super::super::relay::{self, Relay};
    use super::*;

    /// What a client asks for, without what makes each request another one. Heartbeats are not told: of those, polylock
    /// sends one more before it believes that it is first.
    fn told(relay: &Relay) -> Vec<relay::Request> {
        const HEARTBEATS: [i32; 2] = [9, 11];
        let mut requests = relay.take();
        requests.retain(|request| !HEARTBEATS.contains(&request.kind));
        for request in &mut requests {
            request.path = without_id(&request.path);
        }
        requests
    }

    /// The digits of the holder's id, and of the number that the server appends, made equal.
    fn without_id(path: &str) -> String {
        match path.split_once("/_c_") {
            Some((directory, node)) => {
                let node = node.replace(|letter: char| letter.is_ascii_hexdigit(), "0");
                format!("{directory}/_c_{node}")
            }
            None => path.into(),
        }
    }

    #[testbed::test]
    async fn sends_what_polylock_sends() {
        let server = testbed::ZooKeeper::new().start().await.unwrap();
        let locker = |address: &str| {
            let config = ZooKeeperConfig::new([address]).with_open_acl().with_root("/bare");
            Locker::new(ZooKeeperBackend::new(config).unwrap()).without_label()
        };
        let (ours, theirs) = (Relay::to(server.address()).await, Relay::to(server.address()).await);
        let polylock = locker(ours.address()).lock("same");
        let client = Bare::new(theirs.address()).connect().await.unwrap();
        let mut bare = client.lock("same").await.unwrap();
        // Makes the directory, and the sessions; and again until it watches the token offset.
        let watches = async {
            loop {
                polylock.acquire().await.unwrap().release().await.map(drop).unwrap();
                if !told(&ours)
                    .iter()
                    .any(|request| request.path.ends_with("%token-offset"))
                {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(60), watches)
            .await
            .expect("it watches the offset");
        let first = bare.acquire().await.unwrap();
        bare.release(first).await.unwrap();
        ours.take();
        theirs.take();

        polylock.acquire().await.unwrap().release().await.map(drop).unwrap();
        let held = bare.acquire().await.unwrap();
        bare.release(held).await.unwrap();
        let (polylocks, bares) = (told(&ours), told(&theirs));
        assert_eq!(polylocks.len(), 3, "{polylocks:#?}");
        assert_eq!(polylocks, bares, "where it is free");

        let elsewhere = locker(server.address());
        let queued = async || {
            while elsewhere.status("same").await.unwrap().waiting != Some(1) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let taken = elsewhere.lock("same").acquire().await.unwrap();
        let (guard, _) = tokio::join!(polylock.acquire(), async {
            queued().await;
            taken.release().await.unwrap()
        });
        guard.unwrap().release().await.map(drop).unwrap();
        let taken = elsewhere.lock("same").acquire().await.unwrap();
        let (held, _) = tokio::join!(bare.acquire(), async {
            queued().await;
            taken.release().await.unwrap()
        });
        bare.release(held.unwrap()).await.unwrap();
        let (polylocks, bares) = (told(&ours), told(&theirs));
        assert_eq!(polylocks.len(), 6, "{polylocks:#?}");
        assert_eq!(polylocks, bares, "where it is taken");
    }
}
