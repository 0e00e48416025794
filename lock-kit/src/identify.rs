//! The error that names the server which answers where another kind was expected.
//!
//! A backend that cannot talk with its server reads the [first answer](first_answer) at the address, and makes its error with
//! [`wrong_server`].
//!
//! # Examples
//! ```
//! # use lock_kit::identify::wrong_server;
//! let error = wrong_server("Redis", &"cache:6379", b"HTTP/1.1 400 Bad Request");
//! let message = "expected Redis at cache:6379, but an HTTP server answers there: check host and port";
//! assert_eq!(error.to_string(), message);
//! ```

use std::fmt::Display;
use std::io;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A command of ZooKeeper's, which servers that read lines answer as well.
const COMMAND: &[u8] = b"srvr";
/// Sent later, since ZooKeeper would reset a connection on which it has not read everything.
const END_OF_LINE: &[u8] = b"\r\n\r\n";
/// The beginnings of ZooKeeper's answers: of a server that serves, of one without a quorum, and of one that forbids the
/// command.
const ZOOKEEPER: [&[u8]; 3] = [b"Zookeeper version", b"This ZooKeeper", b"srvr is not executed"];
/// The question of a PostgreSQL client whether the server takes TLS: a length of eight bytes, and the number of this message.
const ASK_POSTGRES: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The beginning of a handshake of TLS 1.2, which any server with TLS answers, if only with an alert: a record with a hello of
/// 45 bytes, the version, 32 bytes of randomness, no session, three cipher suites, no compression.
const CLIENT_HELLO: [u8; 54] = [
    22, 3, 1, 0, 49, 1, 0, 0, 45, 3, 3, // 32 bytes that need not be random, as no secret comes of them
    80, 79, 76, 89, 76, 79, 67, 75, 80, 79, 76, 89, 76, 79, 67, 75, 80, 79, 76, 89, 76, 79, 67, 75, 80, 79, 76, 89, 76,
    79, 67, 75, 0, 0, 6, 0x13, 0x01, 0xc0, 0x2f, 0x00, 0x2f, 1, 0,
];
/// The most that is read of an answer.
const LONGEST_ANSWER: usize = 2048;

/// Reads what the server at this address sends first, over a connection of its own. That is its greeting, if one comes
/// within `greeting`; or its answer to ZooKeeper's command `srvr`, or to that as a line of text, if one comes within `limit`. If the
/// server hangs up without a word, as PostgreSQL does, it is asked PostgreSQL's question for TLS over one more connection: that question and
/// the answer, if [PostgreSQL answers](is_postgres). Empty if the server stays silent or hangs up.
///
/// # Errors
/// Those of the connection; [`io::ErrorKind::TimedOut`] if it could not be made within `limit`.
///
/// # Cancel safety
/// May be dropped at any point.
pub async fn first_answer(host: &str, port: u16, greeting: Duration, limit: Duration) -> io::Result<Vec<u8>> {
    let connecting = timeout(limit, TcpStream::connect((host, port)));
    let stream = connecting.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let mut answer = Vec::new();
    for (text, limit) in [(&[][..], greeting), (COMMAND, limit), (END_OF_LINE, limit)] {
        write(&stream, text).await?;
        if let Ok(length) = timeout(limit, read(&stream, &mut answer)).await {
            if length? == 0 {
                let asked = timeout(limit, answer_to(host, port, &ASK_POSTGRES)).await;
                let letter = asked.ok().and_then(Result::ok).unwrap_or_default();
                return Ok(match letter.as_slice() {
                    b"S" | b"N" => [&ASK_POSTGRES, letter.as_slice()].concat(),
                    _ => answer,
                });
            }
            break;
        }
    }
    // ZooKeeper's answer may come in pieces. It ends the connection after it, which a proxy may report late or never.
    while may_be_zookeeper(&answer) && !has_mode(&answer) && answer.len() < LONGEST_ANSWER {
        match timeout(limit, read(&stream, &mut answer)).await {
            Ok(Ok(1..)) => {}
            _ => break,
        }
    }
    Ok(answer)
}

/// What the server sends first when it was sent this, over a connection of its own.
async fn answer_to(host: &str, port: u16, text: &[u8]) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect((host, port)).await?;
    write(&stream, text).await?;
    let mut answer = Vec::new();
    read(&stream, &mut answer).await?;
    Ok(answer)
}

/// True if `answer` may be that of a ZooKeeper: one begins with the other.
fn may_be_zookeeper(answer: &[u8]) -> bool {
    let fits = |beginning: &[u8]| answer.starts_with(beginning) || beginning.starts_with(answer);
    !answer.is_empty() && ZOOKEEPER.into_iter().any(fits)
}

/// True if a ZooKeeper has reported its mode: nothing after that line matters.
fn has_mode(answer: &[u8]) -> bool {
    let mut lines = answer.split_inclusive(|byte| *byte == b'\n');
    lines.any(|line| line.starts_with(b"Mode: ") && line.ends_with(b"\n"))
}

/// The error of a backend that expected one kind of server and got this [first answer](first_answer) of another.
pub fn wrong_server(expected: &str, address: &dyn Display, answer: &[u8]) -> Error {
    let message = match recognize(answer) {
        Some(found) => format!("expected {expected} at {address}, but {found} answers there: check host and port"),
        None => format!(
            "expected {expected} at {address}, but something else answers there: check host and port, and whether it wants TLS"
        ),
    };
    Error::new(ErrorKind::Misconfigured, message)
}

