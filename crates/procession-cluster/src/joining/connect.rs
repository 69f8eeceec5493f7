//! Making connections, in both directions.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;

use procession::SpawnOptions;
use procession::net::TcpStream;
use procession::process::SpawnCause;
use procession::time::Instant;

use crate::carrier::Carrier;
use crate::handshake::{
    Handshake, HandshakeError, Introduction, PLAIN_LENGTH_BYTES, Progress, Status,
    TLS_LENGTH_BYTES, split,
};
use crate::node::Node;
use crate::node::admission::Attempt;
use crate::node::peers::{Dial, Side};
use crate::term::Atom;
use crate::{chance, connection, epmd, tls};

/// The error of connecting to a node. It says which stage has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name is not of the form `word@host`, or it is the name of this node.
    Name(String),
    /// The port of the node could not be found.
    Find(io::Error),
    /// The node could not be reached.
    Reach(io::Error),
    /// The address is not on this machine, and the connection would not be encrypted. See
    /// [`NodeBuilder::accept_plain_text`](crate::NodeBuilder::accept_plain_text).
    PlainText(SocketAddr),
    /// There is no TLS session: a certificate is not by the authority, or not for the host in the
    /// name of the node, or the other side speaks something else.
    Tls(rustls::Error),
    /// The handshake has failed.
    Handshake(HandshakeError),
    /// The connection ended during the handshake.
    Lost(io::Error),
    /// It took longer than the [time limit](crate::NodeBuilder::connect_timeout), or than the time
    /// limit of [`Node::ping`].
    TimedOut,
    /// The scheduler has started no process for the connection.
    Process(SpawnCause),
    /// This node has stopped, or [leaves](Node::drain) the cluster.
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
            Self::Tls(error) => write!(f, "the connection is not secure: {error}"),
            Self::Handshake(error) => write!(f, "the handshake has failed: {error}"),
            Self::Lost(error) => write!(f, "the connection ended during the handshake: {error}"),
            Self::TimedOut => f.write_str("connecting took longer than the time limit"),
            Self::Process(cause) => write!(f, "the connection has got no process: {cause}"),
            Self::Stopped => f.write_str("this node has stopped, or leaves the cluster"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Find(error) | Self::Reach(error) | Self::Lost(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::Handshake(error) => Some(error),
            Self::Process(cause) => Some(cause),
            _ => None,
        }
    }
}

impl Node {
    /// Connects to a node at the port that its EPMD returns. Returns immediately if they are
    /// connected.
    ///
    /// # Errors
    /// [`ConnectError`] says which stage has failed.
    ///
    /// # Cancellation
    /// If the future is dropped, the nodes may be connected or not.
    pub async fn connect(&self, name: &str) -> Result<(), ConnectError> {
        self.connect_by(name, None).await
    }

