//! A cluster of nodes that share keys. The processes of the keys move while nodes crash and the
//! network is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::{sleep, spawn};
use procession_cluster::shards::{KeyContext, Shards};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Defect, Incarnation, Laws, Planted, host_of};
use crate::program::{
    Traffic, World, disturbed, power_off, restart, settles, start_hosts, stay_connected, stop,
};

/// A message: its sender, and its number among the messages of that.
type Note = (Incarnation, i64);
/// What a process hands to its successor: the latest message of each sender.
type Latest = Vec<Note>;

const KEYS: i64 = 12;
/// The longest time that the end of a process takes in a cluster that agrees, in milliseconds.
const SLOWEST_END: u64 = 3000;
/// The time in which moves end once nothing changes.
const MOVES: Duration = Duration::from_secs(10);

/// The time that a drain takes at most.
const DRAIN: Duration = Duration::from_secs(60);

/// What the hosts share. It keeps no node, because hosts crash.
#[derive(Default)]
struct Seen {
    /// The processes that run, by key. A crash ends those of the host.
    running: BTreeMap<i64, BTreeSet<(Incarnation, u64)>>,
    processes: u64,
    received: BTreeSet<(i64, Note)>,
    /// A message that came twice, or behind a later one.
    is_doubled: bool,
    is_disordered: bool,
    moved: u64,
    /// A process of a key was started while another one ran.
    has_overlapped: bool,
    /// The states that processes have returned.
    returned: u64,
    /// What the hosts do, in a cluster that agrees, and the shards of those that have some.
    hosts: Vec<Does>,
    shards: BTreeMap<i64, Shards<i64, Note>>,
    /// The states that were dropped and the messages that were lost by shards that have ended.
    dropped: u64,
    lost: u64,
    /// Once everything is quiet, each host sends a note of this round to each key.
    round: i64,
    answered: BTreeSet<(i64, Note)>,
    /// The defect of all processes.
    planted: Option<Defect>,
}

type Shared = Arc<Mutex<Seen>>;

/// What a host does in a cluster that agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It starts its shards once it is connected to the others.
    Start,
    Serve,
    /// It stops its shards.
    Stop,
    /// It drains its node.
    Drain,
    Nothing,
}

impl Seen {
    /// Returns the hosts that do something.
    fn all_that(&self, does: Does) -> Vec<i64> {
        let all = (0..).zip(&self.hosts).filter(|(_, other)| **other == does);
        all.map(|(host, _)| host).collect()
    }

    /// Notes what a process has received.
    fn note(&mut self, latest: &mut BTreeMap<Incarnation, i64>, key: i64, note: Note) {
        let (sender, number) = note;
        if number >= ROUNDS {
            if number == ROUNDS + self.round {
                self.answered.insert((key, note));
            }
            return;
        }
        self.is_doubled |= !self.received.insert((key, note));
        let before = latest.insert(sender, number);
        self.is_disordered |= before.is_some_and(|before| before > number);
    }
}

/// Returns `true` if a host is connected to all others that run. A node that drains accepts no
/// connection.
fn is_joined(seen: &Shared, host: i64, peers: &[i64]) -> bool {
    let runs = |(other, does): &(i64, &Does)| {
        *other != host && !matches!(does, Does::Nothing | Does::Drain)
    };
    (0..).zip(&seen.lock().hosts).filter(runs).all(|(other, _)| peers.contains(&other))
}

/// Notes that a host does something else, now that its shards have ended.
fn ended(seen: &Shared, host: i64, does: Does) {
    let shards = {
        let mut seen = seen.lock();
        seen.hosts[host as usize] = does;
        seen.running.values_mut().for_each(|all| all.retain(|(own, _)| own.0 != host));
        seen.shards.remove(&host)
    };
    let Some(status) = shards.map(|shards| shards.status()) else { return };
    let mut seen = seen.lock();
    seen.dropped += status.states_dropped;
    seen.lost += status.lost;
}

/// A process that runs.
struct Running(Shared, i64, (Incarnation, u64));

impl Running {
    fn begin(seen: &Shared, key: i64, host: Incarnation) -> Self {
        let mut all = seen.lock();
        all.processes += 1;
        let own = (host, all.processes);
        let twin = (all.planted == Some(Defect::StartTwice)).then_some((host, 0));
        let running = all.running.entry(key).or_default();
        running.extend([Some(own), twin].into_iter().flatten());
        let has_overlapped = running.len() > 1;
        all.has_overlapped |= has_overlapped;
        Self(Arc::clone(seen), key, own)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(running) = self.0.lock().running.get_mut(&self.1) {
            running.remove(&self.2);
        }
    }
}

/// The numbers of the rounds begin here.
const ROUNDS: i64 = 1 << 40;

