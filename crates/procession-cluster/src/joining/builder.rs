//! Starting a node.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::Event;
use procession::net::{TcpListener, TcpStream};
use procession::process::{OnCancel, SpawnCause};
use procession::sync::Notify;
use procession::time::Instant;
use procession::{Context, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;

use crate::cookie::Cookie;
use crate::epmd::Registered;
use crate::grants::{AllGrants, GrantError, Grants};
use crate::handshake::{Introduction, flags, split};
use crate::joining::find::{self, Find};
use crate::joining::handshakes::{self, Handshakes};
use crate::node::peers::Peers;
use crate::node::refusals::{self, Refusals};
use crate::node::{Inner, Locals, NoMessage, Node};
use crate::pulse::Beat;
use crate::term::Atom;
use crate::tls::Tls;
use crate::{chance, epmd};

/// The time for which no connection is accepted after an error, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a registration at EPMD lasts, as a rule. If it ends sooner, the next registration waits
/// for longer.
const REGISTERED: Duration = Duration::from_secs(10);
/// The limit of messages, unless another is set, and the lowest and the highest.
const MESSAGE_LIMIT: usize = 2 << 30;
const MESSAGE_LIMIT_MIN: usize = 1 << 20;
/// The length of a frame has 32 bits.
const MESSAGE_LIMIT_MAX: usize = (u32::MAX - (1 << 20)) as usize;
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Builds a [`Node`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct NodeBuilder {
    name: Arc<str>,
    cookie: Option<Cookie>,
    tls: Option<Tls>,
    listen: Option<SocketAddr>,
    epmd: Option<SocketAddr>,
    registers: bool,
    is_visible: bool,
    connect_timeout: Duration,
    patience: Duration,
    grants: Vec<(String, Grants)>,
    grants_only: bool,
    finds: Vec<Find>,
    accepts_plain_text: bool,
    message_limit: usize,
}

/// The error of starting a node.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The name is not of the form `word@host`.
    Name(String),
    /// There is no cookie.
    NoCookie,
    /// The patience is not from 1 to 60 seconds.
    Patience(Duration),
    /// A grant is not to nodes.
    Grant(GrantError),
    /// The address is not on this machine only, and connections would not be encrypted. See
    /// [`NodeBuilder::tls`] and [`NodeBuilder::accept_plain_text`].
    PlainText(SocketAddr),
    /// The node cannot listen at its address.
    Listen(SocketAddr, io::Error),
    /// The environment variable `ERL_EPMD_PORT` has this text, which is no port.
    EpmdPort(String),
    /// The node cannot be registered at the EPMD.
    Register(io::Error),
    /// The system has no random bytes.
    Random(io::Error),
    /// The scheduler refuses a process of the node.
    Process(SpawnCause),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?} is not a name such as word@host"),
            Self::NoCookie => f.write_str("the node has no cookie"),
            Self::Patience(patience) => {
                write!(f, "a patience of {patience:?} is not from 1 to 60 seconds")
            }
            Self::Grant(error) => write!(f, "a grant is wrong: {error}"),
            Self::PlainText(address) => write!(
                f,
                "{address} can be reached from other machines, the node has no certificate, and plain \
                 text was not accepted"
            ),
            Self::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            Self::EpmdPort(text) => write!(f, "ERL_EPMD_PORT is {text:?}, which is no port"),
            Self::Register(error) => write!(f, "cannot register the node: {error}"),
            Self::Random(error) => write!(f, "the system has no random bytes: {error}"),
            Self::Process(cause) => write!(f, "the node has not got all its processes: {cause}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Register(error) | Self::Random(error) => Some(error),
            Self::Grant(error) => Some(error),
            Self::Process(cause) => Some(cause),
            _ => None,
        }
    }
}

impl Node {
    /// Returns a builder of a node with this name, such as `shop@127.0.0.1`.
    pub fn builder(name: impl Into<Arc<str>>) -> NodeBuilder {
        NodeBuilder {
            name: name.into(),
            cookie: None,
            tls: None,
            listen: None,
            epmd: None,
            registers: false,
            is_visible: false,
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(4),
            grants: Vec::new(),
            grants_only: false,
            finds: Vec::new(),
            accepts_plain_text: false,
            message_limit: MESSAGE_LIMIT,
        }
    }
}

