//! `procession node`: a program in Lua that is a node of a cluster. `procession cluster`: asks such
//! a node.

pub(crate) mod status;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use procession::net::Host;
use procession::process::OnCancel;
use procession::scheduler::BuildError;
use procession::time::Instant;
use procession::{Context, SpawnOptions};
use procession_cluster::{
    ConnectError, Cookie, Grants, Letter, Node, NodeBuilder, PeerInfo, StartError, StatusError,
    Tls, TlsError,
};
use procession_lua::Output;

use crate::failure::Failure;
use crate::permissions::{Allowed, Kind};

/// The time after which a connection is tried again, at first and at most.
const AGAIN_MIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(15);

/// A node, and the host and port at which it listens, if its EPMD is not to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    name: String,
    address: Option<String>,
}

impl FromStr for Peer {
    type Err = ();

    /// Parses `word@host`, `word@host:port` or `word@host@address:port`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (word, rest) = text.split_once('@').ok_or(())?;
        let (host, address) = match (rest.split_once('@'), rest.split_once(':')) {
            (Some((host, address)), _) => (host, Some(address)),
            (None, Some((host, _))) => (host, Some(rest)),
            (None, None) => (rest, None),
        };
        let port = address.map(|address| address.rsplit_once(':').ok_or(())).transpose()?;
        let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
        if word.is_empty() || host.is_empty() || !port.is_none_or(is_port) {
            return Err(());
        }
        Ok(Self { name: format!("{word}@{host}"), address: address.map(str::to_owned) })
    }
}

/// A grant to send: the nodes, and the name of the process if it is not to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sends {
    nodes: String,
    name: Option<String>,
}

impl FromStr for Sends {
    type Err = ();

    /// Parses `nodes` or `nodes=name`. No name of a node has the sign, and no name is empty.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (nodes, name) = match text.split_once('=') {
            Some((_, "")) => return Err(()),
            Some((nodes, name)) => (nodes, Some(name.to_owned())),
            None => (text, None),
        };
        Ok(Self { nodes: nodes.to_owned(), name })
    }
}

/// The options of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeArgs {
    pub(crate) name: Option<String>,
    pub(crate) cookie_file: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) no_epmd: bool,
    pub(crate) is_visible: bool,
    pub(crate) patience: Option<u64>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) sends: Vec<Sends>,
    pub(crate) monitors: Vec<String>,
    /// Implied by a grant to send or to monitor.
    pub(crate) grants_only: bool,
    pub(crate) looks: Vec<String>,
    pub(crate) exits: Vec<String>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) accepts_plain_text: bool,
    pub(crate) json: bool,
}

/// The error of a node.
#[derive(Debug)]
pub(crate) enum NodeError {
    /// Without a file of the options, there must be a home.
    NoHome,
    Cookie(io::Error),
    /// Some of the three files are missing.
    SomeTls,
    /// The certificate is not for the host of a made-up name.
    NoName,
    Tls(TlsError),
    Start(StartError),
    Scheduler(BuildError),
    /// Holds the name of the node that was asked.
    Connect(String, ConnectError),
    Status(String, StatusError),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHome => f.write_str("no cookie: set --cookie-file, or the variable HOME"),
            Self::Cookie(error) => write!(f, "no cookie: {error}"),
            Self::SomeTls => f.write_str("--tls-cert, --tls-key and --tls-ca go together"),
            Self::NoName => f.write_str("set --name: the host in it is that of the certificate"),
            Self::Tls(error) => write!(f, "no TLS: {error}"),
            Self::Start(error @ StartError::Register(_)) => {
                write!(f, "cannot start the node: {error}; install `epmd`, or set --no-epmd")
            }
            Self::Start(error) => write!(f, "cannot start the node: {error}"),
            Self::Scheduler(error) => write!(f, "cannot start a scheduler: {error}"),
            Self::Connect(name, error) => write!(f, "cannot connect to {name}: {error}"),
            Self::Status(name, error) => write!(f, "cannot ask {name}: {error}"),
        }
    }
}

