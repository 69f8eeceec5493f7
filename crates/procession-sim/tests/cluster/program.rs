//! The program of a run: hosts with nodes that send, and what happens to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use procession::{Context, sleep, timeout};
use procession_cluster::{Cookie, Grants, Letter, Member, Node, Remote, SendTermCause, Tls};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::checker::{
    Connection, Defect, FRAGMENT_LEN, History, Incarnation, Laws, Planted, message,
};
use crate::ledger::Ledger;

pub(crate) const PORT: u16 = 4370;
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// The time after the last fault in which a cluster is whole again.
const RECOVERY: Duration = Duration::from_secs(300);

/// What the nodes of a run send to other nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Traffic {
    /// Small messages in plain text.
    Small,
    /// One in eight arrives in up to five parts, between which the connection may end.
    Large,
    /// The same by TLS.
    Secure,
}

impl Traffic {
    /// Returns the bytes that a message has besides its numbers.
    fn choose(self, sim: &Sim) -> usize {
        match self {
            Self::Large | Self::Secure if sim.choose(0..8) == 0 => {
                sim.choose(1..5) as usize * FRAGMENT_LEN
            }
            _ => 0,
        }
    }
}

/// Returns the certificate of all hosts. All signatures of its kind have one length. The
/// certificate is read again for each node, so that the node has no sessions of earlier runs: a
/// seed has the same lengths each time.
fn tls() -> Tls {
    let certificate = |pem: &[u8]| CertificateDer::from_pem_slice(pem).expect("it is one");
    let own = certificate(include_bytes!("tls/node.crt"));
    let authority = certificate(include_bytes!("tls/authority.crt"));
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/node.key")).expect("it is one");
    Tls::new(vec![own], key, vec![authority]).expect("they fit")
}

/// What all hosts of a run share.
pub(crate) struct World {
    pub(crate) sim: Sim,
    traffic: Traffic,
    history: Mutex<History>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) places: Mutex<Vec<IpAddr>>,
    /// The nodes, by the numbers of their hosts, and how often each was started.
    nodes: Mutex<Vec<(i64, Option<Node>)>>,
    /// Nothing more is sent.
    pub(crate) is_quiet: AtomicBool,
    /// The nodes are stopped, and nobody connects any more.
    pub(crate) is_over: AtomicBool,
    /// The time within which awaited events happen.
    recovery: Duration,
}

pub(crate) fn name(host: i64) -> String {
    format!("p@n{host}")
}

fn word(host: i64) -> String {
    format!("n{host}")
}

impl World {
    fn new(sim: &Sim, hosts: i64, traffic: Traffic, planted: Planted) -> Arc<Self> {
        let recovery = if planted.is_some() { RECOVERY / 20 } else { RECOVERY };
        Arc::new(Self {
            sim: sim.clone(),
            traffic,
            history: Mutex::new(History::new(Laws::new(sim, planted.clone()))),
            ledger: Mutex::new(Ledger::new(Laws::new(sim, planted))),
            places: Mutex::new(Vec::new()),
            nodes: Mutex::new((0..hosts).map(|_| (0, None)).collect()),
            is_quiet: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            recovery,
        })
    }

    // Relaxed: only one thread of a simulation runs at a time.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Relaxed)
    }

    pub(crate) fn node(&self, host: i64) -> Option<Node> {
        self.nodes.lock()[host as usize].1.clone()
    }

    /// Starts the node of a host.
    pub(crate) async fn start_node(&self, host: i64) -> (Node, Incarnation) {
        let node = start_node(host, self.traffic).await;
        let mut nodes = self.nodes.lock();
        let (starts, slot) = &mut nodes[host as usize];
        *starts += 1;
        *slot = Some(node.clone());
        if *starts > 1 {
            self.sim.sometimes("a node has ended and is another one", true);
        }
        (node, (host, *starts))
    }

    /// Returns the connection of a node to a host, as the node counts.
    fn connection(&self, node: &Node, own: Incarnation, to: i64) -> Option<Connection> {
        let name = name(to);
        let peers = node.peers();
        let peer = peers.iter().find(|peer| peer.name.as_str() == name)?;
        Some((own, to, i64::try_from(peer.connection).expect("it is small")))
    }

    /// Returns the connections in both directions between all hosts, or `None` if some are not
    /// connected.
    pub(crate) fn all_connections(&self, hosts: i64) -> Option<Vec<Connection>> {
        let mut all = Vec::new();
        for from in 0..hosts {
            let (starts, node) = self.nodes.lock()[from as usize].clone();
            let node = node?;
            for to in (0..hosts).filter(|to| *to != from) {
                all.push(self.connection(&node, (from, starts), to)?);
            }
        }
        Some(all)
    }
}

