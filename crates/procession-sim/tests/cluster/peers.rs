//! A node and a peer that is frozen, slow or silent: how long it takes until the node reports the
//! peer, and what the peer costs others.
//!
//! The node `n0` watches `n1`, to which it is connected by the host `way`, which passes the bytes
//! on or does not. The node `n2` is well.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::sync::Notify;
use procession::time::Instant;
use procession::{Context, sleep, timeout};
use procession_cluster::{Letter, Member, Node, Reference, Remote, SendTermCause, Term};
use procession_sim::Sim;
use procession_sync::Mutex;

use crate::checker::{Defect, Laws, Planted};
use crate::program::{PATIENCE, PORT, Traffic, start_node};

/// The time after which a silent peer is given up, and that within which one is kept.
const LIMIT: Duration = Duration::from_millis(1250);
/// The limit for a peer that cannot be asked.
const UNASKED_LIMIT: Duration = Duration::from_secs(60);
/// The time after which an idle node sends something to such a peer, a quarter of 48 s.
const TICK: Duration = Duration::from_secs(12);
/// The default of `NodeBuilder::connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What steps and the network take.
const SLACK: Duration = Duration::from_millis(100);
/// The monitors of the peer.
const MONITORS: usize = 3;
/// A message of this length is no large one.
const LENGTH: usize = 60_000;
/// The bytes that a slow peer reads in a tenth of a second. Of much less, a system takes nothing
/// for it within the patience.
const SLOW_LEN: usize = 64 << 10;
/// The bytes that may wait for a peer.
const ROOM: usize = 4 << 20;

/// What a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// Its program does not run.
    Frozen,
    /// The same, for a shorter time than the patience.
    Paused,
    /// It sends nothing.
    Silent,
    /// It reads nothing.
    Deaf,
    /// It reads a little at a time.
    Slow,
    /// It takes no monitors, so it cannot be asked, and it sends nothing.
    Unasked,
}

impl Ailment {
    pub(crate) const ALL: [Self; 6] =
        [Self::Frozen, Self::Paused, Self::Silent, Self::Deaf, Self::Slow, Self::Unasked];

    /// Returns the time within which the peer is given up, and not before. `None` if it is kept.
    fn bounds(self) -> Option<[Duration; 2]> {
        match self {
            Self::Frozen | Self::Silent | Self::Deaf => Some([PATIENCE - SLACK, LIMIT + SLACK]),
            // It was heard of at most a quarter of the 48 s before, because there is a tick in that
            // time.
            Self::Unasked => Some([UNASKED_LIMIT * 4 / 5 - SLACK, UNASKED_LIMIT + SLACK]),
            Self::Paused | Self::Slow => None,
        }
    }
}

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// A little at a time.
    Slow,
    Shut,
}

/// What all hosts of a run share.
struct World {
    laws: Mutex<Laws>,
    ailment: Ailment,
    places: Mutex<Vec<IpAddr>>,
    nodes: Mutex<[Option<Node>; 3]>,
    /// The ways from the node to its peer, and back.
    ways: Mutex<[Way; 2]>,
    changed: Notify,
    /// The ends that were told to the watching process, and when.
    ends: Mutex<Vec<(End, Instant)>>,
    monitors: Mutex<Vec<Reference>>,
    /// The numbers that have come at the peer.
    come: Mutex<Vec<i64>>,
    /// When each message to the third node was sent, and how long the messages took that have
    /// arrived.
    sent: Mutex<Vec<Instant>>,
    took: Mutex<Vec<Duration>>,
    /// Lets the worker of the peer have a step.
    poke: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Node,
    Process(Reference),
}

impl World {
    fn law(&self, law: &str, holds: bool) {
        self.laws.lock().law(law, holds);
    }

    fn node(&self, host: usize) -> Option<Node> {
        self.nodes.lock()[host].clone()
    }

    /// Returns `true` if the node is connected to the other nodes.
    fn is_connected(&self) -> bool {
        self.node(0).is_some_and(|node| node.peers().len() == 2)
    }

    /// Takes a letter of the watching process.
    fn letter(&self, letter: Letter) {
        let end = match letter {
            Letter::Down(down) => End::Process(down.monitor),
            Letter::NodeDown { node, .. } if node.as_str() == "p@n1" => End::Node,
            _ => return,
        };
        let mut laws = self.laws.lock();
        if laws.is_planted(Defect::DropDown, end != End::Node) {
            return;
        }
        let late = laws.is_planted(Defect::TellLate, true);
        let double = laws.is_planted(Defect::DoubleDown, end != End::Node);
        drop(laws);
        let at = Instant::now() + if late { UNASKED_LIMIT } else { Duration::ZERO };
        let mut ends = self.ends.lock();
        ends.extend(std::iter::repeat_n((end, at), 1 + usize::from(double)));
    }
}

