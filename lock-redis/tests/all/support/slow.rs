//! A slow line to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    is_trickling: Arc<AtomicBool>,
}

/// In which way it is slow.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Each direction takes so long.
    Late(Duration),
    /// Once it is told to [trickle](SlowLine::trickle), there is a pause after each so many bytes of its replies.
    Trickle(usize, Duration),
}

impl SlowLine {
    pub(crate) async fn start(to: &str, pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let is_trickling = Arc::new(AtomicBool::new(false));
        let (to, count, slow) = (to.to_owned(), connections.clone(), is_trickling.clone());
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
                        tokio::spawn(trickle(from_server, to_client, bytes, pause, slow.clone()));
                    }
                }
            }
        });
        Self {
            address,
            connections,
            is_trickling,
        }
    }

    /// From now on replies come slowly.
    pub(crate) fn trickle(&self) {
        self.is_trickling.store(true, Ordering::SeqCst);
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

async fn trickle(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    bytes: usize,
    pause: Duration,
    is_trickling: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; bytes];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        if is_trickling.load(Ordering::SeqCst) {
            sleep(pause).await;
        }
    }
}