impl Error for NodeError {}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl NodeArgs {
    fn cookie(&self, creates: bool) -> Result<Cookie, NodeError> {
        let path = match &self.cookie_file {
            Some(path) => path.clone(),
            None => {
                let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
                PathBuf::from(home.ok_or(NodeError::NoHome)?).join(".erlang.cookie")
            }
        };
        let cookie = if creates { Cookie::read_or_create(path) } else { Cookie::read(path) };
        cookie.map_err(NodeError::Cookie)
    }

    /// Returns a builder of a node with the cookie and the certificates.
    fn builder(&self, name: &str, creates: bool) -> Result<NodeBuilder, NodeError> {
        let mut builder = Node::builder(name).cookie(self.cookie(creates)?);
        builder = match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (Some(certificate), Some(key), Some(authority)) => {
                builder.tls(Tls::read(certificate, key, authority).map_err(NodeError::Tls)?)
            }
            (None, None, None) => builder,
            _ => return Err(NodeError::SomeTls),
        };
        Ok(if self.accepts_plain_text { builder.accept_plain_text() } else { builder })
    }

    /// Permits the program what the options permit: to use the nodes to which it connects.
    pub(crate) fn allow(&self, allowed: &mut Allowed) {
        for peer in &self.peers {
            allowed.add(Kind::Net, Some(peer.name.clone().into()));
        }
    }

    /// Returns what is granted to the same nodes together.
    fn grants(&self) -> BTreeMap<&str, Grants> {
        let mut all = BTreeMap::<&str, Grants>::new();
        let mut add = |nodes, more: &dyn Fn(Grants) -> Grants| {
            let grants = all.entry(nodes).or_default();
            *grants = more(std::mem::take(grants));
        };
        for Sends { nodes, name } in &self.sends {
            add(nodes, &|grants| match name {
                Some(name) => grants.send(name),
                None => grants.send_all(),
            });
        }
        self.monitors.iter().for_each(|nodes| add(nodes, &Grants::monitor));
        self.looks.iter().for_each(|nodes| add(nodes, &Grants::look));
        self.exits.iter().for_each(|nodes| add(nodes, &Grants::exits));
        all
    }

    /// Starts the node in the running scheduler. On `err`, which is standard error, it reports the
    /// address at which the node listens, and each connection that begins or ends, with the reason.
    pub(crate) async fn start(&self, err: &Output) -> Result<Node, NodeError> {
        let name = self.name.as_deref().unwrap_or_default();
        let listen = self.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
        let mut builder = self.builder(name, true)?.listen(listen);
        if !self.no_epmd {
            builder = builder.register();
        }
        if self.is_visible {
            builder = builder.visible();
        }
        if let Some(patience) = self.patience {
            builder = builder.patience(Duration::from_secs(patience));
        }
        if self.grants_only || !self.sends.is_empty() || !self.monitors.is_empty() {
            builder = builder.grants_only();
        }
        for (nodes, grants) in self.grants() {
            builder = builder.grant(nodes, grants);
        }
        let node = builder.start().await.map_err(NodeError::Start)?;
        if let Some(address) = node.local_addr() {
            report(err, &format!("{name} listens at {address}"));
        }
        let (logged, log) = (node.clone(), err.clone());
        let options = SpawnOptions::new().label("log of connections").on_cancel(OnCancel::Drop);
        drop(options.start(move |cx| log_connections(cx, logged, log)));
        // All nodes of a cluster may have the same list.
        for peer in self.peers.iter().filter(|peer| peer.name != name).cloned() {
            let (own, err) = (node.clone(), err.clone());
            let options = SpawnOptions::new().label(format!("connects to {}", peer.name));
            let options = options.on_cancel(OnCancel::Drop);
            drop(options.start(move |cx| stay_connected(cx, own, peer, err)));
        }
        Ok(node)
    }
}

fn report(err: &Output, text: &str) {
    // Ignored: without room there is no report.
    err.try_write(format!("procession: {text}\n").as_bytes());
}

