//! A way to the server that takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Forwards every connection; ends with the test's runtime.
pub(crate) struct SlowLine {
    pub(crate) address: String,
    connections: Arc<AtomicUsize>,
}

/// In which way it is slow.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Each direction takes so long.
    Late(Duration),
    /// After each so many bytes of its answers there is a pause.
    Trickle(usize, Duration),
}

impl SlowLine {
    pub(crate) async fn start(to: &str, pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let (to, count) = (to.to_owned(), connections.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(&to).await.expect("it is there");
                for socket in [&client, &server] {
                    socket.set_nodelay(true).expect("it is open");
                }
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                match pace {
                    Pace::Late(delay) => {
                        forward_late(from_client, to_server, delay);
                        forward_late(from_server, to_client, delay);
                    }
                    Pace::Trickle(bytes, pause) => {
                        forward_late(from_client, to_server, Duration::ZERO);
                        tokio::spawn(trickle(from_server, to_client, bytes, pause));
                    }
                }
            }
        });
        Self { address, connections }
    }

    /// How many there were.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn forward_late(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut late) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if sender
                .send((Instant::now() + delay, buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, bytes)) = late.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

async fn trickle(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bytes: usize, pause: Duration) {
    let mut buffer = vec![0; bytes];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        sleep(pause).await;
    }
}
