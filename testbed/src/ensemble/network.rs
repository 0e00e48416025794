//! The network between the servers of an ensemble, which a test can cut.
//!
//! Each server reaches each other one through proxies of its own: one for the quorum's port and one for the election's.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

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
            .enable_all()
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
    let mut server = connect(&way).await?;
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

/// A follower may be quicker than its leader, and expects to be refused then: an accepted connection that ends would make
/// it leave a leader that waits for it.
async fn connect(way: &Way) -> io::Result<TcpStream> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, way.target)).await {
            Err(_) if way.back.is_none() && start.elapsed() < PATIENCE => sleep(Duration::from_millis(10)).await,
            connected => return connected,
        }
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::port::Port;

    const SILENCE: Duration = Duration::from_millis(100);
    const QUORUM: usize = 0;
    const ELECTION: usize = 1;

    /// Two servers, of which the second one listens, and their network.
    fn start() -> (Network, [[tokio::net::TcpListener; 2]; 2]) {
        let listeners = [(); 2].map(|()| [(); 2].map(|()| listen().unwrap()));
        let ports = listeners.each_ref().map(|server| server.each_ref().map(port));
        let network = Network::start(&ports).unwrap();
        let listeners =
            listeners.map(|server| server.map(|listener| tokio::net::TcpListener::from_std(listener).unwrap()));
        (network, listeners)
    }

    fn port(listener: &TcpListener) -> u16 {
        listener.local_addr().unwrap().port()
    }

    async fn dial(network: &Network, which: usize) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, network.ports(0, 1)[which]))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn nothing_passes_a_cut_until_it_heals() {
        let (network, [_, [quorum, _]]) = start();
        let mut one = dial(&network, QUORUM).await;
        let (mut other, _) = quorum.accept().await.unwrap();
        one.write_u8(1).await.unwrap();
        assert_eq!(other.read_u8().await.unwrap(), 1);

        network.cut(1, 0);
        one.write_u8(2).await.unwrap();
        other.write_u8(3).await.unwrap();
        assert!(timeout(SILENCE, other.read_u8()).await.is_err());
        assert!(timeout(SILENCE, one.read_u8()).await.is_err());
        let mut late = dial(&network, QUORUM).await;
        late.write_u8(4).await.unwrap();
        assert!(timeout(SILENCE, quorum.accept()).await.is_err());
        drop(one);
        assert!(
            timeout(SILENCE, other.read_u8()).await.is_err(),
            "it learned of the end"
        );

        network.heal();
        assert_eq!(other.read_u8().await.unwrap(), 2);
        assert!(other.read_u8().await.is_err());
        let (mut accepted, _) = quorum.accept().await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), 4);
    }

    #[tokio::test]
    async fn other_pairs_are_not_cut() {
        let (network, [_, [quorum, _]]) = start();
        network.cut(0, 2);
        let mut one = dial(&network, QUORUM).await;
        let (mut other, _) = quorum.accept().await.unwrap();
        one.write_u8(1).await.unwrap();
        assert_eq!(other.read_u8().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn an_election_is_told_an_address_within_the_network() {
        let (network, [_, [_, election]]) = start();
        let mut one = dial(&network, ELECTION).await;
        let own = b"127.0.0.1:1";
        one.write_i64(-65536).await.unwrap();
        one.write_i64(7).await.unwrap();
        one.write_u32(own.len() as u32).await.unwrap();
        one.write_all(own).await.unwrap();
        one.write_u8(9).await.unwrap();

        let (mut other, _) = election.accept().await.unwrap();
        assert_eq!(
            (other.read_i64().await.unwrap(), other.read_i64().await.unwrap()),
            (-65536, 7)
        );
        let mut address = vec![0; other.read_u32().await.unwrap() as usize];
        other.read_exact(&mut address).await.unwrap();
        let expected = format!("127.0.0.1:{}", network.ports(1, 0)[ELECTION]);
        assert_eq!(String::from_utf8(address).unwrap(), expected);
        assert_eq!(other.read_u8().await.unwrap(), 9);
    }

    #[tokio::test]
    async fn a_follower_may_be_quicker_than_its_leader() {
        // Nobody else may listen there meanwhile.
        let ports = [(); 2].map(|()| [(); 2].map(|()| Port::reserve().unwrap()));
        let network = Network::start(&ports.each_ref().map(|server| server.each_ref().map(Port::number))).unwrap();
        let mut one = dial(&network, QUORUM).await;
        one.write_u8(1).await.unwrap();
        assert!(timeout(SILENCE, one.read_u8()).await.is_err(), "it waits");
        let quorum = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, ports[1][QUORUM].number()));
        let quorum = quorum.await.unwrap();
        let (mut other, _) = quorum.accept().await.unwrap();
        assert_eq!(other.read_u8().await.unwrap(), 1);
    }
}