/// Returns whether these bytes begin like those of a server with TLS: a message of a handshake, or an alert.
pub fn is_tls(answer: &[u8]) -> bool {
    matches!(answer, [21 | 22, 3, 0..=4, ..])
}

/// Returns whether this is what PostgreSQL was asked, and its answer: yes or no, in one letter.
pub fn is_postgres(answer: &[u8]) -> bool {
    matches!(answer.strip_prefix(&ASK_POSTGRES), Some([b'S' | b'N', ..]))
}

/// Returns whether the server at this address answers the beginning of a TLS handshake like one with TLS, within
/// `limit`. Makes a connection of its own.
///
/// # Cancel safety
/// May be dropped at any point.
pub async fn speaks_tls(host: &str, port: u16, limit: Duration) -> bool {
    let answered = timeout(limit, answer_to(host, port, &CLIENT_HELLO)).await;
    matches!(answered, Ok(Ok(answer)) if is_tls(&answer))
}

/// The error of a backend without TLS at an address where a server with TLS listens.
pub fn wants_tls(expected: &str, address: &dyn Display) -> Error {
    let message = format!(
        "expected {expected} without TLS at {address}, but what answers there wants TLS: add tls=true to the URL, or use another port"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

/// The error of a backend with TLS at an address where this server listens without.
pub fn without_tls(expected: &str, address: &dyn Display) -> Error {
    let message = format!(
        "expected {expected} with TLS at {address}, but it answers there without TLS: use its TLS port, or a URL without TLS"
    );
    Error::new(ErrorKind::Misconfigured, message)
}

fn recognize(answer: &[u8]) -> Option<&'static str> {
    let begins = |beginnings: &[&[u8]]| beginnings.iter().any(|beginning| answer.starts_with(beginning));
    if is_tls(answer) {
        return Some("a server that wants TLS");
    }
    if is_postgres(answer) {
        return Some("PostgreSQL");
    }
    if begins(&ZOOKEEPER) {
        return Some("ZooKeeper");
    }
    if begins(&[b"-ERR", b"-NOAUTH", b"-DENIED Redis", b"-LOADING", b"+PONG"]) {
        return Some("Redis");
    }
    // To a line that is no request, some answer with a page alone.
    if begins(&[b"HTTP/", b"<"]) {
        return Some("an HTTP server");
    }
    // The first packet of a connection: its length, its number 0, and the protocol's version or an error.
    matches!(answer, [_, _, 0, 0, 9 | 10 | 0xff, ..]).then_some("MySQL or MariaDB")
}

async fn write(stream: &TcpStream, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        stream.writable().await?;
        match stream.try_write(text) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(length) => text = &text[length..],
        }
    }
    Ok(())
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

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_piece_of_an_answer_of_zookeeper_is_not_the_last() {
        for piece in [
            &b"Z"[..],
            b"This Zoo",
            b"This ZooKeeper instance",
            b"Zookeeper version: 3.8.0",
        ] {
            assert!(may_be_zookeeper(piece));
        }
        for other in [&b""[..], b"-ERR", b"HTTP/1.1", b"Zoo is closed"] {
            assert!(!may_be_zookeeper(other));
        }
    }

    /// A proxy may keep the connection open.
    #[tokio::test]
    async fn an_answer_of_zookeeper_ends_with_its_mode() {
        assert!(!has_mode(b"Zookeeper version: 3.8.0\nMode: stand"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let serving = async {
            let (stream, _) = listener.accept().await.expect("a client");
            let answer = b"Zookeeper version: 3.8.0\nMode: standalone\nNode count: 5\n";
            write(&stream, answer).await.expect("it reads");
            // Nobody ends the connection.
            std::future::pending::<()>().await;
        };
        let limit = Duration::from_secs(600);
        let answer = tokio::select! {
            answer = timeout(limit / 10, first_answer("127.0.0.1", port, Duration::ZERO, limit)) => answer,
            () = serving => unreachable!("it stays"),
        };
        let answer = answer.expect("it waits for more").expect("it was answered");
        assert!(has_mode(&answer));
    }

    #[test]
    fn servers_are_recognized_by_what_they_send_first() {
        for (answer, found) in [
            (&b"Zookeeper version: 3.8.0"[..], "ZooKeeper answers"),
            (
                b"This ZooKeeper instance is not currently serving requests\n",
                "ZooKeeper answers",
            ),
            (b"-ERR unknown command 'srvr'\r\n", "Redis answers"),
            (b"-NOAUTH Authentication required.\r\n", "Redis answers"),
            (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP server answers"),
            (b"<html>\r\n<head><title>400 Bad Request", "an HTTP server answers"),
            (b"\x5b\x00\x00\x00\x0a5.5.5-10.11", "MySQL or MariaDB answers"),
            (
                b"\x45\x00\x00\x00\xff\x10\x04Too many connections",
                "MySQL or MariaDB answers",
            ),
            (b"\x15\x03\x01\x00\x02\x02\x46", "a server that wants TLS answers"),
            (b"\0\0\0\x08\x04\xd2\x16\x2fS", "PostgreSQL answers"),
            (b"\0\0\0\x08\x04\xd2\x16\x2fN", "PostgreSQL answers"),
            // The beginning of a greeting of MySQL's may be one of them.
            (b"N", "something else answers"),
            (b"SSH-2.0-OpenSSH", "something else answers"),
            (b"", "something else answers"),
        ] {
            let error = wrong_server("etcd", &"cache:2379", answer);
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            let message = error.to_string();
            assert!(
                message.contains("etcd at cache:2379") && message.contains(found),
                "{message}"
            );
        }
    }
}
