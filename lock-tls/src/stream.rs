//! A stream that remembers why TLS failed on it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client;

/// A connection over TLS. Its [record](Self::record) keeps a fault that shows after the handshake, as that of a client
/// certificate does: a driver may lose it.
#[derive(Debug)]
pub struct TlsStream<S> {
    stream: client::TlsStream<S>,
    record: FaultRecord,
}

/// The first fault of a connection over TLS, if there was one.
#[derive(Clone, Debug, Default)]
pub struct FaultRecord(Arc<OnceLock<rustls::Error>>);

impl FaultRecord {
    /// The fault.
    pub fn get(&self) -> Option<&rustls::Error> {
        self.0.get()
    }

    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(fault) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>())
        {
            // The first one counts.
            let _ = self.0.set(fault.clone());
        }
        result
    }
}

impl<S> TlsStream<S> {
    pub(crate) fn new(stream: client::TlsStream<S>) -> Self {
        Self {
            stream,
            record: FaultRecord::default(),
        }
    }

    /// Returns the record of its first fault.
    pub fn record(&self) -> FaultRecord {
        self.record.clone()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.record.note(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.record.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.record.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
