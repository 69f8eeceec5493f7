//! Names of processes that several nodes share, by the protocol of OTP's `pg`.
//!
//! ## Problem
//! Two nodes that cannot reach each other may each give the same name to a process. Once they are
//! connected, all nodes must choose the same process, without a vote, because a vote needs a
//! majority that may be out of reach. This is also the usual case without any fault: a node that
//! starts claims its names before it is connected.
//!
//! ## States
//! A claim is a membership in the scope of groups that the nodes share: the process is in the group
//! `{Name, Time}`, where `Time` is the time of the day of the claim, in microseconds. The owner of
//! a name is the process with the smallest claim, by time, then by the name of the node, then by
//! PID.
//!
//! ## Steps
//! - `Claim`: if a claim of the name is known here, refuses. Otherwise the process joins.
//! - `Compare`, when a claim arrives: each claim of this node that is not the smallest leaves its
//!   group, and its process receives [`Exit::NameLost`]. A node never decides about the claims of
//!   another node.
//!
//! ## Why it works
//! The order of claims is total and never changes, so nodes that know the same claims agree. Groups
//! say that all connected nodes know the same claims about a round trip after the last change. The
//! smallest claim has no smaller claim that could end it, so an owner is never notified, and one
//! claim is left. `Compare` removes a claim before its process is notified, under the lock of the
//! table, so a process is notified once.
//!
//! ## Allowed
//! - For a round trip after two claims, or as long as their nodes are not connected, two processes
//!   have the name. Each node names the smallest claim that it knows.
//! - Clocks that differ can let the later claim be the smaller one. All nodes still agree.
//! - A claim by a node of the BEAM counts. A node of the BEAM notifies nobody, so its process looks
//!   for itself, for example by `pg:monitor_scope`.
//!
//! ## Rejected
//! - The group `Name`, with the order of node name and PID, which the messages of `pg` carry
//!   anyway: a node that starts is in the position of a netsplit. So each restart of the node with
//!   the smallest name would take all its names from processes that have had them for days.
//! - A number that grows with each claim of a name instead of the time: a node that starts has seen
//!   no claim, so its first number equals the number of the oldest claim.
//! - The time in a message beside those of `pg`: nodes of the BEAM would ignore it, and a claim
//!   would arrive in two parts.
//!
//! ## Checked by
//! `tests/it/names.rs`, `tests/beam/names.rs`, and the simulated cluster
//! (`procession-sim/tests/cluster/names.rs`).

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::SystemTime;

use procession::mailbox::{Event, relay};
use procession::process::{GroupEvent, GroupMonitor, Groups, OnCancel, send_exit};
use procession::sync::watch;
use procession::time::system_time;
use procession::{Context, Exit, Pid, SpawnOptions};
use procession_sync::Mutex;

use crate::error::RegisterError;
use crate::groups::{SharedGroups, group_name, group_of};
use crate::node::member::Member;
use crate::node::names::WeakNode;
use crate::node::parts::{LISTED_MAX, Lists, NameInfo, Part};
use crate::node::{NoMessage, Node};
use crate::term::{NodePid, Term};

/// Names that a node shares with other nodes, each for one process of the cluster.
/// [`Node::share_names`] makes it. Clones are the same names.
#[derive(Clone)]
pub struct SharedNames {
    node: Node,
    scope: SharedGroups,
    /// The process that compares claims.
    pid: Pid,
    table: Arc<Mutex<Table>>,
}

/// The place of a claim in the order of claims: its time in microseconds, and its process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(i64, NodePid);

/// A process in a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    group: Arc<str>,
    pid: Pid,
}

/// The claims of a name, of this node and of others.
#[derive(Debug, Default)]
struct Claims {
    own: BTreeMap<Rank, Claim>,
    /// The claims of other nodes.
    far: BTreeMap<Rank, Claim>,
}

