//! A cluster of nodes that share names, which processes claim, release, lose and take along.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::Event;
use procession::{Child, Context, Exit, sleep};
use procession_cluster::{Node, NodePid, Remote, SharedNames, Term};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Broken, Defect, Laws, Planted};
use crate::program::{
    AGREEMENT, Traffic, World, disturbed, name, restart, settles, stay_connected, stop, within,
};

type Name = &'static str;

const SCOPE: &str = "names";
/// The processes that a host has at a time, at most.
const CLAIMS_MAX: usize = 6;
const NAMES: [Name; 3] = ["counter", "{room,7}", "leader"];
/// How often a host shows what it knows.
const SHOW_EVERY: Duration = Duration::from_millis(20);

/// A claim that a node has accepted.
struct Claimed {
    name: Name,
    /// It was not released. A crash is not noted here.
    stands: bool,
    /// How often its process was notified that it has lost the name.
    told: u32,
}

/// What a node knows, as its host has last shown it.
struct View {
    scope: NodePid,
    owners: BTreeMap<Name, Option<NodePid>>,
}

/// What the hosts share. It keeps no node, because hosts crash.
#[derive(Default)]
struct Seen {
    claims: BTreeMap<NodePid, Claimed>,
    views: BTreeMap<i64, View>,
}

impl Seen {
    /// Returns the claims of processes that run.
    fn standing(&self) -> impl Iterator<Item = (&NodePid, &Claimed)> {
        let runs = |process: &NodePid| {
            self.views.values().any(|view| view.scope.creation == process.creation)
        };
        self.claims.iter().filter(move |(process, claim)| claim.stands && runs(process))
    }

    fn is_owner(&self, process: &NodePid, name: &str) -> bool {
        self.views.values().all(|view| view.owners[name].as_ref() == Some(process))
    }

    /// Returns `true` if all hosts know the same owner of each name.
    fn agree(&self) -> bool {
        let mut views = self.views.values().map(|view| &view.owners);
        let first = views.next();
        views.all(|owners| Some(owners) == first)
    }

    fn owners_are_untold(&self) -> bool {
        self.standing().all(|(own, claim)| claim.told == 0 || !self.is_owner(own, claim.name))
    }

    fn losers_are_told_once(&self) -> bool {
        self.standing().all(|(own, claim)| claim.told == 1 || self.is_owner(own, claim.name))
    }
}

type Shared = Arc<Mutex<Seen>>;

/// Claims a name, and notes how often it is told that it has lost the name.
async fn claimant(mut cx: Context<()>, node: Node, names: SharedNames, seen: Shared, name: Name) {
    cx.trap_exits(true);
    let own = node.node_pid(cx.pid()).expect("it is a process of this node");
    // Before it can be told.
    seen.lock().claims.insert(own.clone(), Claimed { name, stands: true, told: 0 });
    if names.claim(name, cx.pid()).is_err() {
        seen.lock().claims.remove(&own);
        return;
    }
    while let Some(event) = cx.recv_event().await {
        if let Event::Exit(signal) = event
            && matches!(signal.exit, Exit::NameLost(_))
            && let Some(claim) = seen.lock().claims.get_mut(&own)
        {
            claim.told += 1;
        }
    }
    seen.lock().claims.remove(&own);
}

/// A host on which processes claim names.
struct Claiming {
    world: Arc<World>,
    node: Node,
    names: SharedNames,
    seen: Shared,
    processes: Vec<(Name, Child<(), ()>)>,
}

impl Claiming {
    /// Starts a process that claims a name.
    fn claim(&mut self, name: Name) {
        let (node, names, seen) = (self.node.clone(), self.names.clone(), Arc::clone(&self.seen));
        let process = procession::start(move |cx| claimant(cx, node, names, seen, name));
        self.processes.push((name, process));
    }

