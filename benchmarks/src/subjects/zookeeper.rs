//! What ZooKeeper is compared with.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use benchmarks_load::{Client, Lock, Result, Subject};
use tokio::time::sleep;
use zookeeper_client::{Acls, CreateMode, CreateOptions, Error};

use super::POLL;

use self::bare::BareLock;

mod bare;
#[cfg(test)]
mod relay;

/// `bare`.
pub(crate) struct Bare(String);

pub(crate) struct BareClient(zookeeper_client::Client);

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

/// `plain`, and `poll-10ms` where somebody competes: an ephemeral node of a fixed name. No queue.
pub(crate) struct Plain(String);

impl Plain {
    pub(crate) fn new(address: &str) -> Self {
        Self(address.into())
    }
}

pub(crate) struct PlainClient(zookeeper_client::Client);

pub(crate) struct PlainLock {
    client: zookeeper_client::Client,
    path: String,
}

impl Subject for Plain {
    type Client = PlainClient;

    async fn connect(&self) -> Result<PlainClient> {
        let client = connect(&self.0).await?;
        make(&client, "/plain").await?;
        Ok(PlainClient(client))
    }
}

impl Client for PlainClient {
    type Lock = PlainLock;

    async fn lock(&self, name: &str) -> Result<PlainLock> {
        let path = format!("/plain/{}", name.replace('/', "-"));
        let client = self.0.clone();
        Ok(PlainLock { client, path })
    }
}

impl Lock for PlainLock {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            match self.client.create(&self.path, b"", &options).await {
                Err(Error::NodeExists) => sleep(POLL).await,
                created => return Ok(created.map(drop)?),
            }
        }
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        Ok(self.client.delete(&self.path, None).await?)
    }

    fn release_in_background(&mut self, (): ()) -> Result<()> {
        // Sent by the call; the future only waits.
        drop(self.client.delete(&self.path, None));
        Ok(())
    }
}

/// A session of polylock's length.
async fn connect(address: &str) -> Result<zookeeper_client::Client> {
    let mut connector = zookeeper_client::Client::connector();
    connector = connector.with_session_timeout(Duration::from_secs(10));
    Ok(connector.connect(address).await?)
}

async fn make(client: &zookeeper_client::Client, path: &str) -> Result<()> {
    let options: CreateOptions<'_> = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match client.create(path, b"", &options).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn version(address: &str) -> Result<String> {
    let says = says(address)?;
    let version = says.lines().find_map(|line| line.strip_prefix("zk_version"));
    let version = version.and_then(|version| version.split('-').next());
    Ok(format!(
        "ZooKeeper {}",
        version.unwrap_or("of an unknown version").trim()
    ))
}

/// How many requests it has got.
pub(crate) fn packets(address: &str) -> Result<u64> {
    let says = says(address)?;
    let packets = says.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
    Ok(packets.ok_or("ZooKeeper does not count its packets")?.trim().parse()?)
}

fn says(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"mntr")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