/// Starts a node, for which the system may lack a descriptor.
pub(crate) async fn start_node(host: i64, traffic: Traffic) -> Node {
    loop {
        let builder = Node::builder(name(host)).cookie(Cookie::new("secret").expect("a text"));
        let builder = match traffic {
            Traffic::Secure => builder.tls(tls()),
            Traffic::Small | Traffic::Large => builder.accept_plain_text(),
        };
        let builder = builder.patience(PATIENCE);
        let builder = builder.grant("*", Grants::new().exits().spawn_all());
        match builder.listen((Ipv4Addr::UNSPECIFIED, PORT).into()).start().await {
            Ok(node) => return node,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64) {
    let (node, own) = world.start_node(host).await;
    let sink =
        procession::start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} });
    // In the step in which the node was started, so that no message arrives before.
    let recipient = {
        // The node keeps it.
        let (world, node) = (Arc::clone(&world), node.downgrade());
        sink.address().map(move |letter: Letter| {
            let Some(node) = node.upgrade() else { return };
            let is_connected = |other| world.connection(&node, own, other).is_some();
            world.history.lock().letter(own, &letter, is_connected);
        })
    };
    let member = node.attach(&recipient);
    node.register("sink", &member).expect("the name is free");
    node.subscribe(&recipient);
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places = world.places.lock().clone();
    for (to, place) in (0..).zip(places) {
        if to != host {
            let sender = send(Arc::clone(&world), member.clone(), own, to, place);
            procession::spawn(sender).detach();
        }
    }
    std::future::pending::<()>().await;
}

/// Connects to another node whenever there is no connection, sends, and monitors.
async fn send(world: Arc<World>, member: Member, own: Incarnation, to: i64, place: IpAddr) {
    let node = member.node().clone();
    let sink = Remote::named("sink", &name(to));
    while !world.is_over.load(Relaxed) {
        let Some(connection) = world.connection(&node, own, to) else {
            if !world.is_quiet() {
                refused(&world, &member, &sink, (own, to, 0));
            }
            dial(&world, &node, to, place).await;
            continue;
        };
        if !world.is_quiet() {
            // In one step, so that the connection is still the connection that was looked up.
            for _ in 0..world.sim.choose(1..4) {
                let n = world.history.lock().next(connection);
                let length = world.traffic.choose(&world.sim);
                match member.send(sink.clone(), message(connection, n, length)) {
                    Ok(()) => world.history.lock().sent(connection, true),
                    Err(refused) => {
                        world.history.lock().sent(connection, false);
                        let is_full = refused.cause() == SendTermCause::Full;
                        world.sim.always("a connected node takes a message", is_full);
                        break;
                    }
                }
            }
            if world.sim.choose(0..4) == 0 {
                let monitor = member.monitor(sink.clone());
                world.history.lock().monitored(own, monitor);
            }
        }
        sleep(Duration::from_millis(world.sim.choose(1..400))).await;
    }
}

/// Tries to connect to another node.
pub(crate) async fn dial(world: &World, node: &Node, to: i64, place: IpAddr) {
    let (name, place) = (name(to), SocketAddr::new(place, PORT));
    // Ignored: the caller tries again.
    drop(timeout(Duration::from_secs(10), node.connect_at(&name, place)).await);
    sleep(Duration::from_millis(world.sim.choose(1..50))).await;
}

/// Connects to another node again and again.
pub(crate) async fn stay_connected(world: Arc<World>, node: Node, to: i64, place: IpAddr) {
    while !world.is_over.load(Relaxed) {
        dial(&world, &node, to, place).await;
        sleep(Duration::from_millis(world.sim.choose(1..400))).await;
    }
}

/// Sends to a node that is not connected. The sender learns that immediately.
fn refused(world: &World, member: &Member, sink: &Remote, connection: Connection) {
    let mut history = world.history.lock();
    let term = message(connection, history.next(connection), 0);
    let back = member.send(sink.clone(), term.clone());
    history.sent(connection, back.is_ok());
    let is_back = back.is_err_and(|back| {
        back.cause() == SendTermCause::NoConnection && back.into_inner() == term
    });
    history.law("a send without a connection comes back", is_back);
}

/// Does something to a host, or to the network between two.
async fn disturb(world: &World, hosts: i64) {
    let sim = &world.sim;
    let pick = || sim.choose(0..hosts as u64) as i64;
    let (one, other) = (pick(), pick());
    match sim.choose(0..5) {
        0 if one != other => sim.partition(&word(one), &word(other)),
        1 if one != other => sim.cut(&word(one), &word(other)),
        2 if one != other => sim.mend(&word(one), &word(other)),
        3 => restart(world, one),
        4 => {
            power_off(world, one);
            sleep(Duration::from_millis(sim.choose(0..3000))).await;
            sim.restart(&word(one));
        }
        _ => {
            if let Some(node) = world.node(one) {
                node.disconnect(&name(other));
            }
        }
    }
    sleep(Duration::from_millis(sim.choose(0..3000))).await;
}

/// Ends a host, which [`restart`] starts again.
pub(crate) fn power_off(world: &World, host: i64) {
    end(world, host);
    world.sim.power_off(&word(host));
}

