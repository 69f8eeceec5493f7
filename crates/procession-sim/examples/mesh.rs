//! Measures what it costs a cluster on a simulated network that a node joins, and that it is lost:
//! each node has a member of one group, a name, and a connection to each other node.
//!
//! `cargo run --release -p procession-sim --example mesh -- 10 30 1000` prints a row for each
//! number of nodes. The simulator looks at all processes whenever all of them wait, which takes
//! minutes for a large mesh. So above 30 nodes, only the node that joins is connected to all
//! others. What it sends and receives is the same.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use procession::process::{GroupEvent, GroupMonitor, Groups};
use procession::sync::{Notify, watch};
use procession::time::Instant;
use procession::{Context, Pid, sleep};
use procession_cluster::{Cookie, Letter, Node, SharedNames};
use procession_sim::{Check, Faults, Sim};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

const ROOM: &str = "room";
/// The host, the node and the name that join.
const LATE: &str = "late";
const PORT: u16 = 10_000;
/// The largest cluster in which all nodes are connected.
const MESH_MAX: usize = 30;
/// The handshakes that a node accepts at a time.
const HANDSHAKES: usize = 32;

/// What the hosts of a run share.
#[derive(Default)]
struct World {
    /// The nodes without the one that joins.
    nodes: Mutex<Vec<Node>>,
    /// The resident memory before these are connected.
    before: AtomicUsize,
    /// How many nodes have found the others, then also the late one, and then lost it.
    ready: AtomicUsize,
    complete: AtomicUsize,
    bereft: AtomicUsize,
    changed: Notify,
}

impl World {
    fn note(&self, counter: &AtomicUsize) {
        counter.fetch_add(1, Relaxed);
        self.changed.notify_one();
    }

    async fn until(&self, counter: &AtomicUsize, count: usize) {
        while counter.load(Relaxed) < count {
            self.changed.notified().await;
        }
    }
}

/// What has happened up to a moment.
struct Moment {
    time: Instant,
    real: std::time::Instant,
    resident: usize,
    /// The messages and bytes on the connections of the late node, and on all others.
    late: [u64; 2],
    rest: [u64; 2],
}

impl Moment {
    #[expect(clippy::disallowed_methods, reason = "this measures real time")]
    fn now(world: &World) -> Self {
        let (mut late, mut rest) = ([0; 2], [0; 2]);
        let nodes = world.nodes.lock().clone();
        for peer in nodes.iter().flat_map(Node::peers) {
            let [messages, bytes] = match peer.name.as_str() == name(LATE) {
                true => &mut late,
                false => &mut rest,
            };
            *messages += peer.sent;
            *bytes += peer.bytes_sent;
            if peer.name.as_str() == name(LATE) {
                late[0] += peer.received;
                late[1] += peer.bytes_received;
            }
        }
        let (time, real) = (Instant::now(), std::time::Instant::now());
        Self { time, real, resident: resident(), late, rest }
    }

    fn times_since(&self, before: &Self) -> String {
        let virtually = (self.time - before.time).as_secs_f64() * 1000.0;
        let really = (self.real - before.real).as_secs_f64() * 1000.0;
        format!("{virtually:.1} | {really:.0}")
    }
}

/// Returns the resident memory of this program in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).expect("Linux has it");
    kib.parse::<usize>().expect("it is a number") * 1024
}

fn name(word: &str) -> String {
    format!("{word}@cluster")
}

fn number(number: usize) -> String {
    name(&format!("n{number}"))
}

fn port(number: usize) -> u16 {
    PORT + u16::try_from(number).expect("it is below the number of ports")
}

/// Starts a node with a member of the group and a name.
async fn join(node: &str, at: u16, title: &str) -> (Node, Groups, SharedNames) {
    let builder = Node::builder(node).cookie(Cookie::new("secret").expect("it has a text"));
    let builder = builder.listen((Ipv4Addr::UNSPECIFIED, at).into()).accept_plain_text();
    // So long that nodes do not ask each other in between.
    let node = builder.patience(Duration::from_secs(60)).start().await.expect("it starts");
    let groups = Groups::new();
    node.share_groups("groups", &groups).expect("the name is free");
    let names = node.share_names("names").expect("the name is free");
    let waits = |mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} };
    let member = procession::start(waits);
    node.attach(&member.address().map(|letter| letter));
    groups.join(ROOM, member.pid()).expect("it runs");
    names.claim(title, member.pid()).expect("the name is free");
    (node, groups, names)
}

/// Waits until the group has so many members.
async fn has(changes: &mut GroupMonitor, known: &mut usize, count: usize) {
    while *known != count {
        match changes.recv().await {
            GroupEvent::Join { .. } => *known += 1,
            GroupEvent::Leave { .. } => *known -= 1,
            _ => {}
        }
    }
}

async fn is_owned(owner: &mut watch::Receiver<Option<Pid>>, is_owned: bool) {
    while owner.borrow_and_update().is_some() != is_owned {
        owner.changed().await.expect("the names are shared");
    }
}

