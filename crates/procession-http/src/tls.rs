//! TLS over the streams of this crate, by rustls.

use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use rustls::Connection;

use crate::Error;

/// A stream with its TLS session.
pub(crate) struct TlsStream<I> {
    io: I,
    tls: Connection,
    /// The close notice was queued.
    is_closed: bool,
}

/// A stream in the form that rustls reads and writes. A call that would wait returns `WouldBlock`,
/// and the task is woken later.
struct Blocking<'a, 'b, I> {
    io: &'a mut I,
    task: &'a mut Context<'b>,
}

fn or_would_block<R>(polled: Poll<io::Result<R>>) -> io::Result<R> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn or_pending<R>(result: io::Result<R>) -> Poll<io::Result<R>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

impl<I: Read + Unpin> io::Read for Blocking<'_, '_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        or_would_block(Pin::new(&mut *self.io).poll_read(self.task, buffer.unfilled()))?;
        Ok(buffer.filled().len())
    }
}

impl<I: Write + Unpin> io::Write for Blocking<'_, '_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write(self.task, bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.io).poll_write_vectored(self.task, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_would_block(Pin::new(&mut *self.io).poll_flush(self.task))
    }
}

impl<I: Read + Write + Unpin> TlsStream<I> {
    fn new(io: I, tls: impl Into<Connection>) -> Self {
        Self { io, tls: tls.into(), is_closed: false }
    }

    /// Returns the protocol that both sides agreed on (ALPN).
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    pub(crate) fn get_ref(&self) -> &I {
        &self.io
    }

    /// Writes everything that the session has to send.
    fn poll_send(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let mut io = Blocking { io: &mut self.io, task };
            if ready!(or_pending(self.tls.write_tls(&mut io)))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once. Returns `false` at the end of the stream.
    fn poll_receive(&mut self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut io = Blocking { io: &mut self.io, task };
        let count = ready!(or_pending(self.tls.read_tls(&mut io)))?;
        if let Err(error) = self.tls.process_new_packets() {
            // This sends the alert that reports the error to the peer. If there is no room for it,
            // the peer does not get it.
            let _ = self.poll_send(task);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count > 0))
    }

    fn poll_handshake(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(task))?;
            if !self.tls.is_handshaking() {
                return Pin::new(&mut self.io).poll_flush(task);
            }
            if !ready!(self.poll_receive(task))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    async fn shake_hands(mut self) -> Result<Self, Error> {
        poll_fn(|task| self.poll_handshake(task))
            .await
            .map_err(|cause| Error::io("shake hands", cause))?;
        Ok(self)
    }
}

/// Accepts a TLS session on a stream.
pub(crate) async fn accept<I: Read + Write + Unpin>(
    io: I,
    config: &Arc<rustls::ServerConfig>,
) -> Result<TlsStream<I>, Error> {
    let tls = rustls::ServerConnection::new(Arc::clone(config))
        .map_err(|error| Error::io("begin a TLS session", io::Error::other(error)))?;
    TlsStream::new(io, tls).shake_hands().await
}

/// Begins a TLS session on a stream.
#[cfg(feature = "client")]
pub(crate) async fn connect<I: Read + Write + Unpin>(
    io: I,
    config: &Arc<rustls::ClientConfig>,
    name: rustls::pki_types::ServerName<'static>,
) -> Result<TlsStream<I>, Error> {
    let tls = rustls::ClientConnection::new(Arc::clone(config), name)
        .map_err(|error| Error::io("begin a TLS session", io::Error::other(error)))?;
    TlsStream::new(io, tls).shake_hands().await
}

impl<I: Read + Write + Unpin> Read for TlsStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut reader = self.tls.reader();
            match or_pending(reader.fill_buf()) {
                Poll::Ready(bytes) => {
                    let bytes = bytes?;
                    let count = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..count]);
                    reader.consume(count);
                    return Poll::Ready(Ok(()));
                }
                // The end without a close notice is the reader's next result.
                Poll::Pending => drop(ready!(self.poll_receive(task))?),
            }
            if self.tls.wants_write() {
                // An answer to what was received. If it has to wait, the next write sends it.
                let _ = self.poll_send(task)?;
            }
        }
    }
}

impl<I: Read + Write + Unpin> Write for TlsStream<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(task, &[IoSlice::new(bytes)])
    }

    /// Encrypts as much as the session has room for, and sends what the stream has room for. Takes
    /// nothing before the stream has taken what was encrypted, because each write that is ready
    /// counts as progress of the peer.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(task))?;
        let count = self.tls.writer().write_vectored(parts)?;
        // What has to wait is sent by the flush or the next write.
        let _ = self.poll_send(task)?;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(task))?;
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.tls.send_close_notify();
        }
        ready!(self.poll_send(task))?;
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}