async fn work(
    mut cx: KeyContext<i64, Note, Latest>,
    (world, seen): (Arc<World>, Shared),
    host: Incarnation,
) -> Option<Latest> {
    let key = *cx.key();
    let _running = Running::begin(&seen, key, host);
    let state = cx.take_state();
    seen.lock().moved += u64::from(state.is_some());
    let mut latest: BTreeMap<_, _> = state.unwrap_or_default().into_iter().collect();
    let mut held = None;
    while let Some(note) = cx.recv().await {
        let mut seen = seen.lock();
        match seen.planted {
            Some(Defect::DropOne) => continue,
            Some(Defect::DoubleOne) => seen.note(&mut latest, key, note),
            // It comes behind the next one.
            Some(Defect::HoldUp) if held.is_none() => {
                held = Some(note);
                continue;
            }
            _ => {}
        }
        seen.note(&mut latest, key, note);
        if let Some(held) = held.take() {
            seen.note(&mut latest, key, held);
        }
    }
    let agrees = !seen.lock().hosts.is_empty();
    if agrees && world.sim.choose(0..2) == 0 {
        sleep(Duration::from_millis(world.sim.choose(0..SLOWEST_END))).await;
    }
    let mut seen = seen.lock();
    seen.returned += 1;
    (seen.planted != Some(Defect::LoseState)).then(|| latest.into_iter().collect())
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64, seen: Shared) {
    let (node, own) = world.start_node(host).await;
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places: Vec<IpAddr> = world.places.lock().clone();
    for (to, place) in (0..).zip(places).filter(|(to, _)| *to != host) {
        procession::spawn(stay_connected(Arc::clone(&world), node.clone(), to, place)).detach();
    }
    // The processes of the host before have ended with it.
    let is_gone = |running: &(Incarnation, u64)| running.0.0 == host && running.0 != own;
    seen.lock().running.values_mut().for_each(|all| all.retain(|running| !is_gone(running)));
    let agrees = !seen.lock().hosts.is_empty();
    let idle = match agrees {
        // So that no state is dropped because a process was idle.
        true => Duration::from_secs(1 << 20),
        false => Duration::from_millis(world.sim.choose(20..5000)),
    };
    let peers =
        || -> Vec<_> { node.peers().iter().map(|peer| host_of(peer.name.as_str())).collect() };
    // A node that starts before it is connected may have processes of its own.
    while agrees && !is_joined(&seen, host, &peers()) {
        sleep(Duration::from_millis(10)).await;
    }
    let shared = (Arc::clone(&world), Arc::clone(&seen));
    let builder = Shards::<i64, Note>::builder("keys").shards(16).idle(idle);
    let keys = builder.start(&node, move |cx| work(cx, shared.clone(), own));
    let keys = keys.expect("the name is free");
    if agrees {
        let mut seen = seen.lock();
        seen.hosts[host as usize] = Does::Serve;
        seen.shards.insert(host, keys.clone());
    }
    let mut number = 0;
    while !world.is_quiet() {
        for _ in 0..world.sim.choose(1..4) {
            number += 1;
            let key = world.sim.choose(0..KEYS as u64) as i64;
            // Ignored: it is refused, or is on its way.
            drop(keys.send(&key, (own, number)));
        }
        sleep(Duration::from_millis(world.sim.choose(1..200))).await;
    }
    while !world.is_over.load(Relaxed) {
        sleep(Duration::from_millis(200)).await;
        let round = seen.lock().round;
        // Ignored: it is sent again.
        (0..KEYS).for_each(|key| drop(keys.send(&key, (own, ROUNDS + round))));
    }
    std::future::pending::<()>().await;
}

pub(crate) async fn run(sim: Sim, planted: Planted) {
    let count = sim.choose(3..6) as i64;
    let defect = planted.as_ref().map(|(defect, _)| *defect);
    let seen = Arc::new(Mutex::new(Seen { planted: defect, ..Seen::default() }));
    let serving = Arc::clone(&seen);
    let serve = move |world, host| serve(world, host, Arc::clone(&serving));
    let laws = Laws::new(&sim, planted.clone());
    let world = disturbed(&sim, count, (Traffic::Small, planted), serve).await;
    world.is_quiet.store(true, Relaxed);
    sleep(MOVES).await;
    {
        let mut seen = seen.lock();
        seen.round = 1;
        seen.answered.clear();
    }
    let answers = settles(|| seen.lock().answered.len() as i64 == KEYS * count).await;
    {
        let seen = seen.lock();
        laws.law("each key is reached within 2 s of quiet", answers);
        laws.law("a key has one process at quiet", seen.running.values().all(|all| all.len() < 2));
        laws.law("a message is received once", !seen.is_doubled);
        laws.law("the messages of a sender to a key come in order", !seen.is_disordered);
        laws.sometimes("a key moves with its state", seen.moved > 0);
        laws.sometimes("a message is received", !seen.received.is_empty());
    }
    stop(&world, count);
}

