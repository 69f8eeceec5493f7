//! Making connections, in both directions.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use procession::SpawnOptions;
use procession::net::TcpStream;

use crate::handshake::{Handshake, HandshakeError, Introduction, Progress, Status};
use crate::node::{Node, Peer};
use crate::term::Atom;
use crate::{chance, connection, epmd};

/// The longest time that a handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The error of connecting to a node. It says which stage has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is not of the form `word@host`, or it is that of this node.
    Name(String),
    /// The port of the node could not be found.
    Find(io::Error),
    /// The node could not be reached.
    Reach(io::Error),
    /// The address is not on this machine, and the connection would not be encrypted. See
    /// [`NodeBuilder::accept_plain_text`](crate::NodeBuilder::accept_plain_text).
    PlainText(SocketAddr),
    /// The handshake has failed.
    Handshake(HandshakeError),
    /// The connection ended during the handshake.
    Lost(io::Error),
    /// The handshake took more than 5 seconds.
    TimedOut,
    /// This node has stopped.
    Stopped,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?} does not name another node as word@host does"),
            Self::Find(error) => write!(f, "the port of the node was not found: {error}"),
            Self::Reach(error) => write!(f, "the node was not reached: {error}"),
            Self::PlainText(address) => write!(
                f,
                "{address} is not on this machine, and plain text was not accepted for others"
            ),
            Self::Handshake(error) => write!(f, "the handshake has failed: {error}"),
            Self::Lost(error) => write!(f, "the connection ended during the handshake: {error}"),
            Self::TimedOut => f.write_str("the handshake took more than 5 seconds"),
            Self::Stopped => f.write_str("this node has stopped"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Find(error) | Self::Reach(error) | Self::Lost(error) => Some(error),
            Self::Handshake(error) => Some(error),
            _ => None,
        }
    }
}

impl Node {
    /// Connects to a node, whose port its EPMD knows. Returns at once if they are connected.
    ///
    /// # Errors
    /// [`ConnectError`] says which stage has failed.
    ///
    /// # Cancellation
    /// If the future is dropped, the nodes may be connected or not.
    pub async fn connect(&self, name: &str) -> Result<(), ConnectError> {
        self.connect_by(name, None).await
    }

    /// Connects to a node that listens at an address, without asking an EPMD. Returns at once if
    /// they are connected.
    ///
    /// # Errors
    /// [`ConnectError`] says which stage has failed.
    ///
    /// # Cancellation
    /// If the future is dropped, the nodes may be connected or not.
    pub async fn connect_at(&self, name: &str, address: SocketAddr) -> Result<(), ConnectError> {
        self.connect_by(name, Some(address)).await
    }

