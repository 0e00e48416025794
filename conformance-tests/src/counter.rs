//! A number that processes add to by reading and writing it. Nothing but their lock protects it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Result};
use tokio::net::{TcpListener, TcpStream};

/// The number, in the case's process. It is gone with the case, also if that is killed.
#[derive(Debug)]
pub(crate) struct Counter {
    address: SocketAddr,
    number: Arc<AtomicU64>,
}

/// Another process's way to it.
#[derive(Debug)]
pub(crate) struct RemoteCounter(BufReader<TcpStream>);

impl Counter {
    /// Zero, which other processes of this machine reach as long as the runtime lives.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, number) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let counted = Arc::clone(&number);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends with the process at its other end.
                tokio::spawn(answer(stream, counted.clone()));
            }
        });
        Ok(Self { address, number })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }
}

/// Answers each line with the number. A line that is a number is written first.
async fn answer(stream: TcpStream, number: Arc<AtomicU64>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        if let Ok(written) = line.trim().parse() {
            number.store(written, Ordering::SeqCst);
        }
        let read = format!("{}\n", number.load(Ordering::SeqCst));
        stream.write_all(read.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

impl RemoteCounter {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    pub(crate) async fn read(&mut self) -> Result<u64> {
        self.ask("read").await
    }

    /// Writes it, and waits until it is written.
    pub(crate) async fn write(&mut self, number: u64) -> Result<()> {
        self.ask(&number.to_string()).await.map(drop)
    }

    async fn ask(&mut self, line: &str) -> Result<u64> {
        self.0.write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        answer.trim().parse().map_err(std::io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_one_writes_another_one_reads() {
        let counter = Counter::start().await.unwrap();
        let mut one = RemoteCounter::connect(counter.address()).await.unwrap();
        let mut other = RemoteCounter::connect(counter.address()).await.unwrap();
        assert_eq!(one.read().await.unwrap(), 0);
        one.write(7).await.unwrap();
        assert_eq!((other.read().await.unwrap(), counter.number()), (7, 7));
    }
}