/// The claims that are known here. A process that has ended may still be in the table, and is in no
/// group.
#[derive(Debug)]
struct Table {
    groups: Groups,
    by_name: BTreeMap<Arc<str>, Claims>,
    /// The places of the claims of other nodes, which may be many for one name.
    ranks: HashMap<Claim, Rank>,
    monitors: Monitors,
    is_closed: bool,
}

/// The owners of the names that somebody monitors. Only the process that compares claims changes
/// them, so that the last change names the present owner.
#[derive(Debug, Default)]
struct Monitors {
    by_name: BTreeMap<Arc<str>, watch::Sender<Option<Pid>>>,
    /// The number of names at which the names that nobody monitors are removed.
    swept_at: usize,
}

impl Monitors {
    fn add(&mut self, name: Arc<str>, owner: Option<Pid>) -> watch::Receiver<Option<Pid>> {
        if self.by_name.len() >= self.swept_at {
            self.by_name.retain(|_, owner| !owner.is_closed());
            self.swept_at = 2 * self.by_name.len().max(8);
        }
        self.by_name.entry(name).or_insert_with(|| watch::Sender::new(owner)).subscribe()
    }
}

impl Claim {
    fn stands(&self, groups: &Groups) -> bool {
        groups.is_member(&self.group, self.pid)
    }
}

impl Table {
    /// Returns the owner of a name. Forgets the claims of other nodes that have ended and have a
    /// smaller rank, so that each is looked at once.
    fn owner(&mut self, name: &str) -> Option<Pid> {
        let Self { groups, by_name, ranks, .. } = self;
        let claims = by_name.get_mut(name)?;
        while let Some(first) = claims.far.first_entry().filter(|first| !first.get().stands(groups))
        {
            ranks.remove(&first.remove());
        }
        let own = claims.own.iter().find(|(_, claim)| claim.stands(groups));
        let owner = own.into_iter().chain(claims.far.first_key_value()).min_by_key(|first| first.0);
        let owner = owner.map(|(_, claim)| claim.pid);
        self.tidy(name);
        owner
    }

    fn owners(&mut self) -> impl Iterator<Item = (Arc<str>, Pid)> {
        let names: Vec<_> = self.by_name.keys().cloned().collect();
        names.into_iter().filter_map(move |name| self.owner(&name).map(|owner| (name, owner)))
    }

    /// Removes a name without claims.
    fn tidy(&mut self, name: &str) {
        let claims = self.by_name.get(name);
        if claims.is_some_and(|claims| claims.own.is_empty() && claims.far.is_empty()) {
            self.by_name.remove(name);
        }
    }

    /// Enters a claim of another node.
    fn enter(&mut self, name: &Arc<str>, rank: Rank, claim: Claim) {
        self.ranks.insert(claim.clone(), rank.clone());
        self.by_name.entry(Arc::clone(name)).or_default().far.insert(rank, claim);
    }

    /// Forgets a claim of another node. Only the scope ends its membership: the process may have
    /// joined again since it was in no group.
    fn forget(&mut self, name: &str, claim: &Claim) {
        let rank = self.ranks.remove(claim);
        if let Some((rank, claims)) = rank.zip(self.by_name.get_mut(name)) {
            claims.far.remove(&rank);
            self.tidy(name);
        }
    }

    /// Removes the claims of this node for which `is_gone` returns `true`. Returns their processes,
    /// except for processes that have ended.
    fn remove_own(&mut self, name: &str, is_gone: impl Fn(&Claim) -> bool) -> Vec<Pid> {
        let Some(claims) = self.by_name.get_mut(name) else { return Vec::new() };
        let mut gone = Vec::new();
        claims.own.retain(|_, claim| {
            let stays = !is_gone(claim);
            if !stays && self.groups.leave(&claim.group, claim.pid) {
                gone.push(claim.pid);
            }
            stays
        });
        self.tidy(name);
        gone
    }

