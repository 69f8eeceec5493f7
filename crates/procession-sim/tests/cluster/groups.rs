//! A cluster of nodes that share process groups, while members join, leave and end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use procession::process::{GroupEvent, Groups};
use procession::{Context, Pid, sleep};
use procession_cluster::{NodePid, Remote, Term, WeakNode};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Broken, Defect, Laws, Planted};
use crate::program::{AGREEMENT, Traffic, World, disturbed, name, settles, stay_connected, stop};

const SCOPE: &str = "pg";
const GROUPS: [&str; 3] = ["lobby", "{room,7}", "workers"];
/// The members that a node has at a time, at most.
const MEMBERS_MAX: usize = 8;

/// How often each process is in each group.
type Counts<P> = BTreeMap<(Arc<str>, P), i64>;

/// What is shared with the program of a host. It keeps no node, because hosts crash.
struct Host {
    node: WeakNode,
    groups: Groups,
    scope: NodePid,
    /// What the events of the groups add up to.
    told: Arc<Mutex<Counts<Pid>>>,
}

type Hosts = Arc<Mutex<BTreeMap<i64, Host>>>;

fn add<P: Ord>(counts: &mut Counts<P>, group: &Arc<str>, pid: P, by: i64) {
    let count = counts.entry((Arc::clone(group), pid)).or_default();
    *count += by;
}

/// Adds up the events of all groups.
async fn listen(groups: Groups, told: Arc<Mutex<Counts<Pid>>>) {
    let (members, mut monitor) = groups.monitor_all();
    for (group, pids) in members {
        pids.into_iter().for_each(|pid| add(&mut told.lock(), &group, pid, 1));
    }
    loop {
        let (group, pid, by) = match monitor.recv().await {
            GroupEvent::Join { group, pid } => (group, pid, 1),
            GroupEvent::Leave { group, pid } => (group, pid, -1),
            _ => continue,
        };
        add(&mut told.lock(), &group, pid, by);
    }
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64, hosts: Hosts) {
    let (node, _) = world.start_node(host).await;
    let (groups, told) = (Groups::new(), Arc::default());
    procession::spawn(listen(groups.clone(), Arc::clone(&told))).detach();
    let scope = node.share_groups(SCOPE, &groups).expect("the name is free");
    let (scope, weak) = (scope.member().pid(), node.downgrade());
    hosts.lock().insert(host, Host { node: weak, groups: groups.clone(), scope, told });
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places = world.places.lock().clone();
    for (to, place) in (0..).zip(places).filter(|(to, _)| *to != host) {
        procession::spawn(stay_connected(Arc::clone(&world), node.clone(), to, place)).detach();
    }
    change(&world, &groups).await;
    std::future::pending::<()>().await;
}

/// Lets processes join groups, leave them and end, until it is quiet.
async fn change(world: &World, groups: &Groups) {
    let mut members = Vec::new();
    while !world.is_quiet() {
        let group = GROUPS[world.sim.choose(0..GROUPS.len() as u64) as usize];
        let at = world.sim.choose(0..MEMBERS_MAX as u64) as usize;
        match world.sim.choose(0..4) {
            0 if members.len() < MEMBERS_MAX => {
                let waits = |mut cx: Context<()>| async move { while cx.recv().await.is_some() {} };
                members.push(procession::start(waits));
            }
            1 if at < members.len() => {
                members.swap_remove(at).cancel();
            }
            2 if at < members.len() => {
                groups.leave(group, members[at].pid());
            }
            _ if at < members.len() => {
                groups.join(group, members[at].pid()).expect("it runs");
                world.sim.sometimes("a process joins a group", true);
            }
            _ => {}
        }
        sleep(Duration::from_millis(world.sim.choose(1..300))).await;
    }
    for member in members {
        member.detach();
    }
}

fn counts(pids: impl Iterator<Item = (Arc<str>, NodePid)>) -> Counts<NodePid> {
    let mut all = BTreeMap::new();
    pids.for_each(|(group, pid)| add(&mut all, &group, pid, 1));
    all
}

