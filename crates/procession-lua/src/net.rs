//! Sockets of guests.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};

use crate::limits::{Bounds, Hold, Resource};
use crate::permissions;
use crate::value::{Socket, Value};

/// The number of bytes that one read takes at most.
const READ_MAX: usize = 64 * 1024;

/// A TCP connection of a guest.
#[derive(Debug)]
pub struct Connection(TcpStream, #[expect(dead_code, reason = "its drop ends a charge")] Hold);

/// A TCP listener of a guest.
#[derive(Debug)]
pub struct Listener(TcpListener, #[expect(dead_code, reason = "its drop ends a charge")] Hold);

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self {
            Self::Connection(connection) => ("connection", connection.0.peer_addr()),
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
    /// Reads bytes that are known to have arrived. Returns `None` if there are none yet.
    pub(crate) fn try_read(&self, most: usize) -> Option<io::Result<Value>> {
        read_once(most, |buffer| self.0.try_read(buffer))
    }

    /// Reads bytes that have arrived, also if the reactor has not seen them yet. Returns `None` if
    /// there are none. It takes more time than [`try_read`](Self::try_read), and is for a last
    /// look.
    pub(crate) fn read_now(&self, most: usize) -> Option<io::Result<Value>> {
        read_once(most, |buffer| {
            // The duplicate shares the mode of the socket, which does not block.
            let socket = self.0.as_fd().try_clone_to_owned()?;
            std::net::TcpStream::from(socket).read(buffer)
        })
    }

    /// Waits until there may be something to read. It holds no buffer while it waits.
    pub(crate) async fn readable(self: Arc<Self>, timeout: Option<Duration>) -> io::Result<Value> {
        with_timeout(timeout, self.0.readable()).await?;
        Ok(Value::Nil)
    }

    /// Writes as much of `bytes` as the kernel takes immediately, and returns the number of bytes.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.try_write(bytes) {
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
        with_timeout(timeout, self.0.write_all(&bytes[from..])).await?;
        Ok(Value::Boolean(true))
    }

    pub(crate) fn close(&self) {
        // Ignored: the peer may have closed the connection.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

/// Reads into a buffer of the thread.
fn read_once(
    most: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> Option<io::Result<Value>> {
    thread_local! {
        /// Kept between reads, since each would otherwise allocate and zero a buffer.
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
    }
    BUFFER.with_borrow_mut(|buffer| match read(&mut buffer[..most.clamp(1, READ_MAX)]) {
        Ok(count) => Some(Ok(received(&buffer[..count]))),
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
    Ok(Value::Socket(Socket::Connection(Arc::new(Connection(stream, charge)))))
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
        Ok(Value::Socket(Socket::Connection(Arc::new(Connection(stream, charge)))))
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