    /// Claims a name, releases one, or ends a process.
    fn change(&mut self) {
        let sim = &self.world.sim;
        let at = sim.choose(0..CLAIMS_MAX as u64) as usize;
        match sim.choose(0..4) {
            0 if at < self.processes.len() => {
                let (_, process) = self.processes.swap_remove(at);
                process.cancel();
                process.detach();
            }
            1 if at < self.processes.len() => {
                let (name, process) = &self.processes[at];
                if self.names.release(name, process.pid()) {
                    let known = self.node.node_pid(process.pid());
                    let known = known.expect("it is a process of this node");
                    let released = self.seen.lock().claims.get_mut(&known).map(|claim| {
                        claim.stands = false;
                    });
                    sim.sometimes("a name is released", released.is_some());
                }
            }
            _ if self.processes.len() < CLAIMS_MAX => self.claim(NAMES[at % NAMES.len()]),
            _ => {}
        }
    }
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64, seen: Shared) {
    let (node, _) = world.start_node(host).await;
    let names = node.share_names(SCOPE).expect("the name is free");
    procession::spawn(show(node.clone(), names.clone(), host, Arc::clone(&seen))).detach();
    let (own, processes) = (Arc::clone(&world), Vec::new());
    let mut claiming = Claiming { world: own, node: node.clone(), names, seen, processes };
    // A node that starts claims its names before it is connected.
    NAMES.into_iter().for_each(|name| claiming.claim(name));
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places: Vec<IpAddr> = world.places.lock().clone();
    for (to, place) in (0..).zip(places).filter(|(to, _)| *to != host) {
        procession::spawn(stay_connected(Arc::clone(&world), node.clone(), to, place)).detach();
    }
    while !world.is_quiet() {
        claiming.change();
        sleep(Duration::from_millis(world.sim.choose(1..300))).await;
    }
    std::future::pending::<()>().await;
}

/// Shows what a host knows.
async fn show(node: Node, names: SharedNames, host: i64, seen: Shared) {
    loop {
        let known = |name: &str| names.owner(name).and_then(|owner| node.node_pid(owner));
        let owners = NAMES.iter().map(|&name| (name, known(name))).collect();
        seen.lock().views.insert(host, View { scope: names.member().pid(), owners });
        sleep(SHOW_EVERY).await;
    }
}

/// Plants a defect: host 0 tells host 1 of a claim that is none, or a process is told wrongly.
fn plant(world: &World, seen: &Shared, defect: Defect) {
    let mut seen = seen.lock();
    if defect == Defect::FalseClaim {
        let scope = Term::from(seen.views[&0].scope.clone());
        let group = Term::tuple([Term::atom("counter"), Term::from(0)]);
        let join = Term::tuple([Term::atom("join"), scope.clone(), group, scope]);
        let node = world.node(0).expect("it runs");
        node.send(Remote::named(SCOPE, &name(1)), join).expect("it is connected");
        return;
    }
    let is_told = defect != Defect::TellOwner;
    let found = seen.standing().find(|(_, claim)| (claim.told > 0) == is_told);
    let process = found.expect("there is such a claim").0.clone();
    let claim = seen.claims.get_mut(&process).expect("it was found");
    claim.told = if defect == Defect::HideLoss { 0 } else { claim.told + 1 };
}

pub(crate) async fn run(sim: Sim, planted: Planted) {
    let count = sim.choose(3..8) as i64;
    let seen = Shared::default();
    let serving = Arc::clone(&seen);
    let serve = move |world, host| serve(world, host, Arc::clone(&serving));
    let broken: Option<(Defect, Broken)> = planted.clone();
    let world = disturbed(&sim, count, (Traffic::Small, planted), serve).await;
    let laws = Laws::new(&sim, broken.clone());
    world.is_quiet.store(true, Relaxed);
    if let Some((defect, _)) = broken {
        // Host 1 claims all names again, and host 0 has older claims, if no other host has.
        for host in [0, 1] {
            restart(&world, host);
            let law = "all nodes are connected again";
            within(&world, law, || world.all_connections(count).is_some()).await;
        }
        sleep(AGREEMENT).await;
        plant(&world, &seen, defect);
        // A forged claim takes a moment to arrive.
        sleep(Duration::from_secs(1)).await;
    }
    // Ignored: the laws below say what does not hold.
    let _ = settles(|| {
        let seen = seen.lock();
        seen.agree() && seen.owners_are_untold() && seen.losers_are_told_once()
    })
    .await;
    {
        let seen = seen.lock();
        laws.law("nodes agree on the owners of names within 2 s of quiet", seen.agree());
        laws.law("an owner is never told that it has lost its name", seen.owners_are_untold());
        laws.law("a loser is told once that it has lost its name", seen.losers_are_told_once());
        let is_lost = seen.standing().any(|(_, claim)| claim.told > 0);
        laws.sometimes("a process has lost its name", is_lost);
        let is_owned = seen.standing().any(|(own, claim)| seen.is_owner(own, claim.name));
        laws.sometimes("nodes agree on an owner", is_owned);
    }
    stop(&world, count);
}
