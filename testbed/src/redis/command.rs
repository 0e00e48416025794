//! Commands to a Redis, over a connection of their own.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// What a server replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Number(i64),
    List(Vec<Reply>),
    Nothing,
}

impl Reply {
    /// The text; of a list: all of it, one line each.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::List(replies) => replies.iter().map(Self::text).collect::<Vec<_>>().join("\n"),
            Self::Nothing => String::new(),
        }
    }
}

/// Sends one command and waits for its reply, for ten seconds at most.
///
/// # Errors
/// Also the server's: its words, as of the kind `Other`.
pub(crate) fn call(port: u16, command: &[&str]) -> io::Result<Reply> {
    call_on(&connect(port)?, command)
}

pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// The same over a connection that lasts.
pub(crate) fn call_on(mut stream: &TcpStream, command: &[&str]) -> io::Result<Reply> {
    let mut request = format!("*{}\r\n", command.len());
    for part in command {
        request += &format!("${}\r\n{part}\r\n", part.len());
    }
    stream.write_all(request.as_bytes())?;
    // Nothing comes behind the reply.
    read(&mut BufReader::new(stream))
}

fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, format!("no reply of a Redis: {line:?}"));
    let (kind, rest) = line.split_at_checked(1).ok_or_else(garbled)?;
    let number = || rest.parse::<i64>().map_err(|_| garbled());
    Ok(match kind {
        "+" => Reply::Text(rest.into()),
        "-" => return Err(io::Error::other(rest.to_owned())),
        ":" => Reply::Number(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(_) => Reply::Nothing,
        },
        "*" => match number()? {
            -1 => Reply::Nothing,
            count => Reply::List((0..count).map(|_| read(from)).collect::<io::Result<_>>()?),
        },
        _ => return Err(garbled()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let reply = read(&mut &b"*4\r\n$3\r\nabc\r\n:7\r\n$-1\r\n+OK\r\n"[..]).expect("a reply");
        let parts = [
            Reply::Text("abc".into()),
            Reply::Number(7),
            Reply::Nothing,
            Reply::Text("OK".into()),
        ];
        assert_eq!(reply, Reply::List(parts.into()));
        assert_eq!(reply.text(), "abc\n7\n\nOK");
        let error = read(&mut &b"-TRYAGAIN later\r\n"[..]).expect_err("an error");
        assert_eq!(error.to_string(), "TRYAGAIN later");
        assert!(read(&mut &b"HTTP\r\n"[..]).is_err());
    }
}
