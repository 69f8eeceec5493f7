//! The server of a door: accepts connections, reads one request of each, and writes the answer.

use std::io;
use std::net::{Shutdown, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::access::{Way, check, may_enter};
use super::request::{HttpRequest, Method, REQUEST_BYTES_MAX, head_end};
use super::response::{HttpStatus, Response};
use super::routes::{Observed, answer};
use super::socket::{old_sockets, user};
use crate::net::credentials::peer_cred;
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::time::{sleep, timeout};
use crate::{OnCancel, SpawnOptions};

/// The maximum number of connections that are served at once.
const CONNECTIONS_MAX: usize = 8;
/// The maximum number of connections, with those that are being refused. Others are closed without
/// an answer.
const REFUSED_MAX: usize = 32;
/// The time that a request has to arrive, and that the response has to be taken.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the rest of a refused request is read. A connection that is closed with bytes
/// unread is reset, and the client loses the response.
const LINGER: Duration = Duration::from_secs(1);
/// The time until a listener that failed tries again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The time that a listener gets to take a connection, before it counts as alive.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

enum Connection {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer).await,
            Self::Tcp(stream) => stream.read(buffer).await,
        }
    }

    async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes).await,
            Self::Tcp(stream) => stream.write_all(bytes).await,
        }
    }

    fn end_writing(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

/// Serves a Unix socket.
pub(super) async fn listen_unix(listener: StdUnixListener, observed: Arc<Observed>) {
    // Ignored: without a descriptor for the poller, the door stays shut.
    let Ok(listener) = UnixListener::try_from(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = peer_cred(&stream).map(|peer| peer.uid());
                if peer.is_ok_and(|peer| may_enter(peer, user())) {
                    begin(Connection::Unix(stream), Way::Unix, &observed);
                }
            }
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    }
}

/// Serves a TCP socket.
pub(super) async fn listen_tcp(listener: StdTcpListener, way: Way, observed: Arc<Observed>) {
    // Ignored: without a descriptor for the poller, the door stays shut.
    let Ok(listener) = TcpListener::try_from(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => begin(Connection::Tcp(stream), way, &observed),
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    }
}

/// A connection in the count of connections.
struct ConnectionCount(Arc<AtomicUsize>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        // Relaxed: only the number matters, and all of it is on one worker.
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Starts the process of a connection.
fn begin(connection: Connection, way: Way, observed: &Arc<Observed>) {
    let others = observed.connections.fetch_add(1, Relaxed);
    let counted = ConnectionCount(Arc::clone(&observed.connections));
    if others >= REFUSED_MAX {
        return;
    }
    let observed = Arc::clone(observed);
    let options = SpawnOptions::new().label("connection").on_cancel(OnCancel::Drop);
    drop(options.spawn(async move {
        let _counted = counted;
        serve(&connection, way, &observed, others < CONNECTIONS_MAX).await;
    }));
}

async fn serve(connection: &Connection, way: Way, observed: &Arc<Observed>, has_room: bool) {
    let bytes = if has_room {
        match timeout(TRANSFER_TIMEOUT, read(connection)).await {
            Ok(Ok(Some(head))) => respond(&head, way, observed).await,
            // The client went away.
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => Response::from(HttpStatus::TimedOut).bytes(true),
        }
    } else {
        Response::error(HttpStatus::Unavailable, "the door serves 8 connections at once")
            .bytes(true)
    };
    let written = timeout(TRANSFER_TIMEOUT, connection.write_all(&bytes)).await;
    if matches!(written, Ok(Ok(()))) && connection.end_writing().is_ok() {
        // Ignored: the client has what it asked for.
        let _ = timeout(LINGER, drain(connection)).await;
    }
}

/// Reads the head of a request, or as much of a head that is too large. Returns `None` if the
/// connection ends before.
async fn read(connection: &Connection) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = connection.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        // The end may have begun in what was there before.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&buffer[..count]);
        if let Some(end) = head_end(&head[from..]) {
            head.truncate(from + end);
            return Ok(Some(head));
        }
        if head.len() > REQUEST_BYTES_MAX {
            return Ok(Some(head));
        }
    }
}

async fn respond(head: &[u8], way: Way, observed: &Arc<Observed>) -> Vec<u8> {
    if head.len() > REQUEST_BYTES_MAX {
        return Response::from(HttpStatus::HeadTooLarge).bytes(true);
    }
    match HttpRequest::parse(head) {
        Err(status) => Response::from(status).bytes(true),
        Ok(request) => {
            let response = match check(&request, way, &observed.keys) {
                Ok(()) => answer(&request, observed).await,
                Err(response) => response,
            };
            response.bytes(request.method != Method::Head)
        }
    }
}

async fn drain(connection: &Connection) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while connection.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Removes the sockets of programs that have ended without doing so.
pub(super) async fn remove_left(directory: PathBuf) {
    for path in old_sockets(&directory).unwrap_or_default() {
        let connected = timeout(CONNECT_TIMEOUT, UnixStream::connect(&path)).await;
        if matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused) {
            // Ignored: another door may have removed it.
            let _ = std::fs::remove_file(&path);
        }
    }
}
