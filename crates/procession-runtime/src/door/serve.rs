//! The server of a door: accepts connections, reads one request of each, and writes the answer.

use std::io;
use std::net::{Shutdown, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::time::Duration;

use std::sync::Arc;

use super::access::{Way, check, may_enter};
use super::live::Live;
use super::places::{ADMITTED_MAX, Entrant};
use super::request::{HttpRequest, Method, REQUEST_BYTES_MAX, head_end};
use super::response::{HttpStatus, Response};
use super::routes::{Observed, answer};
use super::socket::{old_sockets, user};
use crate::net::credentials::peer_cred;
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::time::{sleep, timeout};
use crate::{OnCancel, SpawnOptions};

/// The time that a request has to arrive, and that the response has to be taken.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the rest of a refused request is read. A connection that is closed with bytes
/// unread is reset, and the client loses the response.
const LINGER: Duration = Duration::from_secs(1);
/// The time until a listener that failed tries again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The time that a listener gets to take a connection, before it counts as alive.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The last event of a connection that follows a scheduler that has ended.
const LIVE_END: &str = "event: end\ndata: {}\n\n";

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

/// Starts the process of a connection.
fn begin(connection: Connection, way: Way, observed: &Arc<Observed>) {
    let entrant = Entrant::new(observed.places(way));
    let number = entrant.number();
    let options = SpawnOptions::new().label("connection").on_cancel(OnCancel::Drop);
    let serving = Arc::clone(observed);
    let process = options.spawn(async move {
        serve(&connection, way, &serving, entrant).await;
    });
    observed.places(way).attach(number, process);
}

async fn serve(connection: &Connection, way: Way, observed: &Arc<Observed>, mut entrant: Entrant) {
    let answer = match timeout(TRANSFER_TIMEOUT, read(connection)).await {
        Ok(Ok(Some(head))) => respond(&head, way, observed, &mut entrant).await,
        // The client went away.
        Ok(Ok(None) | Err(_)) => return,
        Err(_) => DoorAnswer::of(HttpStatus::TimedOut.into()),
    };
    let bytes = match answer {
        DoorAnswer::Whole(bytes) => bytes,
        DoorAnswer::Live(live) => return follow(connection, *live, observed).await,
    };
    let written = timeout(TRANSFER_TIMEOUT, connection.write_all(&bytes)).await;
    if matches!(written, Ok(Ok(()))) && connection.end_writing().is_ok() {
        // Ignored: the client has what it asked for.
        let _ = timeout(LINGER, drain(connection)).await;
    }
}

/// Writes an event after the other, until the client goes away or does not read an event in time,
/// or the scheduler ends.
async fn follow(connection: &Connection, mut live: Live, observed: &Observed) {
    let mut bytes = Response::events_head();
    loop {
        let event = live.event(observed);
        let next = event.as_ref().map(|event| event.next);
        let text = event.map_or_else(|| LIVE_END.to_owned(), |event| event.text);
        bytes.extend_from_slice(text.as_bytes());
        let written = timeout(TRANSFER_TIMEOUT, connection.write_all(&bytes)).await;
        bytes.clear();
        let (Ok(Ok(())), Some(next)) = (written, next) else { return };
        // The drain ends when the client goes away.
        if timeout(next, drain(connection)).await.is_ok() {
            return;
        }
    }
}

/// Reads the head of a request. If the head exceeds the limit, reads only as much as the limit.
/// Returns `None` if the connection ends before.
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

/// The answer to a request.
enum DoorAnswer {
    Whole(Vec<u8>),
    Live(Box<Live>),
}

impl DoorAnswer {
    fn of(response: Response) -> Self {
        Self::Whole(response.bytes(true))
    }
}

async fn respond(
    head: &[u8],
    way: Way,
    observed: &Arc<Observed>,
    entrant: &mut Entrant,
) -> DoorAnswer {
    if head.len() > REQUEST_BYTES_MAX {
        return DoorAnswer::of(HttpStatus::HeadTooLarge.into());
    }
    let request = match HttpRequest::parse(head) {
        Ok(request) => request,
        Err(status) => return DoorAnswer::of(status.into()),
    };
    let response = match check(&request, way, &observed.keys) {
        Err(response) => response,
        Ok(()) if !entrant.admit() => {
            let text = format!("the door serves {ADMITTED_MAX} connections at once");
            Response::error(HttpStatus::Unavailable, &text)
        }
        Ok(()) if request.path == "/live" => match Live::new(&request, observed) {
            Ok(live) => return DoorAnswer::Live(Box::new(live)),
            Err(response) => response,
        },
        Ok(()) => answer(&request, observed).await,
    };
    DoorAnswer::Whole(response.bytes(request.method != Method::Head))
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
