//! Sockets of guests.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};

use crate::value::{Socket, Value};

/// One read takes at most so much.
const READ_MAX: usize = 64 * 1024;

/// A TCP connection of a guest.
#[derive(Debug)]
pub struct Connection(TcpStream);

/// A TCP listener of a guest.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self {
            Self::Connection(connection) => ("connection", connection.0.peer_addr()),
            Self::Listener(listener) => ("listener", listener.0.local_addr()),
        };
        match address {
            Ok(address) => write!(f, "{kind} {address}"),
            Err(_) => f.write_str(kind),
        }
    }
}

impl Connection {
    /// What has arrived; `None` if nothing has yet.
    pub(crate) fn try_read(&self, most: usize) -> Option<io::Result<Value>> {
        thread_local! {
            /// Kept, since a read would otherwise cost its allocation and its zeros.
            static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
        }
        BUFFER.with_borrow_mut(|buffer| match self.0.try_read(&mut buffer[..most.clamp(1, READ_MAX)]) {
            Ok(count) => Some(Ok(received(&buffer[..count]))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Waits until there may be something to read, and holds no buffer meanwhile.
    pub(crate) async fn readable(self: Arc<Self>, patience: Option<Duration>) -> io::Result<Value> {
        patiently(patience, self.0.readable()).await?;
        Ok(Value::Nil)
    }

    /// How much of `bytes` the kernel took at once.
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
        patience: Option<Duration>,
    ) -> io::Result<Value> {
        patiently(patience, self.0.write_all(&bytes[from..])).await?;
        Ok(Value::Boolean(true))
    }

    pub(crate) fn close(&self) {
        // Ignored: the peer may have closed it.
        drop(self.0.shutdown(Shutdown::Both));
    }
}

/// Nothing at all means that nothing more will come.
fn received(bytes: &[u8]) -> Value {
    if bytes.is_empty() { Value::Nil } else { Value::string(bytes) }
}

async fn patiently<T>(patience: Option<Duration>, act: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match patience {
        None => act.await,
        Some(patience) => match procession::timeout(patience, act).await {
            Ok(done) => done,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "timeout")),
        },
    }
}

pub(crate) async fn connect(address: String, patience: Option<Duration>) -> io::Result<Value> {
    let stream = patiently(patience, TcpStream::connect(address.as_str())).await?;
    stream.set_nodelay(true)?;
    Ok(Value::Socket(Socket::Connection(Arc::new(Connection(stream)))))
}

pub(crate) async fn listen(address: String) -> io::Result<Value> {
    Ok(Value::Socket(Socket::Listener(Arc::new(Listener(TcpListener::bind(address.as_str()).await?)))))
}

impl Listener {
    pub(crate) async fn accept(self: Arc<Self>) -> io::Result<Value> {
        let (stream, _) = self.0.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Value::Socket(Socket::Connection(Arc::new(Connection(stream)))))
    }

    pub(crate) fn address(&self) -> io::Result<Value> {
        Ok(Value::string(self.0.local_addr()?.to_string()))
    }
}
