//! A way to the server that can hold bytes back, for as long as the test likes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::eventually;

/// Forwards every connection; ends with the test's runtime.
pub(crate) struct Proxy {
    pub(crate) address: String,
    to: Arc<Mutex<String>>,
    connections: Arc<Mutex<Vec<Connection>>>,
    swallowed_after: Swallowed,
    /// The requests that waited.
    held: Arc<Mutex<Vec<u8>>>,
    /// How many connections there were when something was held back last.
    held_of: AtomicUsize,
}

/// The text in the next request of which the answer, and what follows it on that connection, is held back.
type Swallowed = Arc<Mutex<Option<String>>>;

struct Connection {
    /// Forward the two directions.
    pumps: [AbortHandle; 2],
    /// Whether requests are held back.
    requests: watch::Sender<bool>,
    /// Whether answers are.
    answers: watch::Sender<bool>,
    /// The server has closed its side: it has executed all that it ever got.
    ended: watch::Receiver<bool>,
}

impl Proxy {
    pub(crate) async fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::new(Mutex::new(to.to_owned()));
        let (swallowed_after, held) = (Swallowed::default(), Arc::default());
        tokio::spawn(serve(
            listener,
            to.clone(),
            connections.clone(),
            swallowed_after.clone(),
            Arc::clone(&held),
        ));
        Self {
            address,
            to,
            connections,
            swallowed_after,
            held,
            held_of: AtomicUsize::new(0),
        }
    }

    /// Later connections lead there.
    pub(crate) fn lead_to(&self, to: &str) {
        *self.to.lock().expect("no panics") = to.to_owned();
    }

    /// Requests on today's connections wait; later connections are not concerned.
    pub(crate) fn hold_requests(&self) {
        self.note_held();
        self.each(|connection| {
            connection.requests.send_replace(true);
        });
    }

    /// Whether a request with this text was ever held back.
    pub(crate) fn has_held(&self, text: &str) -> bool {
        let held = self.held.lock().expect("no panics");
        held.windows(text.len()).any(|part| part == text.as_bytes())
    }

    /// Answers on today's connections wait.
    pub(crate) fn hold_answers(&self) {
        self.note_held();
        self.each(|connection| {
            connection.answers.send_replace(true);
        });
    }

    /// Answers wait on the connection over which the next request with this text goes, from that on.
    pub(crate) fn swallow_after(&self, text: &str) {
        *self.swallowed_after.lock().expect("no panics") = Some(text.to_owned());
    }

    /// Lets answers go that were held back.
    pub(crate) fn let_answers_go(&self) {
        self.each(|connection| {
            connection.answers.send_replace(false);
        });
    }

    /// Closes today's connections towards the client alone: what it has sent gets to the server when it is let go.
    pub(crate) fn hang_up(&self) {
        self.each(|connection| connection.pumps[1].abort());
    }

    /// Lets go what was held back.
    pub(crate) fn let_go(&self) {
        self.each(|connection| {
            connection.requests.send_replace(false);
            connection.answers.send_replace(false);
        });
    }

    /// Lets go what was held back, and waits until the server has executed everything that was sent over the connections of
    /// which it was, and has closed them. If nothing was held back: of the first connection.
    pub(crate) async fn drain_the_held(&self) {
        self.let_go();
        let held_of = self.held_of.load(Ordering::SeqCst).max(1);
        for number in 0..held_of {
            let ended = self.connections.lock().expect("no panics")[number].ended.clone();
            eventually("the connection ends", async || *ended.borrow()).await;
        }
    }

    /// Ends today's connections. Later ones are not concerned.
    pub(crate) fn cut(&self) {
        self.each(|connection| connection.pumps.iter().for_each(AbortHandle::abort));
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().expect("no panics").len()
    }

    fn note_held(&self) {
        self.held_of.store(self.connections(), Ordering::SeqCst);
    }

    fn each(&self, what: impl Fn(&Connection)) {
        self.connections.lock().expect("no panics").iter().for_each(what);
    }
}

async fn serve(
    listener: TcpListener,
    to: Arc<Mutex<String>>,
    connections: Arc<Mutex<Vec<Connection>>>,
    swallowed_after: Swallowed,
    held: Arc<Mutex<Vec<u8>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let to = to.lock().expect("no panics").clone();
        let Ok(server) = TcpStream::connect(to).await else {
            continue;
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (requests, hold_requests) = watch::channel(false);
        let (answers, hold_answers) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let see = {
            let (swallowed_after, answers) = (swallowed_after.clone(), answers.clone());
            move |request: &[u8]| {
                let mut text = swallowed_after.lock().expect("no panics");
                let has = |text: &mut String| request.windows(text.len()).any(|part| part == text.as_bytes());
                if text.take_if(has).is_some() {
                    answers.send_replace(true);
                }
            }
        };
        let note = {
            let held = held.clone();
            move |request: &[u8]| held.lock().expect("no panics").extend(request)
        };
        let there = tokio::spawn(pump(from_client, to_server, hold_requests, note, see));
        let back = tokio::spawn(async move {
            pump(from_server, to_client, hold_answers, |_| {}, |_| {}).await;
            end.send_replace(true);
        });
        connections.lock().expect("no panics").push(Connection {
            pumps: [there.abort_handle(), back.abort_handle()],
            requests,
            answers,
            ended,
        });
    }
}

/// Forwards until the sender closes; goes on reading when the receiver has gone.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_held: watch::Receiver<bool>,
    note_held: impl Fn(&[u8]),
    see: impl Fn(&[u8]),
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        if *is_held.borrow() {
            note_held(&buffer[..length]);
        }
        if is_held.wait_for(|held| !held).await.is_err() {
            return;
        }
        if length == 0 {
            let _ = to.shutdown().await;
            return;
        }
        see(&buffer[..length]);
        // The receiver may have gone.
        let _ = to.write_all(&buffer[..length]).await;
    }
}
