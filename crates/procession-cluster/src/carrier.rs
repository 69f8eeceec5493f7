//! The byte stream of a connection: a socket, with a TLS session or without one.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::pin;
use std::task::Poll;

use procession::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) stream: TcpStream,
    tls: Option<Box<rustls::Connection>>,
    /// The bytes that the socket has taken.
    taken: u64,
}

/// A socket as rustls reads and writes it, with the count of what it has taken.
struct Socket<'a>(&'a TcpStream, &'a mut u64);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.try_write(bytes)?;
        *self.1 += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Carrier {
    pub(crate) fn new(stream: TcpStream, tls: Option<rustls::Connection>) -> Self {
        Self { stream, tls: tls.map(Box::new), taken: 0 }
    }

    /// Returns the number of bytes that the socket has taken. The session may hold more.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn session(&self) -> Option<&rustls::Connection> {
        self.tls.as_deref()
    }

    /// Returns `true` if the session has bytes that the socket has not taken.
    pub(crate) fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads without waiting. Zero bytes are the end.
    pub(crate) fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return self.stream.try_read(bytes) };
            match tls.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if self.try_advance()? == 0 {
                return Ok(0);
            }
        }
    }

    /// Hands the received bytes to the session, without waiting. Zero bytes are the end.
    fn try_advance(&mut self) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(0) };
        let count = tls.read_tls(&mut Socket(&self.stream, &mut self.taken))?;
        let taken = tls.process_new_packets();
        // The answers of the session, such as an alert. What the socket does not take waits.
        self.flush_some()?;
        taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(count)
    }

    /// Writes without waiting. The session takes bytes before the socket does.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = Socket(&self.stream, &mut self.taken);
        let Some(tls) = &mut self.tls else { return socket.write(bytes) };
        flush(tls, &mut socket)?;
        let count = tls.writer().write(bytes)?;
        match flush(tls, &mut socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ if count == 0 && !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(count),
        }
    }

    /// Writes what the session has, without waiting.
    fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => flush(tls, &mut Socket(&self.stream, &mut self.taken)),
            None => Ok(()),
        }
    }

    /// Reads, and waits for something to read. Zero bytes are the end.
    pub(crate) async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.try_read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready().await,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Writes all bytes, and waits until the socket has taken them.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.has_more() {
            let wrote = match bytes.is_empty() {
                true => self.try_flush().map(|()| 0),
                false => self.try_write(bytes),
            };
            match wrote {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Completes the handshake of the session, if there is one.
    pub(crate) async fn secure(&mut self) -> io::Result<()> {
        while self.session().is_some_and(|tls| tls.is_handshaking()) {
            self.flush_some()?;
            match self.try_advance() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready().await,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.write_all(&[]).await
    }

    fn flush_some(&mut self) -> io::Result<()> {
        match self.try_flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until the socket has something, or takes what the session has.
    async fn ready(&self) {
        let mut readable = pin!(self.stream.readable());
        let mut writable = pin!(self.stream.writable());
        let writes = self.has_more();
        poll_fn(|task| {
            let is_ready = readable.as_mut().poll(task).is_ready()
                || (writes && writable.as_mut().poll(task).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn flush(tls: &mut rustls::Connection, socket: &mut Socket<'_>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;

    use procession::net::{SocketOptions, TcpListener};

    use super::Carrier;
    use crate::Tls;

    fn tls() -> Tls {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
        let certificate =
            |name| CertificateDer::from_pem_file(folder.join(name)).expect("it is a certificate");
        let key = PrivateKeyDer::from_pem_file(folder.join("node.key")).expect("it is a key");
        Tls::new(vec![certificate("node.crt")], key, vec![certificate("authority.crt")])
            .expect("they fit")
    }

    /// Goal: only bytes that the socket takes count, and not bytes that the session takes. A node
    /// is not given up while the socket takes something.
    #[test]
    fn what_the_socket_takes_is_counted() {
        for is_secure in [false, true] {
            procession::run(async move {
                let small =
                    SocketOptions::new().send_buffer_size(1 << 14).recv_buffer_size(1 << 14);
                let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
                let listener = listener.expect("there is a port");
                let near = small.connect(listener.local_addr().expect("it is bound")).await;
                let near = near.expect("it listens");
                let (far, _) = listener.accept().await.expect("it has connected");
                let session = |side: fn(&Tls) -> _| is_secure.then(|| side(&tls()));
                let client = session(|tls| tls.connect("127.0.0.1").expect("it is a host"));
                let server = session(|tls| tls.accept().expect("it has a certificate"));
                let (mut near, mut far) = (Carrier::new(near, client), Carrier::new(far, server));
                let other = procession::spawn(async move {
                    far.secure().await.expect("it is secure");
                    far
                });
                near.secure().await.expect("it is secure");
                let mut far = other.await.expect("it ends");
                let start = near.taken();
                assert_eq!(start > 0, is_secure);
                let full = loop {
                    if let Err(error) = near.try_write(&[7; 1 << 14]) {
                        break error;
                    }
                };
                assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
                assert_eq!(near.has_more(), is_secure);
                let full = near.taken();
                assert!(full > start);
                let reads = procession::spawn(async move {
                    let mut bytes = vec![0; 1 << 14];
                    while matches!(far.read(&mut bytes).await, Ok(1..)) {}
                });
                // A session accepts nothing new by this, and writes what it has.
                let more = if is_secure { &[][..] } else { &[7] };
                while near.taken() == full {
                    near.stream.writable().await.expect("it is open");
                    let _ = near.try_write(more);
                }
                drop(near);
                reads.await.expect("it ends");
            });
        }
    }
}
