//! A line to the server that can be slow, be cut, and keep a secret.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Lives on a runtime of its own, so that a test may leave its runtimes alone.
pub(crate) struct Line {
    pub(crate) address: String,
    state: watch::Sender<State>,
    dials: Arc<Mutex<Vec<Instant>>>,
    answered_lists: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

/// The kinds of requests for the children of a node.
const LISTS: [i32; 2] = [8, 12];

#[derive(Clone, Copy, Default)]
struct State {
    /// How much later requests arrive, and answers.
    delays: (Duration, Duration),
    cut: bool,
    /// How often all connections were ended.
    resets: u32,
    /// Whether the server may not say what it is.
    is_discreet: bool,
    /// Whether connections stay open that the server has ended.
    hides_ends: bool,
}

impl Line {
    pub(crate) fn to(server: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = server.parse().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, dials) = (watch::Sender::new(State::default()), Arc::default());
        let answered_lists = Arc::default();
        let counted = (Arc::clone(&dials), Arc::clone(&answered_lists));
        runtime.spawn(serve(listener, server, state.subscribe(), counted));
        Self {
            address,
            state,
            dials,
            answered_lists,
            runtime: Some(runtime),
        }
    }

    /// Makes every answer come so much later after its request.
    pub(crate) fn set_round_trip(&self, time: Duration) {
        self.state.send_modify(|state| state.delays = (time / 2, time / 2));
    }

    /// Makes requests arrive at once, and answers so much later.
    pub(crate) fn set_answer_delay(&self, time: Duration) {
        self.state.send_modify(|state| state.delays = (Duration::ZERO, time));
    }

    /// Ends all connections; new ones are ended at once.
    pub(crate) fn cut(&self) {
        self.reset();
        self.state.send_modify(|state| state.cut = true);
    }

    /// Ends all connections.
    pub(crate) fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }

    pub(crate) fn heal(&self) {
        self.state.send_modify(|state| state.cut = false);
    }

    /// The server refuses to say what it is.
    pub(crate) fn be_discreet(&self) {
        self.state.send_modify(|state| state.is_discreet = true);
    }

    /// Keeps the connections open that the server ends, as some proxies do for a while.
    pub(crate) fn hide_ends(&self) {
        self.state.send_modify(|state| state.hides_ends = true);
    }

    /// When somebody connected.
    pub(crate) fn dials(&self) -> Vec<Instant> {
        self.dials.lock().unwrap().clone()
    }

    /// To how many requests for the children of a node the server has sent its answer.
    pub(crate) fn answered_lists(&self) -> usize {
        self.answered_lists.load(Ordering::SeqCst)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A test's own runtime must not wait for it.
        self.runtime.take().unwrap().shutdown_background();
    }
}

async fn serve(
    listener: std::net::TcpListener,
    server: SocketAddr,
    state: watch::Receiver<State>,
    (dials, answered_lists): (Arc<Mutex<Vec<Instant>>>, Arc<AtomicUsize>),
) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        dials.lock().unwrap().push(Instant::now());
        if !state.borrow().cut {
            tokio::spawn(carry(client, server, state.clone(), answered_lists.clone()));
        }
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    state: watch::Receiver<State>,
    answered_lists: Arc<AtomicUsize>,
) {
    if state.borrow().is_discreet {
        let mut first = [0; 4];
        if client.peek(&mut first).await.is_ok() && &first == b"srvr" {
            let _ = client
                .write_all(b"srvr is not executed because it is not in the whitelist.\n")
                .await;
            return;
        }
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut reset = state.clone();
    let resets = state.borrow().resets;
    let lists = Mutex::new(HashSet::new());
    let (mut requests, mut answers) = (Packets::default(), Packets::default());
    let ask = |bytes: &[u8]| {
        let asked = requests.heads(bytes).into_iter();
        let of_lists = asked.filter(|(number, kind)| *number > 0 && LISTS.contains(kind));
        lists.lock().unwrap().extend(of_lists.map(|(number, _)| number));
    };
    let answer = |bytes: &[u8]| {
        for (number, _) in answers.heads(bytes) {
            if lists.lock().unwrap().remove(&number) {
                answered_lists.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    tokio::select! {
        () = pump(from_client, to_server, state.clone(), ask, |state| state.delays.0) => {}
        () = async {
            pump(from_server, to_client, state.clone(), answer, |state| state.delays.1).await;
            if state.borrow().hides_ends {
                std::future::pending().await
            }
        } => {}
        _ = reset.wait_for(|state| state.resets > resets) => {}
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    state: watch::Receiver<State>,
    mut look: impl FnMut(&[u8]),
    delay: fn(&State) -> Duration,
) {
    let (sender, mut arrived) = mpsc::unbounded_channel();
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            look(&buffer[..length]);
            let _ = sender.send((Instant::now(), buffer[..length].to_vec()));
        }
    };
    let writing = async {
        while let Some((at, bytes)) = arrived.recv().await {
            let delay = delay(&state.borrow());
            sleep_until(at + delay).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}

/// A stream of packets, of which the last one may not be complete.
#[derive(Default)]
struct Packets(Vec<u8>);

impl Packets {
    /// The first two numbers of each packet that is complete: that of the request, and what kind of request it is.
    fn heads(&mut self, bytes: &[u8]) -> Vec<(i32, i32)> {
        self.0.extend_from_slice(bytes);
        let mut heads = Vec::new();
        while let Some(length) = self.0.first_chunk() {
            let end = 4 + usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            let Some(packet) = self.0.get(4..end) else {
                break;
            };
            let number = |at: usize| Some(i32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
            heads.extend(number(0).zip(number(4)));
            self.0.drain(..end);
        }
        heads
    }
}