/// Lets a host leave, return or crash. A host returns while no node drains, and a node drains while
/// no host starts, because a node that drains accepts no connection.
fn disturb(world: &Arc<World>, seen: &Shared, crashes: bool, laws: &Laws) {
    let pick = |hosts: &[i64]| hosts[world.sim.choose(0..hosts.len() as u64) as usize];
    let [serve, start, stop, drain, nothing] = {
        let seen = seen.lock();
        let all = [Does::Serve, Does::Start, Does::Stop, Does::Drain, Does::Nothing];
        all.map(|does| seen.all_that(does))
    };
    let leaves = !stop.is_empty() || !drain.is_empty();
    let back = if crashes { [nothing, stop].concat() } else { nothing };
    match world.sim.choose(0..4) {
        0 if drain.is_empty() && !back.is_empty() => {
            let host = pick(&back);
            ended(seen, host, Does::Start);
            restart(world, host);
        }
        1 if crashes && serve.len() > 1 => {
            let host = pick(&serve);
            laws.sometimes("a node crashes while another one leaves", leaves);
            power_off(world, host);
            ended(seen, host, Does::Nothing);
        }
        2 if serve.len() > 1 => {
            let host = pick(&serve);
            laws.sometimes("two nodes leave together", leaves);
            let shards = {
                let mut seen = seen.lock();
                seen.hosts[host as usize] = Does::Stop;
                seen.shards[&host].clone()
            };
            shards.stop();
        }
        3 if serve.len() > 1 && start.is_empty() => {
            let host = pick(&serve);
            laws.sometimes("two nodes leave together", leaves);
            seen.lock().hosts[host as usize] = Does::Drain;
            let node = world.node(host).expect("it serves");
            let (world, seen) = (Arc::clone(world), Arc::clone(seen));
            let drains = async move {
                node.drain(DRAIN).await;
                drop(node);
                power_off(&world, host);
                ended(&seen, host, Does::Nothing);
            };
            spawn(drains).detach();
        }
        _ => {}
    }
}

/// A cluster of nodes that come and go, and agree on which nodes there are.
pub(crate) async fn run_agreeing(sim: Sim, planted: Planted) {
    let count = sim.choose(3..6) as i64;
    let defect = planted.as_ref().map(|(defect, _)| *defect);
    let hosts = (0..count).map(|_| Does::Start).collect();
    let seen = Arc::new(Mutex::new(Seen { planted: defect, hosts, ..Seen::default() }));
    let serving = Arc::clone(&seen);
    let serve = move |world, host| serve(world, host, Arc::clone(&serving));
    let laws = Laws::new(&sim, planted.clone());
    let world = start_hosts(&sim, count, (Traffic::Small, planted), serve);
    // What a node has when it crashes is not counted.
    let crashes = sim.choose(0..2) == 0;
    let all_serve = || seen.lock().all_that(Does::Serve).len() as i64 == count;
    laws.law("all hosts serve", settles(all_serve).await);
    for _ in 0..sim.choose(4..12) {
        disturb(&world, &seen, crashes, &laws);
        sleep(Duration::from_millis(sim.choose(0..2000))).await;
    }
    sim.heal();
    // Several nodes may hand a key on, and end its processes slowly.
    sleep(2 * MOVES).await;
    for host in 0..count {
        let does = seen.lock().hosts[host as usize];
        laws.law("a node drains before its deadline", does != Does::Drain);
        if does != Does::Serve && does != Does::Start {
            ended(&seen, host, Does::Start);
            restart(&world, host);
        }
    }
    sleep(MOVES).await;
    laws.law("all hosts serve", all_serve());
    world.is_quiet.store(true, Relaxed);
    sleep(MOVES).await;
    seen.lock().round = 1;
    let answers = settles(|| seen.lock().answered.len() as i64 == KEYS * count).await;
    (0..count).for_each(|host| ended(&seen, host, Does::Nothing));
    {
        let seen = seen.lock();
        laws.law("each key is reached within 2 s of quiet", answers);
        laws.law("a key has one process while the nodes agree", !seen.has_overlapped);
        laws.law("a message is received once", !seen.is_doubled);
        laws.law("the messages of a sender to a key come in order", !seen.is_disordered);
        laws.sometimes("a key moves with its state", seen.moved > 0);
        let is_balanced = seen.returned == seen.moved + seen.dropped;
        laws.law("a state is taken by the next process, or counted", crashes || is_balanced);
        laws.law("a message is lost only with a node that crashes", crashes || seen.lost == 0);
    }
    stop(&world, count);
}