impl NodeBuilder {
    /// Sets the cookie, which all nodes of the cluster have. It must be set.
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = Some(cookie);
        self
    }

    /// Sets the certificate of the node, and the authority that must have signed the certificates
    /// of other nodes. All connections are encrypted then, also on this machine, and nodes without
    /// a certificate are refused. By default, there is none, and the node only talks to its
    /// machine.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Listens at an address, so that other nodes can connect. By default, the node does not
    /// listen. Port 0 takes any free port, which [`Node::local_addr`] returns.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Registers the node at the EPMD of this machine, so that other nodes find its port by its
    /// name, as `iex --sname` does. It has no effect if the node does not listen. If no EPMD runs,
    /// the program `epmd` is started, which then outlives this one.
    ///
    /// If EPMD ends, the node is registered again once it runs: after 100 milliseconds, and then
    /// after twice the time before, up to 10 seconds, less a random part of up to a half.
    pub fn register(mut self) -> Self {
        self.registers = true;
        self
    }

    /// Makes the node visible: nodes of the BEAM count it among `nodes()`, so that `multi_call`,
    /// `abcast`, `rpc:multicall` and `pg` include it. By default, it is hidden.
    ///
    /// It takes no part in `global`: names that are registered there are not known here, and a node
    /// of the BEAM connects to no other node because of this one.
    pub fn visible(mut self) -> Self {
        self.is_visible = true;
        self
    }

    /// Sets the address of the EPMD of this machine, and the port of the EPMD of other machines.
    /// The default is the port that the environment variable `ERL_EPMD_PORT` has, as for nodes of
    /// the BEAM, or 4369 without it.
    pub fn epmd(mut self, address: SocketAddr) -> Self {
        self.epmd = Some(address);
        self
    }

    /// Sets the time limit for making a connection. To another node, that is the time to find its
    /// port, to reach its machine and for the handshake together; from another node, it is the time
    /// for the handshake. The default is 5 seconds.
    ///
    /// At most 32 connections from other nodes are in the handshake at a time. A new connection
    /// closes the oldest handshake of the address that has the most, because a connection may be by
    /// anybody before the handshake. TLS sessions have 32 places of their own, so that strangers
    /// without a certificate cannot close their handshakes.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time that another node has to give a sign of life when it is asked for one, from 1
    /// to 60 seconds. The default is 4 seconds.
    ///
    /// A node is asked if nothing has arrived from it for a quarter of that time. So a node that
    /// stops counts as unreachable after one to one and a quarter of its patience. Each node has a
    /// separate patience. Nodes of the BEAM answer as well, whatever their `net_ticktime`, which
    /// must not be shorter than this patience. If the program of this node was stopped, or had no
    /// processor, it begins a new patience with all other nodes, because it does not know whether
    /// they were silent.
    ///
    /// A node is given up as well if bytes wait for it and the system takes no byte for one and a
    /// quarter of the patience. A slow node is kept. It must read some 100 KiB in that time,
    /// whatever the patience is, because systems make room in steps of that size.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Grants permissions to nodes, as [`Node::grant`] does: to one node (`till@front.example`), to
    /// the nodes of a host (`*@front.example`), or to all nodes that can connect (`*`). By default,
    /// other nodes can send and monitor, and nothing else.
    pub fn grant(mut self, nodes: &str, grants: Grants) -> Self {
        self.grants.push((nodes.to_owned(), grants));
        self
    }

    /// Permits only what is granted: other nodes need [grants](Grants::send) to send to the
    /// processes of this node and to monitor them as well. Without a grant, they may only ask
    /// whether this node is there, and answer the calls of its processes.
    ///
    /// A message without a grant is dropped and counted ([`PeerInfo::denied`]). Nodes of this crate
    /// receive a statement of what they may send when they are connected, and after each change,
    /// unless it is more than 4096 names. Their processes get the message back:
    /// [`SendTermCause::NotAllowed`], or
    /// [`RelayCause::NotAllowed`](procession::mailbox::relay::RelayCause::NotAllowed). For about a
    /// round trip after a change, they may still be answered by the grants before it. The parts of
    /// a large message are held until it is whole, and only then its grant is looked at.
    ///
    /// ```
    /// use procession_cluster::{Grants, Node};
    ///
    /// let builder = Node::builder("shop@db.example")
    ///     .grants_only()
    ///     .grant("*@front.example", Grants::new().send("orders"))
    ///     .grant("watch@desk.example", Grants::new().monitor().look());
    /// ```
    ///
    /// [`PeerInfo::denied`]: crate::PeerInfo::denied
    /// [`SendTermCause::NotAllowed`]: crate::SendTermCause::NotAllowed
    pub fn grants_only(mut self) -> Self {
        self.grants_only = true;
        self
    }

    /// Connects to the nodes that are found, from the start on and in the background, and again
    /// when a connection is lost. By default, the node only connects on [`Node::connect`] and
    /// similar calls.
    ///
    /// A failed attempt is repeated after 100 milliseconds, and then after twice the time before,
    /// up to 10 seconds, of which a random part of up to a half is left out. What is found no more
    /// stays connected. It can be called several times.
    ///
    /// ```
    /// use procession_cluster::{Find, Node};
    ///
    /// let builder = Node::builder("shop@10.0.0.5")
    ///     .find(Find::dns("shop", "shop.default.svc.cluster.local", 4370))
    ///     .find(Find::nodes(["desk@front.example"]));
    /// ```
    pub fn find(mut self, find: Find) -> Self {
        self.finds.push(find);
        self
    }

    /// Sets the limit of messages in bytes, from 1 MiB to almost 4 GiB. The default is 2 GiB.
    ///
    /// A message that this node sends has at most so many bytes. A received message takes at most
    /// so many bytes of memory, and so do the parts of all unfinished messages of one node
    /// together. If a node sends more, its connection ends, and the reason names the limit: were a
    /// message dropped instead, its sender would take it for delivered. The memory is only taken as
    /// the parts arrive.
    pub fn message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes.clamp(MESSAGE_LIMIT_MIN, MESSAGE_LIMIT_MAX);
        self
    }

    /// Allows connections to and from other machines, although they are not encrypted: all that
    /// passes can be read and changed on the way, the cookie's proof included. By default, only
    /// this machine is allowed. With [`tls`](Self::tls), it has no effect.
    pub fn accept_plain_text(mut self) -> Self {
        self.accepts_plain_text = true;
        self
    }

    /// Starts the node in the running scheduler.
    ///
    /// # Errors
    /// [`StartError`] says what is wrong.
    pub async fn start(self) -> Result<Node, StartError> {
        let wrong = || StartError::Name(self.name.to_string());
        let (word, _) = split(&self.name).ok_or_else(wrong)?;
        let name = Atom::new(Arc::clone(&self.name)).ok_or_else(wrong)?;
        let cookie = self.cookie.ok_or(StartError::NoCookie)?;
        if !(PATIENCE_MIN..=PATIENCE_MAX).contains(&self.patience) {
            return Err(StartError::Patience(self.patience));
        }
        let mut grants = AllGrants::default();
        for (nodes, granted) in self.grants {
            grants.set(&nodes, granted).map_err(StartError::Grant)?;
        }
        let epmd = match self.epmd {
            Some(address) => address,
            None => epmd::local().map_err(StartError::EpmdPort)?,
        };
        let listener = match self.listen {
            Some(address)
                if self.tls.is_none()
                    && !self.accepts_plain_text
                    && !address.ip().is_loopback() =>
            {
                return Err(StartError::PlainText(address));
            }
            Some(address) => {
                let failed = |error| StartError::Listen(address, error);
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                Some((listener, address))
            }
            None => None,
        };
        let registration = match &listener {
            Some((_, listens_at)) if self.registers => {
                let (listens_at, is_visible) = (*listens_at, self.is_visible);
                let own = Registered { word, listens_at, is_visible };
                let registered = epmd::register_or_start(epmd, own, self.connect_timeout).await;
                Some(registered.map_err(StartError::Register)?)
            }
            _ => None,
        };
        // Incarnations 0 to 3 have a meaning of their own in old versions of the protocol.
        let creation = chance::number().map_err(StartError::Random)?.max(4);
        let flags = flags::OWN | if self.is_visible { flags::PUBLISHED } else { 0 };
        let node = Node(Arc::new(Inner {
            own: Introduction { name, creation, flags },
            cookie,
            tls: self.tls,
            connect_timeout: self.connect_timeout,
            patience: self.patience,
            beat: Beat::default(),
            losses: AtomicU64::new(0),
            grants: Mutex::new(grants),
            grants_only: self.grants_only,
            accepts_plain_text: self.accepts_plain_text,
            message_limit: self.message_limit,
            epmd,
            listens_at: listener.as_ref().map(|(_, address)| *address),
            locals: Mutex::new(Locals::default()),
            exports: Mutex::new(HashMap::new()),
            find_name: Mutex::new(None),
            peers: Mutex::new(Peers::default()),
            refusal: Mutex::new(()),
            remotes: Mutex::default(),
            changed: Notify::new(),
            parts: Mutex::default(),
            refusals: Refusals::default(),
            dial_failures: Refusals::default(),
            references: AtomicU64::new(1),
            open_calls: Arc::default(),
            keeper: Mutex::new(None),
            scheduler: OnceLock::new(),
        }));
        let listener = listener.map(|(listener, _)| listener);
        let keeper = {
            let node = node.clone();
            let options = SpawnOptions::new().label(format!("node {}", self.name));
            let keeper = options.try_start(move |cx| keep(cx, node, listener, registration));
            keeper.map_err(|refused| StartError::Process(refused.into()))?
        };
        // Ignored: nobody else sets it.
        let _ = node.0.scheduler.set(keeper.pid().scheduler());
        *node.0.keeper.lock() = Some(keeper.address().clone());
        for find in self.finds {
            let options = SpawnOptions::new().label(format!("finder of {}", node.name()));
            let finds = find::find(node.clone(), find);
            // It continues until the node stops.
            let finder = options.on_cancel(OnCancel::Drop).try_spawn(finds);
            if let Err(cause) = finder.map_err(SpawnCause::from) {
                drop(node.stop());
                // Ignored: it ends, and with it what the node has at its address and at EPMD.
                drop(keeper.await);
                return Err(StartError::Process(cause));
            }
        }
        Ok(node)
    }
}

