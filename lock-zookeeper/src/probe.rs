//! What answers at a server's address. The driver only times out on something that is no ZooKeeper.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, ErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A command that ZooKeeper answers even when it may not execute it; most others take it for rubbish.
const COMMAND: &[u8] = b"srvr";
/// How the answer begins, and its end, at the latest.
const VERSION: &[u8] = b"Zookeeper version";
const LONGEST_ANSWER: usize = 2048;
/// For those who read lines.
const END_OF_LINE: &[u8] = b"\r\n\r\n";
/// For the connection, and for the answer to either text, where nothing is known of the line.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the servers' addresses say of why there may be no session: the worst of it.
pub(crate) async fn diagnose(servers: &[String]) -> Option<Error> {
    let answers = join_all(servers.iter().map(|server| probe(server, PATIENCE))).await;
    let mut found: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    let worst = found.iter().position(|error| error.kind() != ErrorKind::Unavailable);
    match worst {
        Some(worst) => Some(found.swap_remove(worst)),
        None => found.pop(),
    }
}

/// Whether the only server says, within twice `patience`, that it belongs to no ensemble. One that does not say it may.
pub(crate) async fn is_standalone(servers: &[String], patience: Duration) -> bool {
    match servers {
        [server] => matches!(probe(server, patience).await, Ok(Mode::Standalone)),
        _ => false,
    }
}

/// What a server says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Standalone,
    /// A member of an ensemble, or one that may not say.
    Other,
}

/// Asks the server at `address` what it is. The error says why there may be no session with it.
async fn probe(address: &str, patience: Duration) -> Result<Mode, Error> {
    let stream = match timeout(patience, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let message = format!("cannot connect to {address}");
            return Err(Error::new(ErrorKind::Unavailable, message).with_source(error));
        }
        Err(_) => {
            let message = format!("{address} does not accept connections");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    };
    match converse(&stream, patience).await {
        Ok(answer) if answer.is_empty() => Err(silent(address)),
        Ok(answer) => judge(address, &answer),
        Err(error) => {
            let message = format!("{address} ended the connection");
            Err(Error::new(ErrorKind::Unavailable, message).with_source(error))
        }
    }
}

/// The answer of a ZooKeeper, or the first bytes of another one; empty when there is none.
async fn converse(stream: &TcpStream, patience: Duration) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    for text in [COMMAND, END_OF_LINE] {
        stream.writable().await?;
        // A fresh socket takes these few bytes; if not, there is no answer.
        stream.try_write(text)?;
        if let Ok(length) = timeout(patience, read(stream, &mut answer)).await {
            length?;
            break;
        }
    }
    // It ends the connection after its answer.
    while answer.starts_with(VERSION) && answer.len() < LONGEST_ANSWER {
        match timeout(patience, read(stream, &mut answer)).await {
            Ok(Ok(1..)) => {}
            _ => break,
        }
    }
    Ok(answer)
}

/// Reads what there is, at least a byte unless the connection has ended.
async fn read(stream: &TcpStream, answer: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 256];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(length) => {
                answer.extend_from_slice(&buffer[..length]);
                return Ok(length);
            }
        }
    }
}

fn judge(address: &str, answer: &[u8]) -> Result<Mode, Error> {
    let text = String::from_utf8_lossy(answer);
    if text.contains("not currently serving") {
        let message = format!("ZooKeeper at {address} is not serving: it has no quorum");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if answer.starts_with(VERSION) {
        let is_standalone = text.lines().any(|line| line == "Mode: standalone");
        return Ok(if is_standalone { Mode::Standalone } else { Mode::Other });
    }
    if text.contains("not in the whitelist") {
        return Ok(Mode::Other);
    }
    let message = format!("what answers at {address} is no ZooKeeper server: check host and port");
    Err(Error::new(ErrorKind::Misconfigured, message))
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
    async fn ask(greeting: &'static [u8], answer: fn(&[u8]) -> &'static [u8]) -> Result<Mode, ErrorKind> {
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
        probe(&address, PATIENCE).await.map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn tells_what_a_zookeeper_is() {
        // In two pieces.
        let alone = |seen: &[u8]| -> &'static [u8] {
            match seen {
                COMMAND => b"\nMode: standalone\nNode count: 5\n",
                _ => b"",
            }
        };
        assert_eq!(ask(b"Zookeeper version: 3.8.0", alone).await, Ok(Mode::Standalone));
        let follower = |_: &[u8]| -> &'static [u8] { b"Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n" };
        assert_eq!(ask(b"", follower).await, Ok(Mode::Other));
        let cut_off = |_: &[u8]| -> &'static [u8] { b"Zookeeper version: 3.8.0\nLatency: 0\n" };
        assert_eq!(ask(b"", cut_off).await, Ok(Mode::Other));
        let whitelist = |_: &[u8]| -> &'static [u8] { b"srvr is not executed because it is not in the whitelist.\n" };
        assert_eq!(ask(b"", whitelist).await, Ok(Mode::Other));
    }

    #[tokio::test]
    async fn tells_servers_apart() {
        let starting = |_: &[u8]| -> &'static [u8] { b"This ZooKeeper instance is not currently serving requests\n" };
        assert_eq!(ask(b"", starting).await, Err(ErrorKind::Unavailable));
        let redis = |seen: &[u8]| -> &'static [u8] {
            if seen.ends_with(b"\n") {
                b"-ERR unknown command 'srvr'\r\n"
            } else {
                b""
            }
        };
        assert_eq!(ask(b"", redis).await, Err(ErrorKind::Misconfigured));
        let mysql = |_: &[u8]| -> &'static [u8] { b"" };
        assert_eq!(ask(b"J\0\0\0\n8.0.36\0", mysql).await, Err(ErrorKind::Misconfigured));
        assert_eq!(ask(b"", mysql).await, Err(ErrorKind::Unavailable));
    }

    #[tokio::test]
    async fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = probe(&address, PATIENCE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>()));
    }
}
