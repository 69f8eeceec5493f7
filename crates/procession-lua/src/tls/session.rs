//! A session of TLS on a socket.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::pin;
use std::task::Poll;

use procession::net::TcpStream;
use procession_sync::Mutex;
use rustls::{AlertDescription, CertificateError, Connection, Error};

/// The bytes that a session holds for a socket that takes no more.
const UNSENT_MAX: usize = 32 * 1024;
/// The number of times that one call reads or writes. A fast peer would otherwise keep the thread.
const TIMES_MAX: usize = 32;

/// A session of TLS. Its users take turns for short times.
#[derive(Debug)]
pub(crate) struct Session(Box<Mutex<Connection>>);

/// A socket as a session writes to it.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

/// The progress of a handshake.
enum Shaken {
    Done,
    /// It waits until the socket has something to read.
    Reads,
    /// It waits until the socket takes something, or has something to read.
    Writes,
}

impl Session {
    pub(super) fn new(mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT_MAX));
        Self(Box::new(Mutex::new(session)))
    }

    /// Reads without waiting: bytes of the session, or else those that `from` has. Zero bytes are
    /// the end. Also takes part in the handshake.
    pub(crate) fn try_read(
        &self,
        socket: &TcpStream,
        mut from: &mut dyn Read,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut session = self.0.lock();
        for _ in 0..TIMES_MAX {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(cut()),
                result => return result,
            }
            if advance(&mut session, socket)? {
                continue;
            }
            match session.read_tls(&mut from) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => drop(result?),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Writes without waiting. Returns `None` if the socket has taken everything, and otherwise the
    /// number of bytes that the session has taken.
    pub(crate) fn try_write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut session = self.0.lock();
        if session.is_handshaking() || !flush(&mut session, socket)? {
            return Ok(Some(0));
        }
        let mut written = 0;
        for _ in 0..TIMES_MAX {
            written += session.writer().write(&bytes[written..])?;
            if !flush(&mut session, socket)? {
                break;
            }
            if written == bytes.len() {
                return Ok(None);
            }
        }
        Ok(Some(written))
    }

    /// Writes all bytes, and waits until the socket has taken them.
    pub(crate) async fn write_all(&self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        self.handshake(socket).await?;
        while let Some(written) = self.try_write(socket, bytes)? {
            bytes = &bytes[written..];
            socket.writable().await?;
        }
        Ok(())
    }

    /// Completes the handshake.
    pub(crate) async fn handshake(&self, socket: &TcpStream) -> io::Result<()> {
        loop {
            match self.try_handshake(socket)? {
                Shaken::Done => return Ok(()),
                Shaken::Reads => socket.readable().await?,
                Shaken::Writes => {
                    let mut readable = pin!(socket.readable());
                    let mut writable = pin!(socket.writable());
                    poll_fn(|task| match readable.as_mut().poll(task) {
                        Poll::Ready(result) => Poll::Ready(result),
                        Poll::Pending => writable.as_mut().poll(task),
                    })
                    .await?;
                }
            }
        }
    }

    fn try_handshake(&self, socket: &TcpStream) -> io::Result<Shaken> {
        let mut session = self.0.lock();
        for _ in 0..TIMES_MAX {
            advance(&mut session, socket)?;
            let sends = session.wants_write();
            if !session.is_handshaking() {
                return Ok(if sends { Shaken::Writes } else { Shaken::Done });
            }
            match session.read_tls(&mut Socket(socket)) {
                Ok(0) => return Err(cut()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(if sends { Shaken::Writes } else { Shaken::Reads });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => drop(result?),
            }
        }
        Ok(Shaken::Reads)
    }

    /// Tells the peer that nothing is missing, if the socket takes that now.
    pub(crate) fn end(&self, socket: &TcpStream) {
        let mut session = self.0.lock();
        session.send_close_notify();
        // Ignored: the peer may have closed the connection.
        drop(flush(&mut session, socket));
        // A server sends tickets that nobody asked for. If they were left unread, the kernel would
        // reset the connection when it is closed, and drop what was written last.
        let mut unread = [0; 4096];
        for _ in 0..TIMES_MAX {
            if socket.try_read(&mut unread).unwrap_or(0) == 0 {
                break;
            }
        }
    }
}

/// Takes what the session has read, and sends its answers, such as an alert. Returns `true` if
/// there is something for the reader.
fn advance(session: &mut Connection, socket: &TcpStream) -> io::Result<bool> {
    let taken = session.process_new_packets();
    let sent = flush(session, socket);
    let state = taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, text(&error)))?;
    sent?;
    Ok(state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
}

/// Writes what the session has. Returns `false` if the socket takes no more.
fn flush(session: &mut Connection, socket: &TcpStream) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Socket(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => drop(result?),
        }
    }
    Ok(true)
}

/// Returns the error of a connection that ends without the notice of TLS: bytes may be missing.
fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer cut the connection of TLS off")
}

/// Returns the cause of a failed session.
fn text(error: &Error) -> String {
    let cause = match error {
        Error::InvalidMessage(_) => "it does not speak TLS",
        Error::InvalidCertificate(cause) => match cause {
            CertificateError::UnknownIssuer => "its certificate is of an unknown authority",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            CertificateError::Other(cause) => {
                return format!("the certificate of the peer is refused: {cause}");
            }
            other => return format!("the certificate of the peer is refused: {other}"),
        },
        Error::NoApplicationProtocol
        | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it has none of the protocols"
        }
        Error::AlertReceived(alert) => return format!("the peer ends TLS: {alert:?}"),
        other => return format!("TLS fails: {other}"),
    };
    format!("the peer is refused: {cause}")
}