    /// Connects to a node that listens at an address, without asking an EPMD. Returns immediately
    /// if they are connected.
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
        let limit = Instant::now() + self.0.connect_timeout;
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let is_impatient = Instant::now() >= limit;
            let dial = self.0.peers.lock().dial(&peer, is_impatient);
            let attempt = match dial {
                Dial::Stopped => return Err(ConnectError::Stopped),
                Dial::Connected => return Ok(()),
                Dial::GiveUp => return Err(ConnectError::TimedOut),
                // The attempt of another process of this node ends by itself.
                Dial::Wait if is_impatient => {
                    changed.await;
                    continue;
                }
                Dial::Wait => {
                    // Ignored: the loop looks again in any case.
                    let left = limit.saturating_duration_since(Instant::now());
                    let _ = procession::timeout(left, changed).await;
                    continue;
                }
                Dial::Begin(number) => Attempt::new(self.clone(), peer.clone(), number, Side::Own),
            };
            let number = attempt.number;
            match self.dial(&peer, word, host, at).await {
                Ok((carrier, introduction, come)) => {
                    self.start(carrier, introduction, come, attempt)?;
                    self.until_settled(&peer, number).await;
                    if let Some(outcome) = self.outcome(&peer) {
                        return outcome;
                    }
                }
                Err(ConnectError::Handshake(HandshakeError::Connected)) => {
                    // The connection that the other node makes is kept.
                    let settled = self.until_settled(&peer, number);
                    if procession::timeout(self.0.connect_timeout, settled).await.is_err() {
                        return Err(ConnectError::Handshake(HandshakeError::Connected));
                    }
                }
                // The other node may have connected during that time.
                Err(_) if self.0.peers.lock().link(&peer).is_some() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until an attempt of this node has become a connection or has ended.
    async fn until_settled(&self, peer: &Atom, attempt: u64) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if !self.0.peers.lock().is_connecting(peer, attempt) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the outcome of an attempt that is settled, or `None` if it has given way to one of
    /// the other node that waits.
    fn outcome(&self, peer: &Atom) -> Option<Result<(), ConnectError>> {
        let peers = self.0.peers.lock();
        if peers.link(peer).is_some() {
            Some(Ok(()))
        } else if peers.is_leaving() {
            Some(Err(ConnectError::Stopped))
        } else if peers.is_waiting(peer) {
            None
        } else {
            Some(Err(ConnectError::Lost(io::ErrorKind::UnexpectedEof.into())))
        }
    }

    async fn dial(
        &self,
        peer: &Atom,
        word: &str,
        host: &str,
        at: Option<SocketAddr>,
    ) -> Result<(Carrier, Introduction, Vec<u8>), ConnectError> {
        let limit = Instant::now() + self.0.connect_timeout;
        let left = || limit.saturating_duration_since(Instant::now());
        let address = match at {
            Some(address) => address,
            None => {
                let found = epmd::find(host, self.0.epmd.port(), word, left()).await;
                found.map_err(ConnectError::Find)?
            }
        };
        let reached = TcpStream::connect_timeout(address, left()).await;
        let stream = reached.map_err(ConnectError::Reach)?;
        self.check_address(&stream)?;
        let session = match &self.0.tls {
            Some(tls) => Some(tls.connect(host).map_err(insecure)?),
            None => None,
        };
        let mut carrier = Carrier::new(stream, session);
        let challenge = chance::number().map_err(ConnectError::Lost)?;
        let mut out = Vec::new();
        let (own, cookie) = (self.0.own.clone(), self.0.cookie.clone());
        let length = self.length_bytes();
        let handshake =
            Handshake::initiator(own, cookie, challenge, peer.clone(), length, &mut out);
        let mut attempt = None;
        let shake = async {
            secure(&mut carrier).await?;
            self.shake(&mut carrier, handshake, out, Some(peer), &mut attempt).await
        };
        let (introduction, come) = within(limit, shake).await?;
        Ok((carrier, introduction, come))
    }

    /// Begins the handshake with a node that has connected, by the TLS session if there is one.
    pub(super) async fn secure(
        &self,
        stream: TcpStream,
        limit: Instant,
    ) -> Result<Carrier, ConnectError> {
        self.check_address(&stream)?;
        let session = match &self.0.tls {
            Some(tls) => Some(tls.accept().map_err(insecure)?),
            None => None,
        };
        let mut carrier = Carrier::new(stream, session);
        within(limit, secure(&mut carrier)).await?;
        Ok(carrier)
    }

    /// Carries out the rest of the handshake with a node that has connected.
    pub(super) async fn accept(
        &self,
        mut carrier: Carrier,
        limit: Instant,
    ) -> Result<(), ConnectError> {
        let challenge = chance::number().map_err(ConnectError::Lost)?;
        let (own, cookie) = (self.0.own.clone(), self.0.cookie.clone());
        let handshake = Handshake::acceptor(own, cookie, challenge, self.length_bytes());
        let mut attempt = None;
        let shake = self.shake(&mut carrier, handshake, Vec::new(), None, &mut attempt);
        let (introduction, come) = within(limit, shake).await?;
        match attempt {
            Some(attempt) => self.start(carrier, introduction, come, attempt),
            // An acceptor is never done before its decision.
            None => Err(ConnectError::Handshake(HandshakeError::Protocol)),
        }
    }

    fn length_bytes(&self) -> usize {
        if self.0.tls.is_some() { TLS_LENGTH_BYTES } else { PLAIN_LENGTH_BYTES }
    }

    fn check_address(&self, stream: &TcpStream) -> Result<(), ConnectError> {
        let address = stream.peer_addr().map_err(ConnectError::Lost)?;
        let is_allowed = self.0.tls.is_some() || self.0.accepts_plain_text;
        match is_allowed || address.ip().to_canonical().is_loopback() {
            true => Ok(()),
            false => Err(ConnectError::PlainText(address)),
        }
    }

    /// Exchanges the messages of a handshake. Also returns the bytes that arrived after it. If the
    /// other node has connected, its attempt is entered.
    async fn shake(
        &self,
        carrier: &mut Carrier,
        mut handshake: Handshake,
        mut out: Vec<u8>,
        dialed: Option<&Atom>,
        attempt: &mut Option<Attempt>,
    ) -> Result<(Introduction, Vec<u8>), ConnectError> {
        let mut come = Vec::new();
        let mut buffer = [0; 512];
        loop {
            let progress = handshake.take(&mut come, &mut out);
            let progress = match progress {
                Ok(Progress::Decision(peer)) => {
                    // Before the name has any effect.
                    if let (Some(session), Some((_, host))) =
                        (carrier.session(), split(peer.name.as_str()))
                    {
                        tls::is_for(session, host).map_err(insecure)?;
                    }
                    let status = self.decide(&peer.name, attempt);
                    handshake.decide(status, &mut out).map(|()| Progress::More)
                }
                Ok(Progress::Alive) => {
                    let may_replace = |peer| self.0.peers.lock().may_replace(peer);
                    let replaces = dialed.is_some_and(may_replace);
                    handshake.replace(replaces, &mut out).map(|()| Progress::More)
                }
                other => other,
            };
            if !out.is_empty() {
                // A refusal is also sent.
                carrier.write_all(&out).await.map_err(lost_or_insecure)?;
                out.clear();
            }
            match progress.map_err(ConnectError::Handshake)? {
                Progress::Done(peer) => return Ok((peer, come)),
                Progress::Decision(_) | Progress::Alive => {}
                Progress::More if handshake.has_message(&come) => {}
                Progress::More => match carrier.read(&mut buffer).await {
                    Ok(0) => {
                        let lost = io::Error::from(io::ErrorKind::UnexpectedEof);
                        return Err(ConnectError::Lost(refused_proof(&handshake, lost)));
                    }
                    Ok(count) => come.extend(&buffer[..count]),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Err(ConnectError::Lost(refused_proof(&handshake, error)));
                    }
                    Err(error) => return Err(lost_or_insecure(error)),
                },
            }
        }
    }

