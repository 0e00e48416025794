//! The network between the servers of an ensemble, which a test can cut.
//!
//! Each server reaches each other one through proxies of its own: one for the quorum's port and one for the election's.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Servers that are cut off from each other, the smaller index first.
type Cuts = BTreeSet<(usize, usize)>;

/// Runs on a runtime of its own, as an ensemble may outlive that of the test that started it.
#[derive(Debug)]
pub(super) struct Network {
    cuts: watch::Sender<Cuts>,
    /// The ports of the proxies from one server to another: the quorum's and the election's.
    ports: HashMap<(usize, usize), [u16; 2]>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// One way from a server to another.
#[derive(Debug, Clone)]
struct Way {
    /// The port on which the other server listens.
    target: u16,
    pair: (usize, usize),
    cuts: watch::Receiver<Cuts>,
    /// For an election: where the other server reaches the one that connects.
    back: Option<u16>,
}

impl Network {
    /// Between servers that listen on these ports: each one's for the quorum and for elections.
    pub(super) fn start(servers: &[[u16; 2]]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ensemble-network")
            .enable_io()
            .build()?;
        let mut listeners = HashMap::new();
        let mut ports = HashMap::new();
        for from in 0..servers.len() {
            for to in (0..servers.len()).filter(|to| *to != from) {
                let [quorum, election] = [listen()?, listen()?];
                let numbers = [quorum.local_addr()?.port(), election.local_addr()?.port()];
                ports.insert((from, to), numbers);
                listeners.insert((from, to), [quorum, election]);
            }
        }
        let cuts = watch::Sender::new(Cuts::new());
        for ((from, to), [quorum, election]) in listeners {
            let [to_quorum, to_election] = servers[to];
            let way = |target, back| Way {
                target,
                pair: pair(from, to),
                cuts: cuts.subscribe(),
                back,
            };
            runtime.spawn(serve(quorum, way(to_quorum, None)));
            runtime.spawn(serve(election, way(to_election, Some(ports[&(to, from)][1]))));
        }
        Ok(Self {
            cuts,
            ports,
            runtime: Some(runtime),
        })
    }

    /// Where `from` reaches `to`: for the quorum and for elections.
    pub(super) fn ports(&self, from: usize, to: usize) -> [u16; 2] {
        self.ports[&(from, to)]
    }

    pub(super) fn cut(&self, one: usize, other: usize) {
        self.cuts.send_modify(|cuts| _ = cuts.insert(pair(one, other)));
    }

    pub(super) fn heal(&self) {
        self.cuts.send_modify(Cuts::clear);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It may be dropped where nothing may block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Way {
    /// Waits while the two are cut off from each other.
    async fn open(&mut self) -> io::Result<()> {
        let open = self.cuts.wait_for(|cuts| !cuts.contains(&self.pair)).await;
        open.map(drop).map_err(io::Error::other)
    }
}

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(listener: TcpListener, way: Way) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        // One that has gone again is no reason to end.
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, way.clone()));
        }
    }
}

/// Carries one connection, until it ends on either side and that passes too.
async fn carry(mut client: TcpStream, mut way: Way) -> io::Result<()> {
    way.open().await?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, way.target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    if let Some(back) = way.back {
        introduce(&mut client, &mut server, &mut way, back).await?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        ended = pump(from_client, to_server, way.clone()) => ended,
        ended = pump(from_server, to_client, way) => ended,
    }
}

async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, mut way: Way) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        // An end passes no more than data does.
        way.open().await?;
        match read? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length]).await?,
        }
    }
}

/// Passes on the first message of an election's connection: a protocol version, the number of the server that connects,
/// and its own address, to which the other one may connect in turn. That would lead past this network, so the address is
/// replaced.
async fn introduce(client: &mut TcpStream, server: &mut TcpStream, way: &mut Way, back: u16) -> io::Result<()> {
    /// No address is longer.
    const LONGEST: usize = 4096;
    let (version, number) = (client.read_i64().await?, client.read_i64().await?);
    let length = client.read_u32().await? as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    client.read_exact(&mut vec![0; length]).await?;
    way.open().await?;
    let address = format!("127.0.0.1:{back}").into_bytes();
    let mut message = Vec::new();
    message.extend(version.to_be_bytes());
    message.extend(number.to_be_bytes());
    message.extend((address.len() as u32).to_be_bytes());
    message.extend(address);
    server.write_all(&message).await
}
