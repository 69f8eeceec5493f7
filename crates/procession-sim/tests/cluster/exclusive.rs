//! A cluster of nodes. Their processes hold exclusive names by the leases of a store, and write
//! with their fences. The store has troubles, the nodes crash, and the clocks differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, sleep};
use procession_cluster::exclusive::ExclusiveNames;
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Laws, Planted};
use crate::leases::{Leases, Trouble};
use crate::program::{AGREEMENT, Traffic, World, disturbed, settles, stay_connected, stop};

type Name = &'static str;

const NAMES: [Name; 2] = ["bills", "letters"];
const LEASE: Duration = Duration::from_secs(10);
/// The time that a process may take to end after it was killed, with the stalls of the system.
const END_TIME: Duration = Duration::from_secs(2);
/// How long the writes of holders are looked at once it is quiet.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// What a store that checks fences has of a name.
#[derive(Default)]
struct Ledger {
    /// The greatest fence that a process was given.
    given: u64,
    /// The greatest fence of a write.
    newest: u64,
    /// The fences of the writes since the last look.
    recent: BTreeSet<u64>,
}

/// What the hosts share. It keeps no node, because hosts crash.
struct Seen {
    laws: Laws,
    /// No lease ends early.
    is_honest: bool,
    ledgers: BTreeMap<Name, Ledger>,
    /// When a process with this fence has first written without the name.
    lost: BTreeMap<u64, Instant>,
    /// The fences of the holders that the monitors of hosts show.
    shown: BTreeMap<(i64, Name), Option<u64>>,
}

#[derive(Clone)]
struct Cluster {
    store: Leases,
    seen: Arc<Mutex<Seen>>,
}

impl Cluster {
    /// A process was given a name.
    fn given(&self, name: Name, fence: u64) {
        let mut seen = self.seen.lock();
        let Seen { laws, is_honest, ledgers, .. } = &mut *seen;
        let ledger = ledgers.entry(name).or_default();
        // If a lease ends early, the answer to its claim may arrive after the next claim.
        if *is_honest {
            laws.law("fences never go back", fence > ledger.given);
        }
        laws.sometimes("a name has another holder", ledger.given > 0);
        ledger.given = ledger.given.max(fence);
    }

    /// A process writes with its fence. The look at the store and the write are one step.
    fn write(&self, name: Name, fence: u64) {
        let is_holder = self.store.fence(name) == Some(fence);
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let Seen { laws, is_honest, ledgers, lost, .. } = &mut *seen;
        let ledger = ledgers.entry(name).or_default();
        let is_taken = fence >= ledger.newest;
        if *is_honest {
            laws.law("a process ends before its lease does", is_holder);
            laws.law("a store that checks fences refuses nothing", is_taken);
        }
        if !is_holder {
            let since = *lost.entry(fence).or_insert(now);
            let is_soon = now.saturating_duration_since(since) <= LEASE * 7 / 10 + END_TIME;
            laws.law("a process that has lost its lease early ends soon", is_soon);
        }
        laws.sometimes("a write by an old fence is refused", !is_taken);
        ledger.newest = ledger.newest.max(fence);
        ledger.recent.insert(fence);
    }

    /// Returns `true` if one process has each name, and the store knows it.
    fn has_one_holder_each(&self) -> bool {
        let seen = self.seen.lock();
        NAMES.iter().all(|name| {
            let recent = seen.ledgers.get(name).map(|ledger| &ledger.recent);
            let fence = self.store.fence(name);
            recent.is_some_and(|recent| fence.is_some_and(|own| *recent == BTreeSet::from([own])))
        })
    }

    fn monitors_show_the_holders(&self, hosts: i64) -> bool {
        let seen = self.seen.lock();
        NAMES.into_iter().all(|name| {
            let fence = self.store.fence(name);
            fence.is_some() && (0..hosts).all(|host| seen.shown.get(&(host, name)) == Some(&fence))
        })
    }
}

/// Holds a name for a while, and to the end of the run once it is quiet.
async fn hold(
    _: Context<()>,
    world: Arc<World>,
    cluster: Cluster,
    names: ExclusiveNames,
    name: Name,
) {
    let Ok(held) = names.claim(name).await else { return };
    cluster.given(name, held.fence().get());
    let mut writes = world.sim.choose(5..100);
    while writes > 0 || world.is_quiet() {
        writes = writes.saturating_sub(1);
        cluster.write(name, held.fence().get());
        sleep(Duration::from_millis(world.sim.choose(20..200))).await;
    }
}

