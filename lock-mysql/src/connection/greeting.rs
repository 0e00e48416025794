//! Distinguishes a slow MySQL from a server that is no MySQL.
//!
//! A MySQL speaks first. Another server waits for us to speak, and the driver waits with it until its timeout. Or it
//! sends something that the driver takes for the beginning of a long packet. So if a connect takes long, a second
//! connection reads what the server sends.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long a connect may take before the second connection is made, and how long the server may be silent on that.
const SILENCE_LIMIT: Duration = Duration::from_millis(500);

/// Returns only if the server is certainly no MySQL.
///
/// # Cancel safety
/// May be dropped at any point.
pub(crate) async fn detect_non_mysql(host: &str, port: u16) {
    sleep(SILENCE_LIMIT).await;
    if has_no_mysql_greeting(host, port).await != Ok(true) {
        std::future::pending::<()>().await;
    }
}

/// Whether the server is certainly no MySQL.
///
/// # Cancel safety
/// May be dropped at any point.
pub(crate) async fn is_non_mysql(host: &str, port: u16) -> bool {
    matches!(
        timeout(4 * SILENCE_LIMIT, has_no_mysql_greeting(host, port)).await,
        Ok(Ok(true))
    )
}

async fn has_no_mysql_greeting(host: &str, port: u16) -> Result<bool, io::ErrorKind> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.kind())?;
    let mut first = [0; 5];
    let heard = match timeout(SILENCE_LIMIT, read(&stream, &mut first)).await {
        Ok(heard) => heard?,
        Err(_silent) => {
            // A MySQL that hangs stays silent at this, too; most others answer a line of text, or hang up on it.
            write(&stream, b"PING\r\n").await?;
            read(&stream, &mut first).await?
        }
    };
    Ok(is_no_mysql_greeting(&first[..heard]))
}

/// Whether these first bytes of a server's are none of MySQL's: a packet of some hundred bytes, number 0, of protocol
/// version 10 or an error. Too few bytes decide nothing.
fn is_no_mysql_greeting(first: &[u8]) -> bool {
    match *first {
        [low, high, top, number, kind, ..] => {
            let length = u32::from_le_bytes([low, high, top, 0]);
            length > 4096 || number > 2 || !matches!(kind, 9 | 10 | 0xff)
        }
        _ => false,
    }
}

/// Reads until the buffer is full or the other side has no more.
async fn read(stream: &TcpStream, buffer: &mut [u8]) -> Result<usize, io::ErrorKind> {
    let mut filled = 0;
    while filled < buffer.len() {
        stream.readable().await.map_err(|error| error.kind())?;
        match stream.try_read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.kind()),
        }
    }
    Ok(filled)
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> Result<(), io::ErrorKind> {
    while !bytes.is_empty() {
        stream.writable().await.map_err(|error| error.kind())?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.kind()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_and_a_refusal_are_mysqls() {
        assert!(!is_no_mysql_greeting(b"\x5b\x00\x00\x00\x0a5.5.5-10.11"));
        assert!(!is_no_mysql_greeting(
            b"\x45\x00\x00\x00\xff\x10\x04Too many connections"
        ));
        assert!(!is_no_mysql_greeting(b""));
        assert!(!is_no_mysql_greeting(b"\x5b\x00"));
    }

    #[test]
    fn others_speak_otherwise() {
        assert!(is_no_mysql_greeting(b"+PONG\r\n"));
        assert!(is_no_mysql_greeting(b"-NOAUTH Authentication required.\r\n"));
        assert!(is_no_mysql_greeting(b"HTTP/1.1 400 Bad Request\r\n"));
        assert!(is_no_mysql_greeting(b"SSH-2.0-OpenSSH"));
    }
}
