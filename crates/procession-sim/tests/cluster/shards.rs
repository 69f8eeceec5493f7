//! A cluster of nodes that share keys. The processes of the keys move while nodes crash and the
//! network is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::sleep;
use procession_cluster::shards::{KeyContext, Shards};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Defect, Incarnation, Laws, Planted};
use crate::program::{Traffic, World, disturbed, settles, stay_connected, stop};

/// A message: its sender, and its number among the messages of that.
type Note = (Incarnation, i64);
/// What a process hands to its successor: the latest message of each sender.
type Latest = Vec<Note>;

const KEYS: i64 = 12;
/// The time in which moves end once nothing changes.
const MOVES: Duration = Duration::from_secs(10);

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
    /// Once everything is quiet, each host sends a note of this round to each key.
    round: i64,
    answered: BTreeSet<(i64, Note)>,
    /// The defect of all processes.
    planted: Option<Defect>,
}

type Shared = Arc<Mutex<Seen>>;

impl Seen {
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

/// A process that runs.
struct Running(Shared, i64, (Incarnation, u64));

impl Running {
    fn begin(seen: &Shared, key: i64, host: Incarnation) -> Self {
        let mut all = seen.lock();
        all.processes += 1;
        let own = (host, all.processes);
        let twin = (all.planted == Some(Defect::StartTwice)).then_some((host, 0));
        all.running.entry(key).or_default().extend([Some(own), twin].into_iter().flatten());
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
    seen: Shared,
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
    Some(latest.into_iter().collect())
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
    let idle = Duration::from_millis(world.sim.choose(20..5000));
    let shared = Arc::clone(&seen);
    let builder = Shards::<i64, Note>::builder("keys").shards(16).idle(idle);
    let keys = builder.start(&node, move |cx| work(cx, Arc::clone(&shared), own));
    let keys = keys.expect("the name is free");
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