/// Starts a process that holds a name, again and again.
async fn claim(world: Arc<World>, cluster: Cluster, names: ExclusiveNames, name: Name) {
    loop {
        let (own, of_process, claimed) = (Arc::clone(&world), cluster.clone(), names.clone());
        let process = procession::start(move |cx| hold(cx, own, of_process, claimed, name));
        // Ignored: it is killed when its lease is lost.
        drop(process.await);
        sleep(Duration::from_millis(world.sim.choose(1..500))).await;
    }
}

/// Shows the holder of a name, as a monitor has it.
async fn monitor(cluster: Cluster, names: ExclusiveNames, host: i64, name: Name) {
    loop {
        let Ok(mut holder) = names.monitor(name).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        loop {
            let fence = holder.borrow_and_update().as_ref().map(|holder| holder.fence.get());
            cluster.seen.lock().shown.insert((host, name), fence);
            if holder.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64, cluster: Cluster) {
    let (node, _) = world.start_node(host).await;
    let names = ExclusiveNames::builder(&node).store(cluster.store.clone()).lease_time(LEASE);
    let names = names.start();
    for name in NAMES {
        let watches = monitor(cluster.clone(), names.clone(), host, name);
        procession::spawn(watches).detach();
        let claims = claim(Arc::clone(&world), cluster.clone(), names.clone(), name);
        procession::spawn(claims).detach();
    }
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places = world.places.lock().clone();
    for (to, place) in (0..).zip(places).filter(|(to, _)| *to != host) {
        procession::spawn(stay_connected(Arc::clone(&world), node.clone(), to, place)).detach();
    }
    std::future::pending::<()>().await;
}

/// Gives the store a trouble after another.
async fn trouble(sim: &Sim, cluster: &Cluster, is_honest: bool) {
    loop {
        let trouble = match sim.choose(0..5) {
            0 => Trouble::Elects,
            1 => Trouble::Slow(sim.choose(100..5000)),
            2 => Trouble::Fails,
            3 if !is_honest => {
                let name = NAMES[sim.choose(0..NAMES.len() as u64) as usize];
                let is_ended = cluster.store.end_early(name);
                cluster.seen.lock().laws.sometimes("a lease ends early", is_ended);
                Trouble::None
            }
            _ => Trouble::None,
        };
        cluster.store.set(trouble);
        sleep(Duration::from_millis(sim.choose(1..8000))).await;
    }
}

pub(crate) async fn run(sim: Sim, planted: Planted) {
    let count = sim.choose(3..8) as i64;
    let is_honest = planted.is_some() || sim.choose(0..2) == 0;
    let store = Leases::new(&sim, planted.as_ref().map(|(defect, _)| *defect));
    let seen = Seen {
        laws: Laws::new(&sim, planted.clone()),
        is_honest,
        ledgers: BTreeMap::new(),
        lost: BTreeMap::new(),
        shown: BTreeMap::new(),
    };
    let cluster = Cluster { store, seen: Arc::new(Mutex::new(seen)) };
    let serving = cluster.clone();
    let serve = move |world, host| serve(world, host, serving.clone());
    let world = {
        let lives = async {
            let world = disturbed(&sim, count, (Traffic::Small, planted), serve).await;
            // So that leases end, and are renewed.
            sleep(LEASE * 2).await;
            Some(world)
        };
        let troubles = async {
            trouble(&sim, &cluster, is_honest).await;
            None
        };
        futures_lite::future::or(lives, troubles).await.expect("troubles do not end")
    };
    cluster.store.set(Trouble::None);
    world.is_quiet.store(true, Relaxed);
    // The leases of lost nodes end.
    sleep(LEASE * 3 / 2).await;
    cluster.seen.lock().ledgers.values_mut().for_each(|ledger| ledger.recent.clear());
    sleep(LOOK_TIME).await;
    let has_one_each = cluster.has_one_holder_each();
    let is_shown = settles(|| cluster.monitors_show_the_holders(count)).await;
    {
        let seen = cluster.seen.lock();
        seen.laws.law("after quiet, one process has each name", has_one_each);
        seen.laws.law("monitors show the holders within 2 s of quiet", is_shown);
    }
    stop(&world, count);
    sleep(AGREEMENT).await;
}