/// Returns the members that a host knows: of all nodes, or of its own. If its node has ended, none.
fn members(host: &Host, is_local: bool) -> Vec<(Arc<str>, NodePid)> {
    let Some(node) = host.node.upgrade() else { return Vec::new() };
    let of = |group: Arc<str>| {
        let pids = match is_local {
            true => host.groups.local_members(&group),
            false => host.groups.members(&group),
        };
        let known = pids.into_iter().filter_map(|pid| node.node_pid(pid));
        known.map(move |pid| (Arc::clone(&group), pid)).collect::<Vec<_>>()
    };
    host.groups.groups().into_iter().flat_map(of).collect()
}

/// Returns `true` if all hosts know the members of all hosts.
fn agree(hosts: &Hosts) -> bool {
    let hosts = hosts.lock();
    let all = counts(hosts.values().flat_map(|host| members(host, true)));
    hosts.values().all(|host| counts(members(host, false).into_iter()) == all)
}

/// Returns `true` if the events of each host add up to its members.
fn events_add_up(hosts: &Hosts) -> bool {
    hosts.lock().values().all(|host| {
        let mut known = Counts::new();
        for group in host.groups.groups() {
            host.groups.members(&group).into_iter().for_each(|pid| add(&mut known, &group, pid, 1));
        }
        let mut told = host.told.lock().clone();
        told.retain(|_, count| *count != 0);
        told == known
    })
}

/// Plants a defect: host 0 takes back what it has said of a process, says it twice, or an event is
/// hidden.
fn plant(hosts: &Hosts, defect: Defect) {
    let hosts = hosts.lock();
    let group = Arc::<str>::from("lobby");
    let told = |word: &str, parts: [Term; 3]| {
        let term = Term::tuple([Term::atom(word)].into_iter().chain(parts));
        let to = Remote::named(SCOPE, &name(1));
        let node = hosts[&0].node.upgrade().expect("it runs");
        node.send(to, term).expect("it is connected");
    };
    let (scope, lobby) = (Term::from(hosts[&0].scope.clone()), Term::atom("lobby"));
    let member = members(&hosts[&0], true).into_iter().find(|(name, _)| *name == group);
    let member = Term::from(member.expect("it has a member").1);
    match defect {
        Defect::LoseJoin => told("leave", [scope, member, Term::list([lobby])]),
        Defect::LoseLeave => told("join", [scope, lobby, member]),
        _ => add(&mut hosts[&1].told.lock(), &group, Pid::NOBODY, 1),
    }
}

pub(crate) async fn run(sim: Sim, planted: Planted) {
    let count = sim.choose(3..8) as i64;
    let hosts = Hosts::default();
    let serving = Arc::clone(&hosts);
    let serve = move |world, host| serve(world, host, Arc::clone(&serving));
    let broken: Option<(Defect, Broken)> = planted.clone();
    let world = disturbed(&sim, count, (Traffic::Small, planted), serve).await;
    let laws = Laws::new(&sim, broken.clone());
    world.is_quiet.store(true, Relaxed);
    if let Some((defect, _)) = broken {
        // The process of the scope is a member like any other.
        let (groups, process) = {
            let hosts = hosts.lock();
            let node = hosts[&0].node.upgrade().expect("it runs");
            (hosts[&0].groups.clone(), node.pid(&hosts[&0].scope))
        };
        groups.join("lobby", process).expect("it runs");
        sleep(AGREEMENT).await;
        plant(&hosts, defect);
        // A forged message takes a moment to arrive.
        sleep(Duration::from_secs(1)).await;
    }
    laws.law("groups agree within 2 s of quiet", settles(|| agree(&hosts)).await);
    let has_members = hosts.lock().values().any(|host| !host.groups.groups().is_empty());
    laws.sometimes("nodes agree on groups with members", has_members);
    // A listener may not have received the last events.
    let add_up = settles(|| events_add_up(&hosts)).await;
    laws.law("the events of groups add up to their members", add_up);
    stop(&world, count);
    sleep(Duration::from_secs(1)).await;
    let is_alone = hosts.lock().values().all(|host| {
        let groups = &host.groups;
        let is_own = |group: &Arc<str>| groups.members(group) == groups.local_members(group);
        groups.groups().iter().all(is_own)
    });
    laws.law("a node that has stopped knows only its own members", is_alone);
}