/// Accepts connections, notices the ends of attached processes, and keeps the node registered.
async fn keep(
    mut cx: Context<NoMessage>,
    node: Node,
    listener: Option<TcpListener>,
    registration: Option<TcpStream>,
) {
    let handshakes = Handshakes::default();
    let mut registered = pin!(stay_registered(&node, registration));
    let shown = node.clone();
    let _inspecting = cx.inspect_with(move |out| shown.show(out));
    let shown = node.clone();
    let _shown = cx.show_section("cluster", move |section| shown.show_section(section));
    loop {
        let next = {
            let mut event = pin!(cx.recv_event());
            let mut accepted = pin!(async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            });
            poll_fn(|task| {
                if let Poll::Ready(event) = event.as_mut().poll(task) {
                    return Poll::Ready(Ok(event));
                }
                let Poll::Pending = registered.as_mut().poll(task);
                accepted.as_mut().poll(task).map(Err)
            })
            .await
        };
        match next {
            // The registration ends as well.
            Ok(None) => break,
            Ok(Some(Event::Down(down))) => node.detach(down.pid),
            Ok(Some(_)) => {}
            Err(Ok((stream, from))) => {
                // Here, so that they are admitted in the order of their arrival.
                let place = handshakes.admit(from.ip());
                let accepted = handshakes::accept(node.clone(), stream, from, place);
                let handshake = async move { refusals::tell(accepted.await) };
                let label = format!("handshake with {from}");
                let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
                drop(options.spawn(handshake));
            }
            Err(Err(error)) => {
                let what = || "no connection could be accepted".to_owned();
                refusals::tell_apart(node.0.refusals.report("accept", what, error));
                procession::sleep(PAUSE).await;
            }
        }
    }
}

/// Keeps a node registered at EPMD, which forgets it when the connection ends, as when EPMD is
/// started again.
async fn stay_registered(node: &Node, mut registration: Option<TcpStream>) -> Infallible {
    let (Some((word, _)), Some(listens_at)) = (split(node.name().as_str()), node.local_addr())
    else {
        return std::future::pending().await;
    };
    let own = Registered { word, listens_at, is_visible: node.is_visible() };
    let mut wait = Duration::ZERO;
    while let Some(stream) = registration.take() {
        let since = Instant::now();
        // It sends nothing else.
        while matches!(stream.read(&mut [0; 16]).await, Ok(1..)) {}
        drop(stream);
        // Otherwise an EPMD that closes each registration would be asked without end.
        if Instant::now() >= since + REGISTERED {
            wait = Duration::ZERO;
        }
        while registration.is_none() {
            let pause;
            (pause, wait) = find::wait_after(wait);
            procession::sleep(pause).await;
            let limit = node.connect_timeout();
            // Ignored: EPMD may not run yet, or not have noticed the end of the connection.
            registration = epmd::register(node.0.epmd, own, limit).await.ok();
        }
    }
    std::future::pending().await
}