    async fn connect_by(&self, name: &str, at: Option<SocketAddr>) -> Result<(), ConnectError> {
        let wrong = || ConnectError::Name(name.to_owned());
        let (word, host) = split(name).ok_or_else(wrong)?;
        let peer = Atom::new(name).filter(|peer| *peer != *self.name()).ok_or_else(wrong)?;
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let is_first = {
                let mut peers = self.0.peers.lock();
                if peers.is_stopped {
                    return Err(ConnectError::Stopped);
                }
                match peers.by_name.get(&peer) {
                    Some(Peer::Connected(_)) => return Ok(()),
                    Some(Peer::Connecting) => false,
                    None => peers.by_name.insert(peer.clone(), Peer::Connecting).is_none(),
                }
            };
            if !is_first {
                // Another process is connecting.
                changed.await;
                continue;
            }
            let attempt = Attempt { node: self, peer: &peer };
            let dialed = self.dial(&peer, word, host, at).await;
            let dialed = match dialed {
                Ok((stream, introduction, come)) => {
                    self.start(stream, introduction, come);
                    // Until the process of the connection is known.
                    while matches!(self.0.peers.lock().by_name.get(&peer), Some(Peer::Connecting)) {
                        changed.as_mut().await;
                        changed.set(self.0.changed.notified());
                        changed.as_mut().enable();
                    }
                    Ok(())
                }
                Err(ConnectError::Handshake(HandshakeError::Connected)) => {
                    // The connection that the other node makes is the one to keep.
                    let arrives = procession::timeout(PATIENCE, changed.as_mut());
                    let arrived = arrives.await.is_ok();
                    let peers = self.0.peers.lock();
                    match peers.by_name.get(&peer) {
                        Some(Peer::Connected(_)) => Ok(()),
                        _ if arrived => {
                            drop(peers);
                            drop(attempt);
                            continue;
                        }
                        _ => Err(ConnectError::Handshake(HandshakeError::Connected)),
                    }
                }
                Err(error) => Err(error),
            };
            drop(attempt);
            return dialed;
        }
    }

    async fn dial(
        &self,
        peer: &Atom,
        word: &str,
        host: &str,
        at: Option<SocketAddr>,
    ) -> Result<(TcpStream, Introduction, Vec<u8>), ConnectError> {
        let reached = match at {
            Some(address) => TcpStream::connect(address).await,
            None => {
                let found = epmd::find(host, self.0.epmd.port(), word).await;
                TcpStream::connect(found.map_err(ConnectError::Find)?).await
            }
        };
        let stream = reached.map_err(ConnectError::Reach)?;
        self.check_address(&stream)?;
        let challenge = chance::number().map_err(ConnectError::Lost)?;
        let mut out = Vec::new();
        let (own, cookie) = (self.0.own.clone(), self.0.cookie.clone());
        let handshake = Handshake::initiator(own, cookie, challenge, peer.clone(), &mut out);
        let (introduction, come) = within(self.shake(&stream, handshake, out)).await?;
        Ok((stream, introduction, come))
    }

    /// Carries out the handshake with a node that has connected.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<(), ConnectError> {
        self.check_address(&stream)?;
        let challenge = chance::number().map_err(ConnectError::Lost)?;
        let handshake = Handshake::acceptor(self.0.own.clone(), self.0.cookie.clone(), challenge);
        let (introduction, come) = within(self.shake(&stream, handshake, Vec::new())).await?;
        self.start(stream, introduction, come);
        Ok(())
    }

    fn check_address(&self, stream: &TcpStream) -> Result<(), ConnectError> {
        let address = stream.peer_addr().map_err(ConnectError::Lost)?;
        match self.0.accepts_plain_text || address.ip().to_canonical().is_loopback() {
            true => Ok(()),
            false => Err(ConnectError::PlainText(address)),
        }
    }

    /// Exchanges the messages of a handshake. Returns the bytes that came after it, too.
    async fn shake(
        &self,
        stream: &TcpStream,
        mut handshake: Handshake,
        mut out: Vec<u8>,
    ) -> Result<(Introduction, Vec<u8>), ConnectError> {
        // Small messages follow each other.
        stream.set_nodelay(true).map_err(ConnectError::Lost)?;
        let mut come = Vec::new();
        let mut buffer = [0; 512];
        loop {
            let progress = handshake.take(&mut come, &mut out);
            let progress = match progress {
                Ok(Progress::Decision(peer)) => {
                    let status = self.decide(&peer.name);
                    handshake.decide(status, &mut out).map(|()| Progress::More)
                }
                other => other,
            };
            if !out.is_empty() {
                // A refusal is sent, too.
                stream.write_all(&out).await.map_err(ConnectError::Lost)?;
                out.clear();
            }
            match progress.map_err(ConnectError::Handshake)? {
                Progress::Done(peer) => return Ok((peer, come)),
                Progress::Decision(_) => {}
                Progress::More if has_message(&come) => {}
                Progress::More => match stream.read(&mut buffer).await {
                    Ok(0) => {
                        let lost = io::Error::from(io::ErrorKind::UnexpectedEof);
                        return Err(ConnectError::Lost(lost));
                    }
                    Ok(count) => come.extend(&buffer[..count]),
                    Err(error) => return Err(ConnectError::Lost(error)),
                },
            }
        }
    }

    /// Decides about a node that has connected to this one.
    fn decide(&self, peer: &Atom) -> Status {
        let own = self.name();
        if peer == own || split(peer.as_str()).is_none() {
            return Status::NotAllowed;
        }
        match self.0.peers.lock().by_name.get(peer) {
            None => Status::Ok,
            Some(Peer::Connected(_)) => Status::Alive,
            // Both connect to each other. The connection that the greater name makes is kept.
            Some(Peer::Connecting) if peer > own => Status::OkSimultaneous,
            Some(Peer::Connecting) => Status::Nok,
        }
    }

    /// Starts the process of a connection.
    fn start(&self, stream: TcpStream, peer: Introduction, come: Vec<u8>) {
        let node = self.clone();
        let options = SpawnOptions::new().label(format!("connection to {}", peer.name));
        // It goes on until the connection ends.
        drop(options.start(move |cx| connection::run(cx, node, stream, peer, come)));
    }
}

/// Returns `true` if the bytes may hold a whole message of a handshake.
fn has_message(come: &[u8]) -> bool {
    let length = come.first_chunk().map(|digits| usize::from(u16::from_be_bytes(*digits)));
    length.is_some_and(|length| come.len() >= 2 + length)
}

async fn within<T>(
    shake: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    procession::timeout(PATIENCE, shake).await.unwrap_or(Err(ConnectError::TimedOut))
}

/// An attempt to connect. When it ends without a connection, others may try.
struct Attempt<'a> {
    node: &'a Node,
    peer: &'a Atom,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut peers = self.node.0.peers.lock();
        if matches!(peers.by_name.get(self.peer), Some(Peer::Connecting)) {
            peers.by_name.remove(self.peer);
        }
        drop(peers);
        self.node.0.changed.notify_waiters();
    }
}

/// Splits the name of a node.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    let (word, host) = name.split_once('@')?;
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':'))
    };
    (is_word(word) && is_word(host)).then_some((word, host))
}
