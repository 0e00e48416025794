//! What answers at a server's address. The driver only times out on something that is no ZooKeeper.

use std::io;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A command that ZooKeeper answers even when it may not execute it; most others take it for rubbish.
const COMMAND: &[u8] = b"srvr";
/// For those who read lines.
const END_OF_LINE: &[u8] = b"\r\n\r\n";
/// For the connection, and for the answer to either text.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why there may be no session with the server at `address`; `None` when the probe found nothing wrong.
pub(crate) async fn probe(address: &str) -> Option<Error> {
    let stream = match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let message = format!("cannot connect to {address}");
            return Some(Error::new(ErrorKind::Unavailable, message).with_source(error));
        }
        Err(_) => {
            let message = format!("{address} does not accept connections");
            return Some(Error::new(ErrorKind::Unavailable, message));
        }
    };
    match converse(&stream).await {
        Ok(answer) if answer.is_empty() => Some(silent(address)),
        Ok(answer) => judge(address, &answer),
        Err(error) => {
            let message = format!("{address} ended the connection");
            Some(Error::new(ErrorKind::Unavailable, message).with_source(error))
        }
    }
}

/// The first bytes of the answer; empty when there is none.
async fn converse(stream: &TcpStream) -> io::Result<Vec<u8>> {
    for text in [COMMAND, END_OF_LINE] {
        stream.writable().await?;
        // A fresh socket takes these few bytes; if not, there is no answer.
        stream.try_write(text)?;
        let mut answer = vec![0; 256];
        let read = async {
            loop {
                stream.readable().await?;
                match stream.try_read(&mut answer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
            }
        };
        if let Ok(length) = timeout(PATIENCE, read).await {
            answer.truncate(length?);
            return Ok(answer);
        }
    }
    Ok(Vec::new())
}

fn judge(address: &str, answer: &[u8]) -> Option<Error> {
    let text = String::from_utf8_lossy(answer);
    if text.contains("not currently serving") {
        let message = format!("ZooKeeper at {address} is not serving: it has no quorum");
        return Some(Error::new(ErrorKind::Unavailable, message));
    }
    if text.starts_with("Zookeeper version") || text.contains("not in the whitelist") {
        return None;
    }
    let message = format!("what answers at {address} is no ZooKeeper server: check host and port");
    Some(Error::new(ErrorKind::Misconfigured, message))
}

fn silent(address: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{address} accepts connections but does not answer"),
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A server that greets, reads, and answers what it has read by `answer`.
    async fn ask(greeting: &'static [u8], answer: fn(&[u8]) -> &'static [u8]) -> Option<Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(greeting).unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..length]);
                let _ = stream.write_all(answer(&seen));
            }
        });
        probe(&address).await
    }

    fn kind(error: Option<Error>) -> Option<ErrorKind> {
        error.map(|error| error.kind())
    }

    #[tokio::test]
    async fn tells_servers_apart() {
        let srvr = |seen: &[u8]| -> &'static [u8] {
            if seen == COMMAND {
                b"Zookeeper version: 3.8.0, built on 2022\n"
            } else {
                b""
            }
        };
        assert_eq!(kind(ask(b"", srvr).await), None);
        let whitelist = |_: &[u8]| -> &'static [u8] { b"srvr is not executed because it is not in the whitelist.\n" };
        assert_eq!(kind(ask(b"", whitelist).await), None);
        let starting = |_: &[u8]| -> &'static [u8] { b"This ZooKeeper instance is not currently serving requests\n" };
        assert_eq!(kind(ask(b"", starting).await), Some(ErrorKind::Unavailable));
        let redis = |seen: &[u8]| -> &'static [u8] {
            if seen.ends_with(b"\n") {
                b"-ERR unknown command 'srvr'\r\n"
            } else {
                b""
            }
        };
        assert_eq!(kind(ask(b"", redis).await), Some(ErrorKind::Misconfigured));
        let mysql = |_: &[u8]| -> &'static [u8] { b"" };
        assert_eq!(
            kind(ask(b"J\0\0\0\n8.0.36\0", mysql).await),
            Some(ErrorKind::Misconfigured)
        );
        assert_eq!(kind(ask(b"", mysql).await), Some(ErrorKind::Unavailable));
    }

    #[tokio::test]
    async fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = probe(&address).await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>()));
    }
}
