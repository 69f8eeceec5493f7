//! Sockets of guests.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::sync::CancellationToken;
use procession::time::Instant;
use procession_sync::Mutex;

use crate::account::{Account, Held};
use crate::limits::{Hold, Resource};
use crate::permissions::{self, Bounds};
use crate::secured::Secured;
use crate::stream::{PeerEnd, Stream};
use crate::tls::{Server, Tls};

/// The text of the error of a wait that a cancel has ended.
pub(crate) const CANCELLED: &str = "cancelled";
/// The number of bytes that one read takes at most.
const READ_MAX: usize = 64 * 1024;
/// The bytes that are dropped, and the time that passes, until a connection is closed although its
/// peer still sends. Most peers that send a long body read the refusal in between, and stop.
const LINGER_BYTES: usize = 16 << 20;
const LINGER_TIME: Duration = Duration::from_secs(5);

/// The time for the answer to a peer that has closed its half. The system says the same of a peer
/// that has closed the connection.
const HALF_CLOSED_TIME: Duration = Duration::from_secs(5);
/// How often the system is asked for a peer behind bytes that are unread, and for a peer that has
/// closed its half.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The fields of a socket in the table of the system: the bytes that it has not sent and, after a
/// colon, the connections or the bytes that it has received; and the number of its inode.
const QUEUES_FIELD: usize = 4;
const INODE_FIELD: usize = 9;

/// A TCP connection of a guest.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
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
pub struct Listener {
    listener: TcpListener,
    /// How its connections begin their sessions of TLS.
    server: Option<Server>,
    #[expect(dead_code, reason = "its drop ends a charge")]
    charge: Hold,
}

impl Connection {
    pub(crate) fn new(stream: Stream, charge: Hold) -> Self {
        Self { stream, kept: Mutex::default(), charge }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.stream.is_secure()
    }

    /// Charges the session of TLS, if there is one, to another account that has room for it.
    pub(crate) fn charge_to(&self, account: &Arc<Account>) {
        self.stream.charge_to(account);
    }

    /// Returns the address of the peer.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Reads bytes that are known to have arrived. Returns `None` if there are none yet, and no
    /// bytes at the end of the stream.
    pub(crate) fn try_read(&self, most: usize) -> Option<io::Result<Arc<[u8]>>> {
        read_once(most, |buffer| self.stream.try_read(buffer))
    }

    /// Reads bytes that have arrived, even if the reactor has not seen them yet. Returns `None` if
    /// there are none. It takes more time than [`try_read`](Self::try_read), and is for a last
    /// look.
    pub(crate) fn read_now(&self, most: usize) -> Option<io::Result<Arc<[u8]>>> {
        read_once(most, |buffer| self.stream.read_now(buffer))
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
    pub(crate) async fn readable(self: Arc<Self>, timeout: Option<Duration>) -> io::Result<()> {
        with_timeout(timeout, self.stream.readable()).await
    }

    /// Waits until the peer has reset the connection, or has closed its half for
    /// [`HALF_CLOSED_TIME`].
    pub(crate) async fn until_abandoned(&self) {
        let mut answered_until = None;
        loop {
            match self.stream.peer_end().await {
                PeerEnd::Gone => return,
                PeerEnd::HalfClosed => {
                    let now = Instant::now();
                    if *answered_until.get_or_insert(now + HALF_CLOSED_TIME) <= now {
                        return;
                    }
                }
                PeerEnd::Open => {}
            }
            procession::sleep(LOOK_EVERY).await;
        }
    }

    /// Writes like [`Stream::try_write`]: returns `None` if the kernel has taken everything, and
    /// otherwise the number of bytes after which [`write`](Self::write) continues.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.stream.try_write(bytes)
    }

    pub(crate) async fn write(
        self: Arc<Self>,
        bytes: Arc<[u8]>,
        from: usize,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        with_timeout(timeout, self.stream.write_all(&bytes[from..])).await
    }

    pub(crate) fn close(&self) {
        self.stream.close();
    }

    /// Ends the direction to the peer. Returns `true` if the peer has also closed the connection.
    /// Otherwise [`linger`](Self::linger) should follow: if the peer sends something to a
    /// connection that is closed, the kernel resets the connection, and the peer may never see what
    /// was written last.
    pub(crate) fn end(&self) -> bool {
        self.stream.end();
        matches!(self.drop_some(), Some(Ok(0) | Err(_)))
    }

    fn drop_some(&self) -> Option<io::Result<usize>> {
        with_buffer(READ_MAX, |buffer| self.stream.drop_some(buffer), <[u8]>::len)
    }

    /// Drops what the peer still sends, until the peer has read the rest and closes the connection,
    /// or has exceeded [`LINGER_BYTES`] or [`LINGER_TIME`].
    pub(crate) async fn linger(self: Arc<Self>) -> io::Result<()> {
        let dropped = async {
            let mut left = LINGER_BYTES;
            loop {
                match self.drop_some() {
                    Some(Ok(0)) | Some(Err(_)) => break,
                    Some(Ok(count)) => match left.checked_sub(count) {
                        Some(rest) => left = rest,
                        None => break,
                    },
                    None => self.stream.until_more().await?,
                }
                procession::checkpoint().await;
            }
            Ok(())
        };
        with_timeout(Some(LINGER_TIME), dropped).await
    }
}