/// Forgets the node of a host that is about to end.
fn end(world: &World, host: i64) {
    world.nodes.lock()[host as usize].1 = None;
    world.history.lock().crashed(host);
    world.ledger.lock().crashed(host);
}

/// Ends a host, and starts it again.
pub(crate) fn restart(world: &World, host: i64) {
    end(world, host);
    world.sim.restart(&word(host));
}

pub(crate) async fn within(world: &World, law: &str, condition: impl Fn() -> bool) {
    let waits = async {
        while !condition() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let holds = timeout(world.recovery, waits).await.is_ok();
    world.history.lock().law(law, holds);
}

/// The time within which nodes agree once nothing changes.
pub(crate) const AGREEMENT: Duration = Duration::from_secs(2);

/// Waits for a condition as long as nodes may take to agree. Returns `false` if it does not hold.
pub(crate) async fn settles(condition: impl Fn() -> bool) -> bool {
    let waits = async {
        while !condition() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(AGREEMENT, waits).await.is_ok()
}

/// Compares what was sent, delivered and told, once nothing is on its way.
fn check_balance(world: &World, hosts: i64) {
    let connections = world.all_connections(hosts).unwrap_or_default();
    let history = world.history.lock();
    history.balance(&connections.iter().copied().collect());
    for connection in connections {
        let (from, to, _) = connection;
        let info = |own, other| {
            let peers = world.node(own)?.peers();
            peers.into_iter().find(|peer| peer.name.as_str() == name(other))
        };
        if let (Some(sender), Some(receiver)) = (info(from.0, to), info(to, from.0)) {
            history.counted(connection, sender.sent, sender.refused, receiver.received);
        }
    }
}

/// Starts a cluster.
pub(crate) fn start_hosts<F, P>(
    sim: &Sim,
    hosts: i64,
    (traffic, planted): (Traffic, Planted),
    serve: F,
) -> Arc<World>
where
    F: Fn(Arc<World>, i64) -> P + Clone + Send + Sync + 'static,
    P: Future<Output = ()> + 'static,
{
    let world = World::new(sim, hosts, traffic, planted);
    let start = |host| {
        let (world, serve) = (Arc::clone(&world), serve.clone());
        sim.host(&word(host), move || serve(Arc::clone(&world), host))
    };
    let places: Vec<_> = (0..hosts).map(start).collect();
    *world.places.lock() = places;
    world
}

/// Starts a cluster, disturbs it, and waits until it is whole again.
pub(crate) async fn disturbed<F, P>(
    sim: &Sim,
    hosts: i64,
    (traffic, planted): (Traffic, Planted),
    serve: F,
) -> Arc<World>
where
    F: Fn(Arc<World>, i64) -> P + Clone + Send + Sync + 'static,
    P: Future<Output = ()> + 'static,
{
    let world = start_hosts(sim, hosts, (traffic, planted), serve);
    sleep(Duration::from_millis(sim.choose(0..3000))).await;
    for _ in 0..sim.choose(1..6) {
        disturb(&world, hosts).await;
    }
    sim.heal();
    for (one, other) in (0..hosts).flat_map(|one| (0..one).map(move |other| (one, other))) {
        sim.mend(&word(one), &word(other));
    }
    within(&world, "all nodes are connected again", || world.all_connections(hosts).is_some())
        .await;
    // A planted defect finds something.
    sleep(Duration::from_secs(2)).await;
    world
}

/// Stops all nodes.
pub(crate) fn stop(world: &World, hosts: i64) {
    world.is_over.store(true, Relaxed);
    for host in 0..hosts {
        // What the nodes keep has the world.
        let node = world.nodes.lock()[host as usize].1.take();
        if let Some(node) = node {
            node.stop();
        }
    }
}

pub(crate) async fn run(sim: Sim, traffic: Traffic, planted: Planted) {
    let hosts = sim.choose(3..8) as i64;
    let is_planted = planted.is_some();
    let hides_end = planted.as_ref().is_some_and(|(defect, _)| *defect == Defect::HideEnd);
    let world = disturbed(&sim, hosts, (traffic, planted), serve).await;
    world.history.lock().calm();
    if let Some(node) = world.node(0).filter(|_| hides_end) {
        node.disconnect(&name(1));
    }
    sleep(Duration::from_secs(1)).await;
    world.is_quiet.store(true, Relaxed);
    within(&world, "all that was accepted comes while the connections last", || {
        let connections = world.all_connections(hosts);
        connections.is_some_and(|all| world.history.lock().is_complete(&all) || is_planted)
    })
    .await;
    within(&world, "all that has come is confirmed", || {
        let is_confirmed = |node: Node| node.peers().iter().all(|it| it.unconfirmed == Some(0));
        (0..hosts).all(|host| world.node(host).is_some_and(is_confirmed))
    })
    .await;
    check_balance(&world, hosts);
    stop(&world, hosts);
    within(&world, "each monitor tells an end", || !world.history.lock().has_waiting()).await;
}
