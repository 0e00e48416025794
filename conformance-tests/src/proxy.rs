//! A TCP proxy between a client and its server that obeys a link.

use std::future::pending;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::link::{Connection, Direction, Link};

/// Stands between a client and any TCP server, and does to their connections what its [`Link`] says.
///
/// It lives on the runtime that started it, and ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens on a free port of this machine, for connections to `server`.
    ///
    /// # Errors
    /// When there is no port to be had.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn start(server: SocketAddr, link: Link) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                // A refused one is accepted and closed: to free the port would be to lose it.
                if let Ok(connection) = link.connect() {
                    tokio::spawn(serve(client, server, link.clone(), connection));
                }
            }
        });
        Ok(Self { address, accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(client: TcpStream, server: SocketAddr, link: Link, connection: Connection) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    // Small messages must not wait for each other; where the option cannot be set, they do.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pump(from_client, to_server, &link, connection, Direction::Request);
    let replies = pump(from_server, to_client, &link, connection, Direction::Reply);
    // When one way has ended, so has the other.
    tokio::select! {
        () = requests => {}
        () = replies => {}
        () = link.broken(connection) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: &Link, connection: Connection, way: Direction) {
    let (sender, mut arrived) = mpsc::unbounded_channel();
    let reading = async move {
        let mut message = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut message).await {
            if sender.send((Instant::now(), message[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    let writing = async {
        while let Some((at, message)) = arrived.recv().await {
            if link.pass_from(at, connection, way).await.is_err() || to.write_all(&message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        // Also when the reading has ended and all that had arrived was delivered.
        () = writing => {}
        () = async { reading.await; pending().await } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
        stream.write_u8(7).await?;
        stream.read_u8().await
    }

    async fn start() -> (Link, FaultProxy, TcpStream) {
        let link = Link::new();
        let proxy = FaultProxy::start(echo().await, link.clone()).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream).await.unwrap(), 7);
        (link, proxy, stream)
    }

    const SILENCE: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_stall_holds_and_then_delivers() {
        let (link, _proxy, mut stream) = start().await;
        link.stall();
        assert!(timeout(SILENCE, ask(&mut stream)).await.is_err());
        link.holding().await;
        link.heal();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_refuses_new_ones() {
        let (link, proxy, mut stream) = start().await;
        link.cut();
        assert!(ask(&mut stream).await.is_err());
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(ask(&mut refused).await.is_err());
        link.heal();
        let mut accepted = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut accepted).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn the_nth_reply_is_swallowed_with_its_connection() {
        let (link, _proxy, mut stream) = start().await;
        link.swallow_reply(2);
        assert_eq!(ask(&mut stream).await.unwrap(), 7);
        assert!(ask(&mut stream).await.is_err());
        link.swallowed().await;
    }

    #[tokio::test]
    async fn an_answer_that_was_on_its_way_is_not_swallowed() {
        let (link, proxy, mut early) = start().await;
        let mut next = TcpStream::connect(proxy.address()).await.unwrap();
        link.hold_replies_after(0);
        early.write_u8(7).await.unwrap();
        link.holding().await;
        link.swallow_reply(1);
        link.hold_replies_after(u64::MAX);
        assert_eq!(early.read_u8().await.unwrap(), 7);
        assert!(ask(&mut next).await.is_err());
        link.swallowed().await;
    }

    #[tokio::test]
    async fn replies_are_held_back_after_the_nth() {
        let (link, _proxy, mut stream) = start().await;
        link.hold_replies_after(1);
        assert_eq!(ask(&mut stream).await.unwrap(), 7);
        assert!(timeout(SILENCE, ask(&mut stream)).await.is_err());
        link.heal();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
    }

    /// As long as each is counted from its own arrival, no message waits for the one before it.
    #[tokio::test(start_paused = true)]
    async fn messages_are_late_side_by_side() {
        let link = Link::new();
        link.delay(SILENCE);
        let (connection, arrived) = (link.connect().unwrap(), Instant::now());
        for _ in 0..20 {
            link.pass_from(arrived, connection, Direction::Request).await.unwrap();
        }
        assert_eq!(arrived.elapsed(), SILENCE);
    }

    #[tokio::test]
    async fn a_delay_counts_both_ways() {
        let (link, _proxy, mut stream) = start().await;
        link.delay(SILENCE);
        let started = std::time::Instant::now();
        assert_eq!(ask(&mut stream).await.unwrap(), 7);
        assert!(started.elapsed() >= 2 * SILENCE);
    }
}