    /// Decides about a node that has connected to this one, and enters its attempt.
    fn decide(&self, peer: &Atom, attempt: &mut Option<Attempt>) -> Status {
        let own = self.name();
        if peer == own || split(peer.as_str()).is_none() {
            return Status::NotAllowed;
        }
        let (status, number) = self.0.peers.lock().decide(own, peer);
        *attempt = Some(Attempt::new(self.clone(), peer.clone(), number, Side::Other));
        status
    }

    /// Starts the process of a connection.
    fn start(
        &self,
        carrier: Carrier,
        peer: Introduction,
        come: Vec<u8>,
        attempt: Attempt,
    ) -> Result<(), ConnectError> {
        let node = self.clone();
        let options = SpawnOptions::new().label(format!("connection to {}", peer.name.as_str()));
        let process = move |cx| connection::run(cx, node, carrier, peer, come, attempt);
        match options.try_start(process) {
            // It continues until the connection ends.
            Ok(_) => Ok(()),
            // With the closure, the socket and the attempt are dropped.
            Err(refused) => Err(ConnectError::Process(refused.into_parts().1)),
        }
    }
}

/// Begins a connection, with its TLS session if it has one.
async fn secure(carrier: &mut Carrier) -> Result<(), ConnectError> {
    // Small messages follow one another.
    carrier.stream.set_nodelay(true).map_err(ConnectError::Lost)?;
    carrier.secure().await.map_err(lost_or_insecure)
}

/// Returns the error of a connection that the other node has closed. That node states no reason.
fn refused_proof(handshake: &Handshake, error: io::Error) -> io::Error {
    if !handshake.has_proved() {
        return error;
    }
    let why = format!(
        "{error}, when the other node had this one's proof of the cookie: most likely, the nodes \
         have different cookies"
    );
    io::Error::new(error.kind(), why)
}

async fn within<T>(
    limit: Instant,
    shake: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let left = limit.saturating_duration_since(Instant::now());
    procession::timeout(left, shake).await.unwrap_or(Err(ConnectError::TimedOut))
}

fn insecure(error: rustls::Error) -> ConnectError {
    ConnectError::Tls(error)
}

/// Returns the error of a carrier, which may be one of its session.
fn lost_or_insecure(error: io::Error) -> ConnectError {
    match error.downcast::<rustls::Error>() {
        Ok(error) => ConnectError::Tls(error),
        Err(error) => ConnectError::Lost(error),
    }
}
