//! What a client sends to a ZooKeeper.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

/// Stands between clients and a server.
pub(super) struct Relay {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// By the protocol's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: i32,
    pub(super) path: String,
    /// All else.
    pub(super) rest: Vec<u8>,
}

impl Relay {
    pub(super) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::default();
        let (server, noted) = (server.to_owned(), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let ((from_client, mut to_client), (mut from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let noted = Arc::clone(&noted);
                tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
                tokio::spawn(note(from_client, to_server, noted));
            }
        });
        Self { address, requests }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// All since this was asked last.
    pub(super) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// The question what kind of server it is, which has a connection of its own and no length.
const STATUS: u32 = u32::from_be_bytes(*b"srvr");

/// A length, and so many bytes: first of the session, then of one request after the other.
async fn note(
    mut from: OwnedReadHalf,
    mut to: impl AsyncWriteExt + Unpin,
    noted: Arc<Mutex<Vec<Request>>>,
) -> std::io::Result<()> {
    let mut is_session = true;
    loop {
        let length = from.read_u32().await?;
        if is_session && length == STATUS {
            return to.write_u32(length).await;
        }
        let mut frame = vec![0; length as usize];
        from.read_exact(&mut frame).await?;
        if !std::mem::take(&mut is_session) {
            noted.lock().unwrap().push(request(&frame));
        }
        to.write_all(&[&length.to_be_bytes(), &*frame].concat()).await?;
    }
}

/// Its number, its kind, and, of most kinds, a path.
fn request(frame: &[u8]) -> Request {
    let number = |at: usize| {
        frame
            .get(at..at + 4)
            .map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
    };
    let path_ends = number(8).map_or(8, |length| 12 + usize::try_from(length).unwrap_or(0));
    let path = frame.get(12..path_ends).unwrap_or_default();
    Request {
        kind: number(4).expect("a kind"),
        path: String::from_utf8_lossy(path).into(),
        rest: frame.get(path_ends..).unwrap_or_default().to_vec(),
    }
}
