//! The resource that the locks protect: counters with a fence, and their mirrors without one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;
use crate::record::{Access, Use, Writer};

/// A request to the resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) process: usize,
    pub(crate) op: u64,
    pub(crate) lock: usize,
    pub(crate) access: Access,
    #[serde(default)]
    pub(crate) reader: bool,
    pub(crate) token: Option<u64>,
    pub(crate) base: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) version: u64,
    pub(crate) refused: bool,
}

/// One counter. Its fence counts writers and readers apart: readers do not shut each other out.
#[derive(Clone, Debug, Default)]
struct Register {
    /// The number of writes.
    version: u64,
    /// The largest token of a writer that it has seen.
    writer: u64,
    /// The largest token of a reader that has entered.
    reader: u64,
}

impl Register {
    /// A writer is refused behind a later writer or reader, a reader behind a later writer. Who reads without a claim is let
    /// in as well: what that breaks is for the mutants to show.
    fn apply(&mut self, access: Access, reader: bool, token: Option<u64>) -> Reply {
        let version = self.version;
        let refused = token.is_some_and(|token| token < self.writer || (!reader && token < self.reader));
        if !refused {
            let newest = if reader { &mut self.reader } else { &mut self.writer };
            if access != Access::Read {
                *newest = (*newest).max(token.unwrap_or(0));
            }
            if access == Access::Write {
                self.version += 1;
            }
        }
        Reply { version, refused }
    }
}

/// The resource's side: it never breaks, and records each access in the order in which it took effect.
#[derive(Debug)]
pub(crate) struct Resource {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    fenced: Vec<Register>,
    mirror: Vec<Register>,
    history: Writer,
    /// Who has read which version of which register and not written it since.
    reading: HashMap<(usize, usize), u64>,
    /// Who read a register last, if nobody wrote since.
    last_reader: Vec<Option<usize>>,
}

impl Resource {
    pub(crate) async fn start(locks: usize, history: Writer) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            fenced: vec![Register::default(); locks],
            mirror: vec![Register::default(); locks],
            history,
            reading: HashMap::new(),
            last_reader: vec![None; locks],
        }));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Ok(Self { address, state })
    }

    /// Whether another process has read the value that this process has read and not written, and nobody wrote it: the
    /// moment at which its write would do most harm.
    pub(crate) fn is_ripe(&self, process: usize) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reading.iter().any(|((reader, lock), version)| {
            let other = state.last_reader[*lock].is_some_and(|last| last != process);
            *reader == process && other && state.fenced[*lock].version == *version
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (from, mut to) = stream.into_split();
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Request = serde_json::from_str(&line)?;
        let reply = state.lock().unwrap_or_else(PoisonError::into_inner).apply(request);
        let mut bytes = serde_json::to_vec(&reply)?;
        bytes.push(b'\n');
        to.write_all(&bytes).await?;
    }
    Ok(())
}

impl State {
    fn apply(&mut self, request: Request) -> Reply {
        let Request {
            process,
            op,
            lock,
            access,
            reader,
            token,
            base,
        } = request;
        let registers = if token.is_some() {
            &mut self.fenced
        } else {
            &mut self.mirror
        };
        let reply = registers[lock].apply(access, reader, token);
        if token.is_some() && !reply.refused {
            if access == Access::Write {
                self.reading.remove(&(process, lock));
                self.last_reader[lock] = None;
            } else if reader && self.reading.remove(&(process, lock)).is_some() {
                // Its second look was the last one.
                self.last_reader[lock].take_if(|last| *last == process);
            } else if access != Access::Finish {
                self.reading.insert((process, lock), reply.version);
                self.last_reader[lock] = Some(process);
            }
        }
        let (version, refused) = (reply.version, reply.refused);
        self.history.line(&Use {
            t: clock::now(),
            process,
            op,
            lock,
            access,
            reader,
            token,
            base,
            version,
            refused,
        });
        reply
    }
}

/// A process's side.
#[derive(Debug)]
pub(crate) struct Client {
    process: usize,
    replies: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
}

impl Client {
    pub(crate) async fn connect(process: usize, address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (replies, requests) = stream.into_split();
        let replies = BufReader::new(replies).lines();
        Ok(Self {
            process,
            replies,
            requests,
        })
    }

    pub(crate) async fn ask(
        &mut self,
        (op, lock): (u64, usize),
        access: Access,
        token: Option<u64>,
        base: u64,
    ) -> io::Result<Reply> {
        let process = self.process;
        self.send(&Request {
            process,
            op,
            lock,
            access,
            reader: false,
            token,
            base,
        })
        .await
    }

    /// As one of several that only read.
    pub(crate) async fn read(
        &mut self,
        (op, lock): (u64, usize),
        access: Access,
        token: Option<u64>,
    ) -> io::Result<Reply> {
        let process = self.process;
        self.send(&Request {
            process,
            op,
            lock,
            access,
            reader: true,
            token,
            base: 0,
        })
        .await
    }

    async fn send(&mut self, request: &Request) -> io::Result<Reply> {
        let mut bytes = serde_json::to_vec(request)?;
        bytes.push(b'\n');
        self.requests.write_all(&bytes).await?;
        let line = self.replies.next_line().await?;
        let line = line.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_shuts_out_smaller_tokens_and_a_read_does_not() {
        let mut register = Register::default();
        let mut is_refused = |access, token| register.apply(access, false, token).refused;
        assert!(!is_refused(Access::Claim, Some(5)));
        assert!(is_refused(Access::Write, Some(4)));
        assert!(is_refused(Access::Claim, Some(4)));
        assert!(!is_refused(Access::Read, Some(9)));
        assert!(!is_refused(Access::Write, Some(5)));
        assert!(!is_refused(Access::Write, None));
        assert_eq!(register.version, 2);
    }

    #[test]
    fn readers_shut_out_earlier_writers_and_no_readers() {
        let mut register = Register::default();
        let (mut writes, mut reads) = (Register::default(), Register::default());
        let claim =
            |register: &mut Register, reader, token| !register.apply(Access::Claim, reader, Some(token)).refused;
        assert!(claim(&mut register, false, 5) && claim(&mut register, true, 7) && claim(&mut register, true, 6));
        assert!(!claim(&mut register, true, 4), "a writer was later");
        assert!(!claim(&mut register, false, 6), "a reader was later");
        assert!(register.apply(Access::Write, false, Some(5)).refused);
        assert!(claim(&mut register, false, 8));
        assert!(register.apply(Access::Read, true, Some(7)).refused);
        // The token that a downgrade keeps.
        assert!(claim(&mut writes, false, 5) && claim(&mut writes, true, 5));
        // Those who do not register are not seen.
        assert!(!reads.apply(Access::Read, true, Some(7)).refused && claim(&mut reads, false, 6));
    }
}