    /// `Compare`. Returns the processes of this node that have lost the name.
    fn compare(&mut self, name: &str) -> Vec<Pid> {
        let owner = self.owner(name);
        self.remove_own(name, |claim| owner.is_some_and(|own| own != claim.pid))
    }
}

/// Returns the group of a claim. `None` if other nodes cannot have this name, or this group.
fn group_of_claim(name: &str, time: i64) -> Option<Arc<str>> {
    let group = group_name(&Term::tuple([group_of(name)?, Term::from(time)]));
    group_of(&group).is_some().then_some(group)
}

/// Returns the name and the time of the claims in a group, if it is one of claims.
fn claimed(group: &str) -> Option<(Arc<str>, i64)> {
    let group = group_of(group)?;
    let [name, time] = group.as_tuple()? else { return None };
    Some((group_name(name), time.as_integer()?))
}

/// Returns the time of the day in microseconds.
fn now() -> i64 {
    let since = system_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl SharedNames {
    /// Returns the process of the scope, as other nodes know it.
    pub fn member(&self) -> &Member {
        self.scope.member()
    }

    /// Claims a name for a process of this program. To receive messages of other nodes, the process
    /// is also [attached](Node::attach).
    ///
    /// The claim ends with the process. If an older claim of another node becomes known, for
    /// example when a netsplit ends, the process receives the exit signal [`Exit::NameLost`], once.
    /// It ends then, and its supervisor does not restart it. A process that traps exits can hand
    /// its state over to the [owner](Self::owner) first.
    ///
    /// # Errors
    /// [`ClaimError`]: the name is taken, or too long, or the process has ended, or the node has
    /// stopped.
    pub fn claim(&self, name: &str, pid: Pid) -> Result<(), ClaimError> {
        let too_long = || ClaimError::TooLong(name.to_owned());
        // So that all nodes know it by the same text.
        let name = group_name(&group_of(name).ok_or_else(too_long)?);
        let time = now();
        let group = group_of_claim(&name, time).ok_or_else(too_long)?;
        let ended = || ClaimError::Ended(pid);
        let of_node = (pid.node() == 0).then(|| self.node.node_pid(pid)).flatten();
        let member = of_node.ok_or_else(ended)?;
        let mut table = self.table.lock();
        if table.is_closed {
            return Err(ClaimError::Stopped);
        }
        if let Some(owner) = table.owner(&name) {
            return Err(ClaimError::Taken(owner));
        }
        table.groups.join(Arc::clone(&group), pid).map_err(|_| ended())?;
        let claims = table.by_name.entry(name).or_default();
        claims.own.insert(Rank(time, member), Claim { group, pid });
        Ok(())
    }

    /// Takes the name of a process of this program back. Returns `true` if the process had the
    /// name. It is not notified.
    pub fn release(&self, name: &str, pid: Pid) -> bool {
        !self.table.lock().remove_own(name, |claim| claim.pid == pid).is_empty()
    }

    /// Returns the process that has a name, of whichever node, as far as is known here. It asks no
    /// other node.
    pub fn owner(&self, name: &str) -> Option<Pid> {
        self.table.lock().owner(name)
    }

    /// Returns all names and their owners, in the order of the names.
    pub fn owners(&self) -> Vec<(Arc<str>, Pid)> {
        self.table.lock().owners().collect()
    }

    /// Watches the owner of a name. The receiver has the present owner, and is notified when the
    /// owner changes, as far as is known here.
    ///
    /// The receiver keeps only the latest owner. So a slow process may miss owners in between, but
    /// always sees the last one. When the names are no longer shared, waiting for a change fails.
    ///
    /// ```
    /// use procession::{Context, start};
    /// use procession_cluster::{Cookie, Node};
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # fn main() -> Result<(), Error> {
    /// procession::run(async {
    ///     let node = Node::builder("shop@127.0.0.1").cookie(Cookie::random()?).start().await?;
    ///     let names = node.share_names("names")?;
    ///     let mut owner = names.monitor("counter");
    ///     assert_eq!(*owner.borrow_and_update(), None);
    ///     let counter = start(|mut cx: Context<()>| async move { cx.recv().await });
    ///     names.claim("counter", counter.pid())?;
    ///     owner.changed().await?;
    ///     assert_eq!(*owner.borrow_and_update(), Some(counter.pid()));
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn monitor(&self, name: &str) -> watch::Receiver<Option<Pid>> {
        // A name that other nodes cannot have has no owner.
        let name = group_of(name).map_or_else(|| name.into(), |group| group_name(&group));
        let mut table = self.table.lock();
        if table.is_closed {
            return watch::channel(None).1;
        }
        let owner = table.owner(&name);
        table.monitors.add(name, owner)
    }

    /// Stops to share the names, and takes the names of this node back. It also stops when the node
    /// does.
    pub fn stop(&self) {
        self.scope.stop();
    }
}

impl fmt::Debug for SharedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedNames").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Node {
    /// Shares names of processes with the other nodes that share names in this scope. Each name
    /// belongs to one process of the cluster.
    ///
    /// The names are *eventual*: they need no majority and no service beside the nodes, and a read
    /// asks no other node. In return, two processes have the name for about a round trip if they
    /// claim it at the same time, and for as long as their nodes are not connected. Then the oldest
    /// claim wins, by the clocks of the nodes, and all other processes are
    /// [notified](SharedNames::claim).
    ///
    /// Use them for what may be there twice for a while, such as the process that has the state of
    /// a chat room. They do not protect a file or a database from a second writer.
    ///
    /// For nodes of the BEAM, the scope is a scope of `pg`, and a claim of `counter` is a member of
    /// the group `{counter, Time}`. This is the owner:
    ///
    /// ```erlang
    /// Claims = [{Time, node(Pid), Pid} || {counter, Time} = Group <- pg:which_groups(names),
    ///                                     Pid <- pg:get_members(names, Group)],
    /// {_, _, Owner} = lists:min(Claims).
    /// ```
    ///
    /// What is said of the names of groups and of grants in [`share_groups`](Self::share_groups)
    /// holds here as well.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    ///
    /// use procession::{Context, Exit, start};
    /// use procession_cluster::{Cookie, Node};
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # fn main() -> Result<(), Error> {
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let shop = Node::builder("shop@127.0.0.1")
    ///         .cookie(cookie.clone())
    ///         .listen((Ipv4Addr::LOCALHOST, 0).into())
    ///         .start()
    ///         .await?;
    ///     let till = Node::builder("till@127.0.0.1").cookie(cookie).start().await?;
    ///     let (here, there) = (shop.share_names("names")?, till.share_names("names")?);
    ///
    ///     // The nodes do not know each other yet, so both claims succeed.
    ///     let waits = |mut cx: Context<()>| async move { cx.recv().await };
    ///     let (first, second) = (start(waits), start(waits));
    ///     here.claim("counter", first.pid())?;
    ///     there.claim("counter", second.pid())?;
    ///     till.connect_at("shop@127.0.0.1", shop.local_addr().expect("it listens")).await?;
    ///
    ///     // The older claim wins.
    ///     assert_eq!(second.await, Err(Exit::NameLost("counter".into())));
    ///     assert_eq!(here.owner("counter"), Some(first.pid()));
    ///     let owner = shop.node_pid(first.pid()).map(|pid| till.pid(&pid));
    ///     assert_eq!(there.owner("counter"), owner);
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RegisterError`]: the name of the scope is taken or not allowed, or the node has stopped.
    pub fn share_names(&self, scope: &str) -> Result<SharedNames, RegisterError> {
        let groups = Groups::new();
        let (_, changes) = groups.monitor_all();
        let (by_name, ranks) = (BTreeMap::new(), HashMap::new());
        let (monitors, shares) = (Monitors::default(), groups.clone());
        let table = Table { groups: shares, by_name, ranks, monitors, is_closed: false };
        let table = Arc::new(Mutex::new(table));
        let (own, of_names) = (self.downgrade(), Arc::clone(&table));
        let listed = Listed { scope: scope.to_owned(), node: own, table: of_names };
        let shared = self.share_scope(scope, &groups, Arc::new(listed))?;
        let (node, names) = (self.clone(), Arc::clone(&table));
        let label = format!("names {scope} of {}", self.name());
        let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
        let of_scope = shared.pid();
        let begin = move || {
            let compares = Compares { node, table: names };
            options.try_start(move |cx| run(cx, compares, of_scope, changes)).ok()
        };
        let started = self.0.scheduler.get().and_then(|own| relay::within(*own, begin)).flatten();
        let Some(process) = started else {
            shared.stop();
            return Err(RegisterError::NotAttached(scope.to_owned()));
        };
        Ok(SharedNames { node: self.clone(), scope: shared, pid: process.pid(), table })
    }
}

/// The names of a scope, for the status of the node.
struct Listed {
    scope: String,
    node: WeakNode,
    table: Arc<Mutex<Table>>,
}

impl Part for Listed {
    fn list(&self, lists: &mut Lists) {
        let Some(node) = self.node.upgrade() else { return };
        let owners: Vec<_> = self.table.lock().owners().take(LISTED_MAX).collect();
        lists.shared_names.extend(owners.into_iter().filter_map(|(name, owner)| {
            let (scope, owner) = (self.scope.clone(), node.node_pid(owner)?);
            Some(NameInfo { scope, name: name.to_string(), owner })
        }));
    }
}

/// What the process that compares claims keeps. Its drop takes the names of this node back.
struct Compares {
    node: Node,
    table: Arc<Mutex<Table>>,
}

impl Drop for Compares {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.is_closed = true;
        let monitors = std::mem::take(&mut table.monitors);
        let names: Vec<_> = table.by_name.keys().cloned().collect();
        for name in names {
            table.remove_own(&name, |_| true);
        }
        table.by_name.clear();
        table.ranks.clear();
        drop(table);
        for owner in monitors.by_name.into_values() {
            owner.send_if_modified(|known| known.take().is_some());
        }
    }
}

impl Compares {
    /// Enters a claim, or removes it, as the groups have it now.
    fn changed(&self, group: Arc<str>, pid: Pid) {
        let Some((name, time)) = claimed(&group) else { return };
        // The claims of this node are entered by themselves. A forgotten incarnation has no claims.
        let member = if pid.node() == 0 { None } else { self.node.node_pid(pid) };
        let claim = Claim { group, pid };
        let mut table = self.table.lock();
        let mut losers = Vec::new();
        if claim.stands(&table.groups) {
            if let Some(member) = member {
                table.enter(&name, Rank(time, member), claim);
            }
            losers = table.compare(&name);
        } else {
            table.forget(&name, &claim);
            table.remove_own(&name, |known| *known == claim);
        }
        let monitored = table.monitors.by_name.get(&name).cloned();
        let monitored = monitored.map(|monitored| (monitored, table.owner(&name)));
        drop(table);
        if let Some((monitored, owner)) = monitored {
            monitored.send_if_modified(|known| std::mem::replace(known, owner) != owner);
        }
        for loser in losers {
            send_exit(loser, Exit::NameLost(Arc::clone(&name)));
        }
    }
}

async fn run(
    mut cx: Context<NoMessage>,
    compares: Compares,
    scope: Pid,
    mut changes: GroupMonitor,
) {
    // It ends with the scope.
    cx.monitor(scope);
    loop {
        let mut event = pin!(cx.recv_event());
        let mut changed = pin!(changes.recv());
        let next = poll_fn(|task| match event.as_mut().poll(task) {
            Poll::Ready(event) => Poll::Ready(Err(event)),
            Poll::Pending => changed.as_mut().poll(task).map(Ok),
        })
        .await;
        match next {
            Ok(GroupEvent::Join { group, pid } | GroupEvent::Leave { group, pid }) => {
                compares.changed(group, pid);
            }
            Err(None | Some(Event::Down(_))) => return,
            Ok(_) | Err(Some(_)) => {}
        }
    }
}

/// The error of claiming a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// This process has the name.
    Taken(Pid),
    /// The name has more than 255 characters. In the notation of a term that is no atom, it has
    /// almost 4096 bytes.
    TooLong(String),
    /// The process has ended, or belongs to another node.
    Ended(Pid),
    /// The names are no longer shared, or the node has stopped.
    Stopped,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(owner) => write!(f, "the process {owner} has the name"),
            Self::TooLong(name) => write!(f, "the name {name:?} is too long"),
            Self::Ended(pid) => write!(f, "the process {pid} has ended, or is of another node"),
            Self::Stopped => f.write_str("the names are no longer shared"),
        }
    }
}

impl Error for ClaimError {}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use procession::Pid;
    use procession::process::Groups;

    use super::{Claim, Monitors, Rank, Table, claimed, group_of_claim};
    use crate::groups::{group_name, group_of};
    use crate::release::corpus;
    use crate::term::{Atom, NodePid};

    /// Goal: the table forgets a claim of another node that has ended, and not its membership,
    /// which the scope may have made again.
    #[test]
    fn the_table_ends_no_membership_of_another_node() {
        let (groups, pid) = (Groups::new(), "p3@1.42.7".parse::<Pid>().expect("it is a PID"));
        let (by_name, ranks) = (BTreeMap::new(), HashMap::new());
        let monitors = Monitors::default();
        let mut table =
            Table { groups: groups.clone(), by_name, ranks, monitors, is_closed: false };
        let node = Atom::known("b@127.0.0.1");
        let member = NodePid { node, id: 42, serial: 0, creation: 7 };
        let claims = [17, 18].map(|time| {
            let group = group_of_claim("counter", time).expect("it is short");
            table.enter(&"counter".into(), Rank(time, member.clone()), Claim { group, pid });
            group_of_claim("counter", time).expect("it is short")
        });
        assert!(groups.join_remote(claims[1].clone(), pid));
        assert_eq!(table.owner("counter"), Some(pid));
        assert_eq!(table.ranks.len(), 1, "the smaller one has ended");
        let [_, group] = claims;
        table.forget("counter", &Claim { group: group.clone(), pid });
        assert_eq!((table.owner("counter"), groups.members(&group)), (None, vec![pid]));
        assert!(table.by_name.is_empty() && table.ranks.is_empty());
    }

    #[test]
    fn a_claim_has_its_name_and_its_time() {
        for name in ["counter", "no room", "{room,7}", "7", "", "Lobby", "{counter,7}"] {
            let group = group_of_claim(name, 17).expect("it is short");
            assert_eq!(claimed(&group), Some((name.into(), 17)));
        }
        assert_eq!(group_of_claim(&"x".repeat(256), 17), None);
        // As a term, it is short enough for a group, and not for the group of a claim.
        let long = format!("<<\"{}\">>", "x".repeat(4088));
        assert!(group_of(&long).is_some() && group_of_claim(&long, 17).is_none());
        for group in ["counter", "{counter}", "{counter,now}", "{counter,7,8}"] {
            assert_eq!(claimed(group), None);
        }
    }

    #[test]
    fn a_claim_is_that_of_the_protocol() {
        let group = group_of_claim("counter", 17).and_then(|group| group_of(&group));
        let reads = |word| claimed(&group_name(&word)).is_some_and(|(name, _)| &*name == "counter");
        corpus::check("claim", &[group.expect("it is short")], reads);
    }
}