fn read_once(
    most: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> Option<io::Result<Arc<[u8]>>> {
    with_buffer(most, read, |bytes| bytes.into())
}

/// Reads into a buffer of the thread. Returns `None` if nothing has arrived.
fn with_buffer<T>(
    most: usize,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    then: impl FnOnce(&[u8]) -> T,
) -> Option<io::Result<T>> {
    thread_local! {
        /// Kept between reads, because each would otherwise allocate and zero a buffer.
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
    }
    BUFFER.with_borrow_mut(|buffer| match read(&mut buffer[..most.clamp(1, READ_MAX)]) {
        Ok(count) => Some(Ok(then(&buffer[..count]))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => Some(Err(error)),
    })
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

/// Waits for an operation, or until the token is cancelled.
pub(crate) async fn unless_cancelled<T>(
    token: &CancellationToken,
    act: impl Future<Output = T>,
) -> io::Result<T> {
    token.run_until_cancelled(act).await.ok_or_else(|| io::Error::other(CANCELLED))
}

/// Connects to an address. The limit of time includes the handshake of TLS.
pub(crate) async fn connect(
    bounds: Bounds,
    tls: Tls,
    address: String,
    timeout: Option<Duration>,
    secured: Option<(Secured, Held)>,
) -> io::Result<Connection> {
    let charge = socket_charge(&bounds)?;
    let connected = async {
        let socket = permissions::connect(&bounds.permissions, &address).await?;
        socket.set_nodelay(true)?;
        let session = match secured {
            Some((secured, held)) => Some(tls.client(&address, secured, held).await?),
            None => None,
        };
        let stream = Stream::new(socket, session);
        stream.handshake().await?;
        Ok(stream)
    };
    Ok(Connection::new(with_timeout(timeout, connected).await?, charge))
}

/// Charges for a socket.
pub(crate) fn socket_charge(bounds: &Bounds) -> io::Result<Hold> {
    bounds.limits.hold(Resource::Sockets).map_err(io::Error::other)
}

pub(crate) async fn listen(
    bounds: Bounds,
    tls: Tls,
    address: String,
    secured: Option<Secured>,
) -> io::Result<Listener> {
    let charge = socket_charge(&bounds)?;
    let server = secured.map(|secured| tls.server(secured)).transpose()?;
    let listener = TcpListener::bind(address.as_str()).await?;
    Ok(Listener { listener, server, charge })
}

impl Listener {
    /// Waits for a connection, or until the token is cancelled. `held` is the charge for its
    /// session, if it has one.
    pub(crate) async fn accept(
        self: Arc<Self>,
        token: CancellationToken,
        bounds: Bounds,
        mut held: Held,
    ) -> io::Result<Connection> {
        let charge = self.charge(&bounds, &mut held)?;
        let (socket, _) = unless_cancelled(&token, self.listener.accept()).await??;
        self.connection(socket, charge, held)
    }

    /// Accepts a connection that waits already, like [`accept`](Self::accept). Returns `None` if
    /// none waits.
    pub(crate) async fn accept_waiting(
        self: Arc<Self>,
        bounds: Bounds,
        mut held: Held,
    ) -> io::Result<Option<Connection>> {
        let charge = self.charge(&bounds, &mut held)?;
        match procession::timeout(Duration::ZERO, self.listener.accept()).await {
            Ok(accepted) => self.connection(accepted?.0, charge, held).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Charges for a connection before it is accepted. Without room, the client keeps waiting.
    fn charge(&self, bounds: &Bounds, held: &mut Held) -> io::Result<Hold> {
        if let Some(server) = &self.server {
            server.reserve(held)?;
        }
        socket_charge(bounds)
    }

    fn connection(&self, socket: TcpStream, charge: Hold, held: Held) -> io::Result<Connection> {
        socket.set_nodelay(true)?;
        // The first read or write makes the handshake, so that a slow peer delays no other.
        let session = self.server.as_ref().map(|server| server.session(held)).transpose()?;
        Ok(Connection::new(Stream::new(socket, session), charge))
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the number of connections that wait to be accepted, if the system tells.
    pub(crate) fn backlog(&self) -> Option<i64> {
        let inode = rustix::fs::fstat(&self.listener).ok()?.st_ino.to_string();
        let file = match self.address().ok()? {
            SocketAddr::V4(_) => "/proc/thread-self/net/tcp",
            SocketAddr::V6(_) => "/proc/thread-self/net/tcp6",
        };
        // The lines of listeners are the first ones.
        for line in BufReader::new(File::open(file).ok()?).lines() {
            let line = line.ok()?;
            let mut fields = line.split_whitespace();
            let queues = fields.nth(QUEUES_FIELD)?;
            if fields.nth(INODE_FIELD - QUEUES_FIELD - 1) == Some(inode.as_str()) {
                let (_sent, received) = queues.split_once(':')?;
                return i64::from_str_radix(received, 16).ok();
            }
        }
        None
    }
}