/// The programs of the nodes.
async fn serve(world: Arc<World>, host: usize) {
    let node = start_node(host as i64, Traffic::Small).await;
    world.nodes.lock()[host] = Some(node.clone());
    let sink =
        procession::start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} });
    let recipient = {
        let world = Arc::clone(&world);
        sink.address().map(move |letter: Letter| match letter {
            Letter::Message { term, .. } => world.take(host, &term),
            letter if host == 0 => world.letter(letter),
            _ => {}
        })
    };
    let member = node.attach(&recipient);
    node.register("sink", &member).expect("the name is free");
    match host {
        0 => watch(&world, &member, &node, || node.subscribe(&recipient)).await,
        1 => loop {
            world.poke.notified().await;
        },
        _ => std::future::pending().await,
    }
}

/// Connects to the other nodes, monitors the peer, and keeps connected.
async fn watch(world: &World, member: &Member, node: &Node, subscribe: impl Fn()) {
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let [_, _, third, way] = world.places.lock()[..] else { panic!("there are four hosts") };
    let mut is_begun = false;
    loop {
        for (name, place) in [("p@n1", way), ("p@n2", third)] {
            if !node.peers().iter().any(|peer| peer.name.as_str() == name) {
                // Ignored: the loop tries again.
                drop(node.connect_at(name, SocketAddr::new(place, PORT)).await);
            }
        }
        if world.is_connected() && !std::mem::replace(&mut is_begun, true) {
            subscribe();
            let sink = Remote::named("sink", "p@n1");
            let monitors = (0..MONITORS).map(|_| member.monitor(sink.clone()));
            world.monitors.lock().extend(monitors);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

impl World {
    /// Takes a message at the peer or at the third node.
    fn take(&self, host: usize, term: &Term) {
        let Some([number, _]) = term.as_tuple() else { panic!("{term} came") };
        let number = number.as_integer().expect("it is a number");
        let mut laws = self.laws.lock();
        if host == 1 {
            if !laws.is_planted(Defect::DropOne, true) {
                self.come.lock().push(number);
            }
            return;
        }
        let holds_up = laws.is_planted(Defect::HoldUp, true);
        let now = Instant::now() + if holds_up { Duration::from_secs(1) } else { Duration::ZERO };
        let sent = self.sent.lock()[number as usize];
        self.took.lock().push(now.saturating_duration_since(sent));
    }
}

/// Passes connections on to the peer.
async fn pass_on(world: Arc<World>) {
    let listener = loop {
        match TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))).await {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    };
    loop {
        let Ok((from, _)) = listener.accept().await else { continue };
        let world = Arc::clone(&world);
        procession::spawn(async move {
            let place = world.places.lock()[1];
            let Ok(to) = TcpStream::connect(SocketAddr::new(place, PORT)).await else { return };
            // The end of one direction is the end of both.
            futures_lite::future::or(pump(&world, 0, &from, &to), pump(&world, 1, &to, &from))
                .await;
        })
        .detach();
    }
}

/// Passes the bytes of one direction on, until the connection ends.
async fn pump(world: &World, direction: usize, from: &TcpStream, to: &TcpStream) {
    if world.ailment == Ailment::Unasked && hide_monitors(from, to).await.is_err() {
        return;
    }
    let mut bytes = vec![0; 64 << 10];
    let mut passed = Instant::now();
    loop {
        let way = world.ways.lock()[direction];
        let most = match way {
            Way::Open => bytes.len(),
            Way::Slow => SLOW_LEN,
            Way::Shut => {
                world.changed.notified().await;
                continue;
            }
        };
        if way == Way::Slow {
            sleep(Duration::from_millis(100)).await;
        }
        let Ok(count @ 1..) = from.read(&mut bytes[..most]).await else { return };
        let silence = Instant::now() - std::mem::replace(&mut passed, Instant::now());
        let is_in_time = world.ailment != Ailment::Unasked || silence <= TICK + SLACK;
        world.law("an idle node ticks in time for a net tick time of 60 s", is_in_time);
        while world.ways.lock()[direction] == Way::Shut {
            world.changed.notified().await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Passes the handshake on, up to the message that has the abilities of the node. Takes the
/// monitors of names from these.
async fn hide_monitors(from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
    const DIST_MONITOR_NAME: u8 = 1 << 5;
    loop {
        let mut length = [0; 2];
        from.read_exact(&mut length).await?;
        let mut body = vec![0; u16::from_be_bytes(length).into()];
        from.read_exact(&mut body).await?;
        let is_introduction = body[0] == b'N';
        if is_introduction {
            body[8] &= !DIST_MONITOR_NAME;
        }
        to.write_all(&length).await?;
        to.write_all(&body).await?;
        if is_introduction {
            return Ok(());
        }
    }
}

/// Lets messages go to the third node, which are not to be held up.
async fn send_beside(world: &World, member: &Member) {
    let third = Remote::named("sink", "p@n2");
    loop {
        let number = {
            let mut sent = world.sent.lock();
            sent.push(Instant::now());
            sent.len() as i64 - 1
        };
        let term = Term::tuple([Term::from(number), Term::from(vec![7; 10])]);
        world.law("a node that is well takes a message", member.send(third.clone(), term).is_ok());
        sleep(Duration::from_millis(200)).await;
    }
}

/// Sends to the peer until its queue is full. Returns the number of messages that were accepted.
fn flood(world: &World, member: &Member, from: i64) -> i64 {
    let peer = Remote::named("sink", "p@n1");
    let mut number = from;
    loop {
        let term = Term::tuple([Term::from(number), Term::from(vec![7; LENGTH])]);
        match member.send(peer.clone(), term) {
            Ok(()) => number += 1,
            Err(refused) => {
                let is_full = refused.cause() == SendTermCause::Full;
                world.law("a message to a slow peer comes back for a lack of room", is_full);
                break number - from;
            }
        }
        world.law("a flood finds an end", number - from < 1000);
    }
}

/// Waits for a condition, at most for so long. Returns `true` if it holds.
async fn within(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let waits = async {
        while !condition() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(limit, waits).await.is_ok()
}

fn set_ways(world: &World, ways: [Way; 2]) {
    *world.ways.lock() = ways;
    world.changed.notify_waiters();
}

/// Lets the peer have what it has. Returns when that began.
fn fall_ill(sim: &Sim, world: &World) -> Instant {
    let stall = |duration| {
        world.law("the peer has a worker", sim.stall("n1-0", duration));
        // Otherwise it begins with the next step of the worker.
        world.poke.notify_one();
    };
    match world.ailment {
        Ailment::Frozen => stall(2 * UNASKED_LIMIT),
        Ailment::Paused => stall(PATIENCE * 3 / 4),
        Ailment::Silent | Ailment::Unasked => set_ways(world, [Way::Open, Way::Shut]),
        Ailment::Deaf => set_ways(world, [Way::Shut, Way::Open]),
        Ailment::Slow => set_ways(world, [Way::Slow, Way::Open]),
    }
    Instant::now()
}

/// Checks what the node has reported about a lost peer: everything once, and in time.
async fn given_up(world: &World, begin: Instant, [least, most]: [Duration; 2]) {
    let all = 1 + MONITORS;
    within(most + SLACK, || world.ends.lock().len() >= all).await;
    sleep(PATIENCE).await;
    let ends = world.ends.lock().clone();
    let took = |at: &Instant| at.saturating_duration_since(begin);
    let is_in_time = ends.iter().all(|(_, at)| (least..=most).contains(&took(at)));
    world.law("a silent peer is told within its bound", is_in_time);
    let count = |end: &End| ends.iter().filter(|(told, _)| told == end).count();
    let monitors = world.monitors.lock();
    let each_once = monitors.iter().all(|it| count(&End::Process(it.clone())) == 1);
    world.law("each monitor tells one end", each_once && count(&End::Node) == 1);
}

/// Checks that a peer is kept that is slow: it costs a queue, holds up nobody, and gets all.
async fn kept(world: &World, member: &Member) {
    let mut accepted = 0;
    for _ in 0..10 {
        accepted += flood(world, member, accepted);
        let queued = world.node(0).map(|node| node.peers().iter().map(|it| it.queued_bytes).max());
        let is_bounded = queued.flatten().is_some_and(|bytes| bytes <= ROOM);
        world.law("a slow peer costs a queue and no more", is_bounded);
        sleep(PATIENCE).await;
    }
    set_ways(world, [Way::Open; 2]);
    within(UNASKED_LIMIT, || world.come.lock().len() as i64 == accepted).await;
    let come = world.come.lock().clone();
    let is_balanced = come.iter().copied().eq(0..accepted);
    world.law("all that was accepted comes once and in order", is_balanced);
    world.law("a peer that is slow or paused is kept", world.ends.lock().is_empty());
    let [sent, refused] = world.node(0).map_or([0; 2], |node| {
        let peers = node.peers();
        let peer = peers.iter().find(|peer| peer.name.as_str() == "p@n1");
        peer.map_or([0; 2], |peer| [peer.sent, peer.refused])
    });
    world.law("the node counts what it has sent", sent as i64 == accepted && refused == 10);
}

pub(crate) async fn run(sim: Sim, ailment: Ailment, planted: Planted) {
    let world = Arc::new(World {
        laws: Mutex::new(Laws::new(&sim, planted)),
        ailment,
        places: Mutex::default(),
        nodes: Mutex::default(),
        ways: Mutex::new([Way::Open; 2]),
        changed: Notify::new(),
        ends: Mutex::default(),
        monitors: Mutex::default(),
        come: Mutex::default(),
        sent: Mutex::default(),
        took: Mutex::default(),
        poke: Notify::new(),
    });
    let start = |host| {
        let world = Arc::clone(&world);
        sim.host(&format!("n{host}"), move || serve(Arc::clone(&world), host))
    };
    let mut places: Vec<_> = (0..3).map(start).collect();
    let passes = Arc::clone(&world);
    places.push(sim.host("way", move || pass_on(Arc::clone(&passes))));
    *world.places.lock() = places;
    let is_ready = || world.is_connected() && !world.monitors.lock().is_empty();
    world.law("all are connected", within(UNASKED_LIMIT, is_ready).await);
    let Some(node) = world.node(0) else { return };
    let source =
        procession::start(
            |mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} },
        );
    let member = node.attach(&source.address().map(|letter| letter));
    let beside = {
        let (world, member) = (Arc::clone(&world), member.clone());
        procession::spawn(async move {
            procession::process::until_cancelled(send_beside(&world, &member)).await;
        })
    };
    // The moment between two questions differs.
    sleep(2 * PATIENCE + Duration::from_millis(sim.choose(0..1000))).await;
    let begin = fall_ill(&sim, &world);
    match ailment.bounds() {
        Some(bounds) => given_up(&world, begin, bounds).await,
        None => kept(&world, &member).await,
    }
    let took = world.took.lock().clone();
    let is_prompt = took.len() > 5 && took.iter().all(|took| *took <= SLACK);
    world.law("a peer that is ill holds up no other", is_prompt);
    // It is well again, and the nodes connect.
    set_ways(&world, [Way::Open; 2]);
    sim.heal();
    world.law("they connect again", within(UNASKED_LIMIT, || world.is_connected()).await);
    beside.cancel();
    drop(beside.await);
}

/// A host that takes a connection and says nothing, and that connects and says nothing.
pub(crate) async fn run_mute(sim: Sim, planted: Planted) {
    let laws = Arc::new(Mutex::new(Laws::new(&sim, planted)));
    let took: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let place = {
        let took = Arc::clone(&took);
        sim.host("mute", move || {
            let took = Arc::clone(&took);
            async move {
                let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
                let listener = TcpListener::bind(address).await.expect("it has descriptors");
                let _silent = listener.accept().await;
                let stream = TcpStream::connect("n0:4370").await.expect("it listens");
                let begin = Instant::now();
                // It ends with or without an error.
                while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
                took.lock().push(Instant::now() - begin);
                std::future::pending::<()>().await;
            }
        })
    };
    let dials = {
        let (laws, took) = (Arc::clone(&laws), Arc::clone(&took));
        move || {
            let (laws, took) = (Arc::clone(&laws), Arc::clone(&took));
            async move {
                let node = start_node(0, Traffic::Small).await;
                let begin = Instant::now();
                let connected = node.connect_at("p@n1", SocketAddr::new(place, PORT)).await;
                laws.lock().law("a mute host is no node", connected.is_err());
                let late = laws.lock().is_planted(Defect::TellLate, true);
                let late = if late { CONNECT_TIMEOUT } else { Duration::ZERO };
                took.lock().push(Instant::now() - begin + late);
                std::future::pending::<()>().await;
            }
        }
    };
    // It listens.
    sim.settle().await;
    sim.host("n0", dials);
    within(4 * CONNECT_TIMEOUT, || took.lock().len() == 2).await;
    let bounds = CONNECT_TIMEOUT - SLACK..=CONNECT_TIMEOUT + SLACK;
    let took = took.lock().clone();
    let is_in_time = took.len() == 2 && took.iter().all(|took| bounds.contains(took));
    laws.lock().law("a mute host is told within its bound", is_in_time);
}