async fn connect(node: &Node, peer: &Peer) -> Result<(), ConnectError> {
    let Some(address) = &peer.address else { return node.connect(&peer.name).await };
    let found = Host::from(address.as_str()).addresses().await.map_err(ConnectError::Find)?;
    let mut result = Err(ConnectError::Find(io::ErrorKind::NotFound.into()));
    for address in found {
        result = node.connect_at(&peer.name, address).await;
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Reports each connection that begins or ends, with the reason.
async fn log_connections(mut cx: Context<Letter>, node: Node, err: Output) {
    node.subscribe(&cx.address().map(|letter| letter));
    while let Some(letter) = cx.recv().await {
        match letter {
            Letter::NodeUp { node, .. } => report(&err, &format!("{} is connected", node.as_str())),
            Letter::NodeDown { node, why, unconfirmed, .. } => {
                let unconfirmed = unconfirmed.filter(|count| *count > 0);
                let lost = unconfirmed.map_or(String::new(), |count| {
                    format!("; {count} messages to it are not confirmed")
                });
                report(&err, &format!("{} is gone: {why}{lost}", node.as_str()));
            }
            _ => {}
        }
    }
}

/// Connects to another node, and again when the connection has ended. Of failures in a row, reports
/// the first.
async fn stay_connected(mut cx: Context<Letter>, node: Node, peer: Peer, err: Output) {
    node.subscribe(&cx.address().map(|letter| letter));
    let mut pause = AGAIN_MIN;
    let mut is_reported = false;
    loop {
        match connect(&node, &peer).await {
            Ok(()) => {
                let since = Instant::now();
                if until_down(&mut cx, &node, &peer).await.is_none() {
                    return;
                }
                is_reported = false;
                // A node that ends each connection immediately is not asked again immediately.
                if Instant::now().saturating_duration_since(since) >= AGAIN_MAX {
                    pause = AGAIN_MIN;
                }
            }
            Err(ConnectError::Stopped) => return,
            Err(error) => {
                if !is_reported {
                    let text = format!("cannot connect to {}: {error}; goes on trying", peer.name);
                    report(&err, &text);
                }
                is_reported = true;
            }
        }
        // Letters about other nodes must not pile up during the wait.
        let letters = async { while cx.recv().await.is_some() {} };
        let _ = procession::timeout(pause, letters).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// Waits for the end of the connection to a node. Returns `None` if the process is to end.
async fn until_down(cx: &mut Context<Letter>, own: &Node, peer: &Peer) -> Option<()> {
    // There may be letters about connections before this one.
    let is_it = |info: &PeerInfo| info.name.as_str() == peer.name;
    let current = own.peers().into_iter().find(is_it).map_or(0, |info| info.connection);
    loop {
        match cx.recv().await? {
            Letter::NodeDown { node, connection, .. }
                if node.as_str() == peer.name && connection >= current =>
            {
                return Some(());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use procession_cluster::Grants;

    use super::{NodeArgs, Peer, Sends};

    #[test]
    fn grants_to_the_same_nodes_add_up() {
        let parse = |text: &str| text.parse().expect("each text is one");
        let args = NodeArgs {
            sends: ["a@b", "*@b=shop", "*@b=till"].map(parse).into(),
            monitors: vec!["*@b".into(), "*".into()],
            looks: vec!["a@b".into()],
            exits: vec!["*@b".into()],
            ..NodeArgs::default()
        };
        let of_host = Grants::new().send("shop").send("till").monitor().exits();
        let expected = [
            ("*", Grants::new().monitor()),
            ("*@b", of_host),
            ("a@b", Grants::new().send_all().look()),
        ];
        assert_eq!(args.grants().into_iter().collect::<Vec<_>>(), expected);
        assert_eq!("*@b=".parse::<Sends>(), Err(()), "a process without a name");
    }

    #[test]
    fn a_peer_is_a_node_with_or_without_an_address() {
        for (text, name, address) in [
            ("a@b.c", "a@b.c", None),
            ("a@b.c:80", "a@b.c", Some("b.c:80")),
            ("a@b.c@10.0.0.1:80", "a@b.c", Some("10.0.0.1:80")),
            ("a@b.c@[::1]:80", "a@b.c", Some("[::1]:80")),
        ] {
            let address = address.map(str::to_owned);
            assert_eq!(text.parse(), Ok(Peer { name: name.to_owned(), address }), "{text}");
        }
        for text in ["a", "@b", "a@", "a@b:c", "a@b@c", "a@b@c:65536", "a@:80"] {
            assert_eq!(text.parse::<Peer>(), Err(()), "{text}");
        }
    }
}
