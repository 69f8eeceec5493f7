//! Sockets of guests.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession_sync::Mutex;

use crate::account::Held;
use crate::limits::{Bounds, Hold, Resource};
use crate::permissions;
use crate::value::{Socket, Value};

/// The number of bytes that one read takes at most.
const READ_MAX: usize = 64 * 1024;

/// A TCP connection of a guest.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    kept: Mutex<Kept>,
    #[expect(dead_code, reason = "its drop ends a charge")]
    charge: Hold,
}

/// The bytes that were read for messages of HTTP and that no message has taken.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes at the beginning that are used up.
    pub(crate) used: usize,
    /// The charge for the bytes.
    pub(crate) held: Option<Held>,
}

/// A TCP listener of a guest.
#[derive(Debug)]
pub struct Listener(TcpListener, #[expect(dead_code, reason = "its drop ends a charge")] Hold);

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self {
            Self::Connection(connection) => ("connection", connection.stream.peer_addr()),
            Self::Listener(listener) => ("listener", listener.0.local_addr()),
            Self::Datagrams(socket) => ("UDP socket", socket.address()),
        };
        match address {
            Ok(address) => write!(f, "{kind} {address}"),
            Err(_) => f.write_str(kind),
        }
    }
}

impl Connection {
    /// Returns a connection as a value.
    fn value(stream: TcpStream, charge: Hold) -> Value {
        Value::Socket(Socket::Connection(Arc::new(Self::new(stream, charge))))
    }

    pub(crate) fn new(stream: TcpStream, charge: Hold) -> Self {
        Self { stream, kept: Mutex::default(), charge }
    }

    /// Reads bytes that are known to have arrived. Returns `None` if there are none yet.
    pub(crate) fn try_read(&self, most: usize) -> Option<io::Result<Value>> {
        read_once(most, |buffer| self.stream.try_read(buffer))
    }

    /// Reads bytes that have arrived, also if the reactor has not seen them yet. Returns `None` if
    /// there are none. It takes more time than [`try_read`](Self::try_read), and is for a last
    /// look.
    pub(crate) fn read_now(&self, most: usize) -> Option<io::Result<Value>> {
        read_once(most, |buffer| {
            // The duplicate shares the mode of the socket, which does not block.
            let socket = self.stream.as_fd().try_clone_to_owned()?;
            std::net::TcpStream::from(socket).read(buffer)
        })
    }

    /// Appends bytes that are known to have arrived, and returns their number. Returns `None` if
    /// there are none yet, and zero at the end of the stream.
    pub(crate) fn try_read_into(&self, buffer: &mut Vec<u8>) -> Option<io::Result<usize>> {
        with_buffer(
            READ_MAX,
            |bytes| self.stream.try_read(bytes),
            |bytes| {
                buffer.extend(bytes);
                bytes.len()
            },
        )
    }

    /// Keeps bytes for the next message, of which the first `used` are used already.
    pub(crate) fn keep(&self, mut bytes: Vec<u8>, mut used: usize, mut held: Held) {
        // An idle connection has no buffer. A removal of less than the half would take more time
        // than the bytes that were read.
        if used >= bytes.len() / 2 {
            bytes.drain(..used);
            used = 0;
        }
        let kept = if bytes.is_empty() {
            Kept::default()
        } else {
            bytes.shrink_to(2 * bytes.len());
            held.set(bytes.capacity());
            Kept { bytes, used, held: Some(held) }
        };
        let before = std::mem::replace(&mut *self.kept.lock(), kept);
        drop(before);
    }

    pub(crate) fn take_kept(&self) -> Kept {
        std::mem::take(&mut self.kept.lock())
    }

    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.lock().bytes.is_empty()
    }

    /// Waits until there may be something to read. It holds no buffer while it waits.
    pub(crate) async fn readable(self: Arc<Self>, timeout: Option<Duration>) -> io::Result<Value> {
        with_timeout(timeout, self.stream.readable()).await?;
        Ok(Value::Nil)
    }

    /// Writes as much of `bytes` as the kernel takes immediately, and returns the number of bytes.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    pub(crate) async fn write(
        self: Arc<Self>,
        bytes: Arc<[u8]>,
        from: usize,
        timeout: Option<Duration>,
    ) -> io::Result<Value> {
        with_timeout(timeout, self.stream.write_all(&bytes[from..])).await?;
        Ok(Value::Boolean(true))
    }

    pub(crate) fn close(&self) {
        // Ignored: the peer may have closed the connection.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

fn read_once(
    most: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> Option<io::Result<Value>> {
    with_buffer(most, read, received)
}

/// Reads into a buffer of the thread. Returns `None` if nothing has arrived.
fn with_buffer<T>(
    most: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    then: impl FnOnce(&[u8]) -> T,
) -> Option<io::Result<T>> {
    thread_local! {
        /// Kept between reads, since each would otherwise allocate and zero a buffer.
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
    }
    BUFFER.with_borrow_mut(|buffer| match read(&mut buffer[..most.clamp(1, READ_MAX)]) {
        Ok(count) => Some(Ok(then(&buffer[..count]))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => Some(Err(error)),
    })
}

/// A read of zero bytes is the end of the stream.
fn received(bytes: &[u8]) -> Value {
    if bytes.is_empty() { Value::Nil } else { Value::string(bytes) }
}

pub(crate) async fn with_timeout<T>(
    timeout: Option<Duration>,
    act: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match timeout {
        None => act.await,
        Some(timeout) => match procession::timeout(timeout, act).await {
            Ok(done) => done,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "timeout")),
        },
    }
}

pub(crate) async fn connect(
    bounds: Bounds,
    address: String,
    timeout: Option<Duration>,
) -> io::Result<Value> {
    let charge = socket_charge(&bounds)?;
    let stream = with_timeout(timeout, permissions::connect(&bounds.permissions, &address)).await?;
    stream.set_nodelay(true)?;
    Ok(Connection::value(stream, charge))
}

/// Charges for a socket.
pub(crate) fn socket_charge(bounds: &Bounds) -> io::Result<Hold> {
    bounds.hold(Resource::Sockets).map_err(io::Error::other)
}

pub(crate) async fn listen(bounds: Bounds, address: String) -> io::Result<Value> {
    let charge = socket_charge(&bounds)?;
    Ok(Value::Socket(Socket::Listener(Arc::new(Listener(
        TcpListener::bind(address.as_str()).await?,
        charge,
    )))))
}

impl Listener {
    pub(crate) async fn accept(self: Arc<Self>, bounds: Bounds) -> io::Result<Value> {
        let charge = socket_charge(&bounds)?;
        let (stream, _) = self.0.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Connection::value(stream, charge))
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