/// Reports what a node knows that is connected to `known` others.
async fn report(world: Arc<World>, groups: Groups, names: SharedNames, known: usize) {
    let (members, mut changes) = groups.monitor(ROOM);
    let (mut count, mut owner) = (members.len(), names.monitor(LATE));
    has(&mut changes, &mut count, known + 1).await;
    world.note(&world.ready);
    has(&mut changes, &mut count, known + 2).await;
    is_owned(&mut owner, true).await;
    world.note(&world.complete);
    has(&mut changes, &mut count, known + 1).await;
    is_owned(&mut owner, false).await;
    world.note(&world.bereft);
}

/// The program of the host that all other nodes run on.
async fn serve(world: Arc<World>, count: usize) {
    let is_mesh = count < MESH_MAX;
    for at in 0..count {
        let (node, groups, names) = join(&number(at), port(at), &format!("name {at}")).await;
        let known = if is_mesh { count - 1 } else { 0 };
        procession::spawn(report(Arc::clone(&world), groups, names, known)).detach();
        world.nodes.lock().push(node);
    }
    world.before.store(resident(), Relaxed);
    let nodes = world.nodes.lock().clone();
    for (at, node) in nodes.iter().enumerate().filter(|_| is_mesh) {
        for other in 0..at {
            let place = (Ipv4Addr::LOCALHOST, port(other)).into();
            node.connect_at(&number(other), place).await.expect("it listens");
        }
    }
    drop(nodes);
    std::future::pending::<()>().await;
}

/// The program of the host of the node that joins.
async fn come_late(world: Arc<World>, place: IpAddr, count: usize) {
    let (node, groups, names) = join(&name(LATE), PORT, LATE).await;
    for first in 0..HANDSHAKES {
        let node = node.clone();
        let connects = async move {
            for other in (first..count).step_by(HANDSHAKES) {
                let place = SocketAddr::new(place, port(other));
                node.connect_at(&number(other), place).await.expect("it listens");
            }
        };
        procession::spawn(connects).detach();
    }
    let (members, mut changes) = groups.monitor(ROOM);
    has(&mut changes, &mut members.len(), count + 1).await;
    while names.owners().len() <= count {
        sleep(Duration::from_micros(100)).await;
    }
    world.note(&world.complete);
    std::future::pending::<()>().await;
}

async fn program(sim: Sim, count: usize, rows: Arc<Mutex<Vec<String>>>) {
    let world = Arc::<World>::default();
    let shared = Arc::clone(&world);
    let place = sim.host("others", move || serve(Arc::clone(&shared), count));
    world.until(&world.ready, count).await;
    let first = Moment::now(&world);
    let shared = Arc::clone(&world);
    sim.host(LATE, move || come_late(Arc::clone(&shared), place, count));
    world.until(&world.complete, count + 1).await;
    let joined = Moment::now(&world);
    sim.settle().await;
    let settled = Moment::now(&world);
    sim.crash(LATE);
    world.until(&world.bereft, count).await;
    let lost = Moment::now(&world);
    let others = if count < MESH_MAX { count * (count - 1) / 2 } else { 0 };
    let each = |bytes: usize, connections: usize| match connections {
        0 => "-".to_owned(),
        _ => format!("{:.1}", bytes as f64 / connections as f64 / 1024.0),
    };
    rows.lock().push(format!(
        "| {} | {others} | {} | {} | {:.1} | {} | {} | {} | {} | {} |",
        count + 1,
        each(first.resident.saturating_sub(world.before.load(Relaxed)), others),
        settled.late[0] + settled.rest[0] - first.rest[0],
        (settled.late[1] + settled.rest[1] - first.rest[1]) as f64 / 1024.0,
        joined.times_since(&first),
        each(settled.resident.saturating_sub(first.resident), count),
        lost.rest[0] - settled.rest[0],
        lost.rest[1] - settled.rest[1],
        lost.times_since(&settled),
    ));
    // They keep what the hosts have.
    let nodes = std::mem::take(&mut *world.nodes.lock());
    drop(nodes);
}

fn main() {
    let sizes: Vec<usize> =
        std::env::args().skip(1).map(|size| size.parse().expect("a number of nodes")).collect();
    println!(
        "| nodes | connections before | KiB for each | join: messages | KiB | virtual ms | real ms | KiB for each connection | loss: messages | bytes | virtual ms | real ms |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for size in if sizes.is_empty() { vec![10] } else { sizes } {
        let rows = Arc::<Mutex<Vec<String>>>::default();
        let shared = Arc::clone(&rows);
        let check = Check::new().seeds(0..1).workers(1..=1).faults(Faults::none());
        check.run(move |sim| program(sim, size - 1, Arc::clone(&shared)));
        // The check has repeated the run, to see that it is the same.
        println!("{}", rows.lock()[0]);
    }
}
