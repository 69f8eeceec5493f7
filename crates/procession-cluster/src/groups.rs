//! Process groups of several nodes, by the protocol of OTP's `pg`.
//!
//! Each node has a process for each scope, registered by the name of the scope. It announces the
//! members of its own node, and enters those of other nodes into the [`Groups`] of this program.
//!
//! | message | to | when |
//! |---|---|---|
//! | `{discover, Scope}` | the name of the scope | a node is connected, or a scope asks first |
//! | `{sync, Scope, [{Group, Pids}]}`, a cast | a scope | it asks: all members of this node |
//! | `{join, Scope, Group, Pids}` | each known scope | processes join |
//! | `{leave, Scope, Pids, Groups}` | each known scope | processes leave, or end |
//! | `{sync, Scope, [...], partial}`, a cast | a scope of this crate | joins for it follow |
//! | `{synced, Scope}` | the same | these joins were sent |
//!
//! A scope monitors those of other nodes, so that it forgets their members when they end or cannot
//! be reached. Each node decides about its own members only, so there is nothing to agree on: what
//! two scopes know of one another is what was said last. A node has one scope of a name, so another
//! PID of the node takes the place of the PID before.
//!
//! A message that finds the queue of a connection full, or is not permitted, is not repeated.
//! Instead, the other node gets a `sync` as soon as that is possible, which says the same and takes
//! the same memory however much has changed. Members for which a `sync` has no room follow in
//! joins. A scope of this crate takes away what is missing after the last of these joins. A scope
//! of the BEAM does so after the `sync`, so its processes see such members leave and return.
//!
//! When a scope is started on a node of the BEAM, it looks for the scopes of visible nodes only. So
//! a hidden node asks the connected nodes of the BEAM again while they have none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::{Event, Recipient, relay};
use procession::process::{GroupEvent, GroupMonitor, Groups, OnCancel, cancel};
use procession::time::{Instant, sleep_until};
use procession::{Address, Context, Pid, SpawnOptions, yield_now};

mod listed;
mod name;
mod peer;
mod wire;

use self::listed::Listed;
pub use self::name::group_name;
pub(crate) use self::name::group_of;
use self::name::known_name;
use self::peer::{Entries, Members, Peer, counted, is_of_node, tell};
use self::wire::{Said, pids};
use crate::error::RegisterError;
use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::node::member::Member;
use crate::node::parts::Part;
use crate::node::{Inlet, Node, TypedInlet};
use crate::remote::Remote;
use crate::term::{Atom, NodePid, Term};

/// The memory that a `sync` takes at most, unless half the limit of messages is less.
const SYNC_MAX: usize = 16 << 20;
/// The members in a join after a `sync`, so that it has at most some 400 KiB with any names.
const JOIN_MAX: usize = 256;
/// The memberships of one other node that are known here, at most. With some 200 bytes for each,
/// they take at most about 200 MiB.
const MEMBERS_MAX: usize = 1 << 20;
/// The members that are entered in one step.
const STEP: usize = 64;
/// The time between two attempts to bring a node up to date that had no room.
const AGAIN: Duration = Duration::from_millis(100);
/// The time between two questions to a node of the BEAM without the scope.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A scope of groups that a node shares with other nodes. [`Node::share_groups`] makes it.
#[derive(Clone, Debug)]
pub struct SharedGroups {
    pid: Pid,
    member: Member,
}

impl SharedGroups {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the process of the scope, as other nodes know it.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Stops to share the groups: the members of other nodes leave here, and those of this node
    /// leave there. It also stops when the node does.
    pub fn stop(&self) {
        cancel(self.pid);
    }
}

impl Node {
    /// Shares a scope of process groups with the other nodes that have a scope of this name, on the
    /// BEAM (`pg:start_link(Scope)`) and of this crate.
    ///
    /// From then on, `groups` has the members of all connected nodes: those that join here can be
    /// seen by `pg:get_members`, and those that join there by [`Groups::members`], and
    /// [`Groups::local_members`] has those of this node. Monitors of both sides get each change. A
    /// [broadcast](Groups::broadcast) of a [`Term`] reaches the members on other nodes, and the
    /// members here that receive terms. To be reached from there, a member is
    /// [attached](Self::attach).
    ///
    /// A group is an atom for other nodes. A name in the notation of another term means that term:
    /// the group `{room,7}` of the BEAM is `"{room,7}"` here ([`group_name`]). A name of more than
    /// 255 characters, or of 4096 bytes if it means another term, stays on its node.
    ///
    /// Nodes agree within a round trip after the last change. A node that is out of reach takes its
    /// members along, and brings them back when it is connected again. With
    /// [`grants_only`](crate::NodeBuilder::grants_only), other nodes need the grants to
    /// [send](crate::Grants::send) to the name of the scope, and [by
    /// PID](crate::Grants::send_by_pid). Of one node, 1 048 576 memberships are known at most. The
    /// members of a node arrive in messages of at most 16 MiB, and of half of that node's
    /// [limit](crate::NodeBuilder::message_limit).
    ///
    /// The [door](procession::observe) of the scheduler has a section `groups` with the groups of
    /// each scope, and with the owners of [shared names](Self::share_names).
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    ///
    /// use procession::process::{GroupEvent, Groups};
    /// use procession::{Context, start};
    /// use procession_cluster::{Cookie, Letter, Node, Term};
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
    ///     let (here, there) = (Groups::new(), Groups::new());
    ///     shop.share_groups("pg", &here)?;
    ///     till.share_groups("pg", &there)?;
    ///
    ///     let ann = start(|mut cx: Context<Term>| async move { cx.recv().await });
    ///     shop.attach(&ann.address().map(|letter| match letter {
    ///         Letter::Message { term, .. } | Letter::Cast(term) => term,
    ///         _ => Term::atom("other"),
    ///     }));
    ///     here.join("lobby", ann.pid())?;
    ///     let (_, mut changes) = there.monitor("lobby");
    ///     till.connect_at("shop@127.0.0.1", shop.local_addr().expect("it listens")).await?;
    ///     let GroupEvent::Join { pid, .. } = changes.recv().await else { panic!("it joins") };
    ///     assert_eq!(there.members("lobby"), [pid]);
    ///     assert_eq!(there.broadcast("lobby", Term::atom("hello")).ok(), Some(1));
    ///     assert_eq!(ann.await?, Some(Term::atom("hello")));
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RegisterError`]: the name is taken or not allowed, or the node has stopped.
    pub fn share_groups(
        &self,
        scope: &str,
        groups: &Groups,
    ) -> Result<SharedGroups, RegisterError> {
        let listed = Listed { scope: scope.to_owned(), groups: groups.clone() };
        self.share_scope(scope, groups, Arc::new(listed))
    }

    /// Shares a scope of groups. The process of the scope keeps the part.
    pub(crate) fn share_scope(
        &self,
        scope: &str,
        groups: &Groups,
        part: Arc<dyn Part>,
    ) -> Result<SharedGroups, RegisterError> {
        self.add_part(Arc::downgrade(&part));
        let name = Atom::new(scope).ok_or_else(|| RegisterError::TooLong(scope.to_owned()))?;
        let (node, groups) = (self.clone(), groups.clone());
        let label = format!("groups {name} of {}", self.name());
        let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
        let begin = move || options.try_start(move |cx| run(cx, node, name, groups, part)).ok();
        let started = self.0.scheduler.get().and_then(|own| relay::within(*own, begin)).flatten();
        let stopped = || RegisterError::NotAttached(scope.to_owned());
        let process = started.filter(|_| !self.is_leaving()).ok_or_else(stopped)?;
        let (pid, member) = (process.pid(), attach(self, process.address()));
        if let Err(refused) = self.register(scope, &member) {
            cancel(pid);
            return Err(refused);
        }
        Ok(SharedGroups { pid, member })
    }
}

/// What the process of a scope receives.
#[derive(Debug)]
enum Heard {
    /// A term, and the node that has sent it.
    Term(Atom, Term),
    /// News of a connection, or of the scope of another node.
    Letter(Letter),
}

/// The way of terms to a scope. It knows the node that sends, because a node speaks for itself only
/// and a term may name any other.
struct Ear(Address<Heard>);

impl TypedInlet for Ear {
    fn take(&self, _: &Node, _: &NodePid, sender: &Atom, term: Term) -> bool {
        self.0.send(Heard::Term(sender.clone(), term)).is_ok()
    }
}

fn attach(node: &Node, address: &Address<Heard>) -> Member {
    let inlet = || Inlet::Typed(Guarded::new(Arc::new(Ear(address.clone()))));
    Member::new(node.clone(), node.number_for(address.pid(), Some(&inlet)))
}

#[derive(Debug)]
struct Scope {
    node: Node,
    own: Member,
    /// The way of letters to this process.
    letters: Recipient<Letter>,
    name: Atom,
    groups: Groups,
    /// The members of this node as others know them.
    local: BTreeMap<Arc<str>, Vec<(Pid, NodePid)>>,
    /// The scopes of other nodes, by the names of the nodes.
    peers: BTreeMap<Atom, Peer>,
    /// The nodes that were not asked whether they have the scope, because there was no room.
    unasked: BTreeSet<Atom>,
    /// When those that wait are tried again. While none waits, never.
    again: Instant,
    /// How many memberships of other nodes have changed, or were looked for and not found.
    looks: usize,
}

/// What a scope waits for.
enum Next {
    Heard(Heard),
    Changed(GroupEvent),
    /// Something else may have happened: the node may leave, or it is time to try again.
    Look,
    End,
}

async fn run(mut cx: Context<Heard>, node: Node, name: Atom, groups: Groups, part: Arc<dyn Part>) {
    let of = node.name().clone();
    let _shown = cx.show_section("groups", move |section| listed::show(&of, &*part, section));
    let (members, mut changes) = groups.monitor_all();
    let mut scope = Scope::new(&cx, node, name, groups);
    for (group, pids) in members {
        for pid in pids {
            scope.joined(Arc::clone(&group), pid);
        }
    }
    // It first learns of the nodes that are connected.
    scope.node.subscribe(&scope.letters);
    let mut asked = Instant::now();
    loop {
        match next(&mut cx, &mut changes, &mut scope, asked).await {
            Next::Heard(Heard::Term(node, term)) => scope.term(&node, &term).await,
            Next::Heard(Heard::Letter(letter)) => scope.letter(letter).await,
            Next::Changed(change) => {
                scope.changed(change);
                // What this scope enters comes back as changes, and may be much.
                for change in iter::from_fn(|| changes.try_recv().ok()).take(STEP) {
                    scope.changed(change);
                }
            }
            Next::Look => {
                scope.catch_up();
                if Instant::now() >= asked + ASK_EVERY {
                    asked = Instant::now();
                    scope.without_scope().into_iter().for_each(|node| scope.ask(node));
                }
            }
            Next::End => return,
        }
        if scope.node.is_leaving() {
            return;
        }
    }
}

async fn next(
    cx: &mut Context<Heard>,
    changes: &mut GroupMonitor,
    scope: &mut Scope,
    asked: Instant,
) -> Next {
    if !scope.has_waiting() {
        scope.again = Instant::NEVER;
    } else if scope.again == Instant::NEVER {
        scope.again = Instant::now() + AGAIN;
    }
    let ask = if scope.without_scope().is_empty() { Instant::NEVER } else { asked + ASK_EVERY };
    let until = scope.again.min(ask);
    // Before anything else, because there may always be something else.
    if until != Instant::NEVER && Instant::now() >= until {
        return Next::Look;
    }
    let mut stopped = pin!(scope.node.0.changed.notified());
    stopped.as_mut().enable();
    if scope.node.is_leaving() {
        return Next::End;
    }
    let mut event = pin!(cx.recv_event());
    let mut changed = pin!(changes.recv());
    let mut time = pin!(sleep_until(until));
    poll_fn(|task| {
        // Changes first, because a letter may be from a member that has joined before.
        if let Poll::Ready(change) = changed.as_mut().poll(task) {
            return Poll::Ready(Next::Changed(change));
        }
        match event.as_mut().poll(task) {
            Poll::Ready(Some(Event::Message(heard))) => return Poll::Ready(Next::Heard(heard)),
            Poll::Ready(Some(_)) => return Poll::Ready(Next::Look),
            Poll::Ready(None) => return Poll::Ready(Next::End),
            Poll::Pending => {}
        }
        let is_woken =
            stopped.as_mut().poll(task).is_ready() || time.as_mut().poll(task).is_ready();
        if is_woken { Poll::Ready(Next::Look) } else { Poll::Pending }
    })
    .await
}

impl Scope {
    fn new(cx: &Context<Heard>, node: Node, name: Atom, groups: Groups) -> Self {
        Self {
            own: attach(&node, &cx.address()),
            node,
            letters: cx.address().map(Heard::Letter),
            name,
            groups,
            local: BTreeMap::new(),
            peers: BTreeMap::new(),
            unasked: BTreeSet::new(),
            again: Instant::NEVER,
            looks: 0,
        }
    }

    fn own_pid(&self) -> Term {
        self.own.pid().into()
    }

    // What happens here.

    fn changed(&mut self, change: GroupEvent) {
        match change {
            GroupEvent::Join { group, pid } => self.joined(group, pid),
            GroupEvent::Leave { group, pid } => self.left(&group, pid),
            _ => {}
        }
    }

    fn joined(&mut self, group: Arc<str>, pid: Pid) {
        if pid.remote_parts().is_some() {
            return;
        }
        let Some(term) = group_of(&group) else { return };
        let Some(member) = self.node.node_pid(pid) else { return };
        self.tell_all(wire::join(self.own_pid(), term, member.clone().into()));
        self.local.entry(group).or_default().push((pid, member));
    }

    fn left(&mut self, group: &str, pid: Pid) {
        let Some(members) = self.local.get_mut(group) else { return };
        let Some(at) = members.iter().position(|(member, _)| *member == pid) else { return };
        let (_, member) = members.remove(at);
        if members.is_empty() {
            self.local.remove(group);
        }
        if let Some(term) = group_of(group) {
            self.tell_all(wire::leave(self.own_pid(), member.into(), term));
        }
    }

    // What is said to others.

    fn ask(&mut self, node: Atom) {
        let to = Remote::Name { name: self.name.clone(), node: node.clone() };
        let discover = wire::discover(self.own_pid());
        if !self.is_permitted(&to) || tell(&self.own, to, discover).is_err() {
            self.unasked.insert(node);
        }
    }

    fn tell_all(&mut self, term: Term) {
        self.peers.values_mut().for_each(|peer| peer.tell_change(&self.own, &term));
    }

    /// Returns the members of this node as messages to another one: a `sync`, and joins of the
    /// members for which it has no room. A node of this crate learns which joins these are.
    fn all(&self, is_own_kind: bool) -> VecDeque<Term> {
        let list = |members: &[(Pid, NodePid)]| {
            Term::list(members.iter().map(|(_, member)| Term::from(member)))
        };
        let mut room = SYNC_MAX.min(self.node.0.message_limit / 2);
        let (mut groups, mut joins) = (Vec::new(), Vec::new());
        for (name, members) in &self.local {
            let Some(group) = group_of(name) else { continue };
            let entry = Term::tuple([group.clone(), list(members)]);
            match room.checked_sub(entry.memory_bytes()) {
                Some(left) => {
                    room = left;
                    groups.push(entry);
                }
                None => {
                    let join = |members| wire::join(self.own_pid(), group.clone(), list(members));
                    joins.extend(members.chunks(JOIN_MAX).map(join));
                }
            }
        }
        let is_partial = is_own_kind && !joins.is_empty();
        let synced = is_partial.then(|| wire::synced(self.own_pid()));
        let sync = wire::sync(self.own_pid(), groups, is_partial);
        [sync].into_iter().chain(joins).chain(synced).collect()
    }

    fn is_of_own_kind(&self, peer: &NodePid) -> bool {
        self.node.link_of(&peer.into()).is_some_and(|link| link.is_of_own_kind())
    }

    fn has_waiting(&self) -> bool {
        !self.unasked.is_empty() || self.peers.values().any(Peer::is_waiting)
    }

    /// Returns `false` if the node of a process does not permit messages to it, as far as is known.
    fn is_permitted(&self, process: &Remote) -> bool {
        let link = self.node.link_of(process);
        link.is_none_or(|link| link.permitted.permits(&process.target()))
    }

    /// Brings the nodes up to date that lack changes.
    fn catch_up(&mut self) {
        self.again = Instant::NEVER;
        for node in std::mem::take(&mut self.unasked) {
            self.ask(node);
        }
        let discover = wire::discover(self.own_pid());
        let (mut peers, mut all) = (std::mem::take(&mut self.peers), [None, None]);
        for peer in peers.values_mut().filter(|peer| peer.is_waiting()) {
            if !self.is_permitted(&Remote::from(&peer.pid)) {
                continue;
            }
            if std::mem::take(&mut peer.is_behind) {
                let is_own_kind = self.is_of_own_kind(&peer.pid);
                let all =
                    all[usize::from(is_own_kind)].get_or_insert_with(|| self.all(is_own_kind));
                peer.rest.clone_from(all);
            }
            peer.tell_rest(&self.own);
            peer.is_unasked =
                peer.is_unasked && tell(&self.own, &peer.pid, discover.clone()).is_err();
        }
        self.peers = peers;
    }

    /// Returns the connected nodes that do not ask this one when they start the scope, and have
    /// none so far.
    fn without_scope(&self) -> Vec<Atom> {
        if self.node.is_visible() {
            return Vec::new();
        }
        let peers = self.node.0.peers.lock();
        let names = peers.links().filter(|link| !link.is_of_own_kind()).map(|link| &link.peer.name);
        names.filter(|name| !self.peers.contains_key(*name)).cloned().collect()
    }

    // What others say.

    async fn letter(&mut self, letter: Letter) {
        match letter {
            Letter::NodeUp { node, .. } => self.ask(node),
            Letter::Down(down) => {
                let Remote::Pid(pid) = &down.process else { return };
                let Some(peer) = self.known(pid) else { return };
                if peer.monitor != down.monitor {
                    return;
                }
                let has_replaced = peer.has_replaced;
                self.forget(pid).await;
                // A late message of an ended scope may have replaced the scope that follows it.
                if has_replaced {
                    self.ask(pid.node.clone());
                }
            }
            _ => {}
        }
    }

    async fn term(&mut self, node: &Atom, term: &Term) {
        let Some((peer, said)) = wire::read(term).filter(|(peer, _)| peer.node == *node) else {
            return;
        };
        match said {
            Said::Discover => self.discovered(peer).await,
            Said::Join(group, who) => self.join(peer, group, who).await,
            Said::Leave(who, groups) => self.leave(peer, who, groups).await,
            Said::Sync(groups, is_partial) => self.sync(peer, groups, is_partial).await,
            Said::Synced => self.remove_surplus(peer).await,
        }
    }

    /// Returns what is known of the scope of another node.
    fn known(&mut self, pid: &NodePid) -> Option<&mut Peer> {
        self.peers.get_mut(&pid.node).filter(|peer| peer.pid == *pid)
    }

    /// Enters the scope of another node. Returns `false` if it is known, or is none.
    async fn enter(&mut self, pid: &NodePid) -> bool {
        let is_new = self.known(pid).is_none()
            && pid.node != *self.node.name()
            && self.node.reaches(&pid.into());
        if is_new {
            let before = self.peers.get(&pid.node).map(|peer| peer.pid.clone());
            if let Some(before) = &before {
                self.forget(before).await;
            }
            let letters = Guarded::new(self.letters.clone());
            let peer = Peer {
                pid: pid.clone(),
                monitor: self.own.monitor_by(pid.into(), letters),
                has_replaced: before.is_some(),
                members: BTreeMap::new(),
                count: 0,
                is_behind: false,
                rest: VecDeque::new(),
                is_unasked: false,
            };
            self.peers.insert(pid.node.clone(), peer);
        }
        is_new
    }

    /// Forgets the scope of another node. Its members leave.
    async fn forget(&mut self, pid: &NodePid) {
        self.set_members(pid, &BTreeMap::new(), false).await;
        if let Some(peer) = self.peers.remove(&pid.node) {
            self.own.demonitor(pid, &peer.monitor);
        }
    }

    async fn discovered(&mut self, pid: &NodePid) {
        let is_new = self.enter(pid).await;
        if self.known(pid).is_none() {
            return;
        }
        let all = self.all(self.is_of_own_kind(pid));
        let discover = wire::discover(self.own_pid());
        let Some(peer) = self.peers.get_mut(&pid.node) else { return };
        (peer.rest, peer.is_behind) = (all, false);
        peer.tell_rest(&self.own);
        peer.is_unasked |= is_new && tell(&self.own, pid, discover).is_err();
    }

    async fn join(&mut self, peer: &NodePid, group: &Term, who: &[Term]) {
        let Some(name) = known_name(group) else { return };
        for pid in who.iter().filter_map(Term::as_pid) {
            self.add(peer, &name, pid);
            self.pause().await;
        }
    }

    /// Removes processes from groups. The two lists are by another node, which could make their
    /// product huge. So the work for each group is bounded by its members: they are compared with
    /// the processes if they are fewer.
    async fn leave(&mut self, peer: &NodePid, who: &[Term], groups: &[Term]) {
        let who = who.iter().filter_map(Term::as_pid).filter(|pid| is_of_node(pid, peer));
        let (who, groups) = (counted(who), counted(groups.iter().filter_map(known_name)));
        for (name, often) in groups {
            let Some(known) = self.known(peer) else { return };
            let members: Vec<_> = known.members_of(&name).take(who.len()).cloned().collect();
            let is_shorter = members.len() < who.len();
            let leaving = if is_shorter { members } else { who.keys().copied().cloned().collect() };
            for pid in leaving {
                let times = who.get(&pid).copied().unwrap_or_default();
                for _ in 0..often.saturating_mul(times) {
                    self.pause().await;
                    if !self.remove(peer, &name, &pid) {
                        break;
                    }
                }
            }
            self.pause().await;
        }
    }

    async fn sync(&mut self, peer: &NodePid, groups: &[Term], is_partial: bool) {
        self.enter(peer).await;
        let groups = groups.iter().filter_map(|group| match group.as_tuple() {
            Some([group, who]) => Some((known_name(group)?, pids(who))),
            _ => None,
        });
        let members = groups.flat_map(|(name, who)| {
            let who = who.iter().filter_map(Term::as_pid).filter(|pid| is_of_node(pid, peer));
            who.map(move |pid| (Arc::clone(&name), pid.clone()))
        });
        let wanted = counted(members.take(MEMBERS_MAX));
        self.set_members(peer, &wanted, is_partial).await;
    }

    /// Makes the members of a node those that are wanted. If more follow, keeps the others so far.
    async fn set_members(&mut self, peer: &NodePid, wanted: &Members, is_partial: bool) {
        let Some(known) = self.known(peer) else { return };
        known.compare(wanted);
        if !is_partial {
            self.remove_surplus(peer).await;
        }
        for (member, count) in wanted {
            let known = self.known(peer).and_then(|peer| peer.members.get(member));
            for _ in known.map_or(0, |known| known.count)..*count {
                self.add(peer, &member.0, &member.1);
                self.pause().await;
            }
        }
    }

    /// Removes the members of a node that its latest `sync` has not named.
    async fn remove_surplus(&mut self, peer: &NodePid) {
        let Some(known) = self.known(peer) else { return };
        for ((name, pid), count) in known.take_surplus() {
            for _ in 0..count {
                self.remove(peer, &name, &pid);
                self.pause().await;
            }
        }
    }

    /// Lets other processes run now and then.
    async fn pause(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(STEP) {
            yield_now().await;
        }
    }

    /// Notes that a process of another node is in a group once more.
    fn add(&mut self, peer: &NodePid, name: &Arc<str>, pid: &NodePid) {
        let known = self.peers.get_mut(&peer.node).filter(|known| known.pid == *peer);
        let Some(known) = known else { return };
        let key = (Arc::clone(name), pid.clone());
        match known.members.get_mut(&key) {
            // It was in the group before the `sync` to which this belongs.
            Some(entries) if entries.surplus > 0 => entries.surplus -= 1,
            _ if is_of_node(pid, peer) && known.count < MEMBERS_MAX => {
                let own = || Entries { pid: self.node.pid(pid), count: 0, surplus: 0 };
                let entries = known.members.entry(key).or_insert_with(own);
                entries.count += 1;
                known.count += 1;
                self.groups.join_remote(Arc::clone(name), entries.pid);
            }
            _ => {}
        }
    }

    /// Notes that a process of another node is in a group once less. Returns `false` if it was in
    /// none.
    fn remove(&mut self, peer: &NodePid, name: &Arc<str>, pid: &NodePid) -> bool {
        let Some(known) = self.known(peer) else { return false };
        let key = (Arc::clone(name), pid.clone());
        let Some(entries) = known.members.get_mut(&key) else { return false };
        entries.count -= 1;
        entries.surplus = entries.surplus.min(entries.count);
        let Entries { pid, count, .. } = *entries;
        if count == 0 {
            known.members.remove(&key);
        }
        known.count -= 1;
        self.groups.leave(name, pid);
        true
    }
}

/// The members of other nodes leave with the scope.
impl Drop for Scope {
    fn drop(&mut self) {
        for peer in std::mem::take(&mut self.peers).into_values() {
            for ((name, _), Entries { pid, count, .. }) in peer.members {
                for _ in 0..count {
                    self.groups.leave(&name, pid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::time::Duration;

    use procession::process::{GroupEvent, Groups};
    use procession::{Context, Scheduler, start, timeout};

    use super::{Heard, Scope};
    use crate::cookie::Cookie;
    use crate::letter::Letter;
    use crate::node::Node;
    use crate::term::{Atom, NodePid, Term};

    /// Returns two nodes that are connected, by the names `near` and `far`.
    async fn pair() -> [Node; 2] {
        let cookie = Cookie::new("secret").expect("it has a text");
        let far = Node::builder("far@127.0.0.1").cookie(cookie.clone());
        let far = far.listen((Ipv4Addr::LOCALHOST, 0).into()).start().await.expect("it starts");
        let near = Node::builder("near@127.0.0.1").cookie(cookie).start().await.expect("it starts");
        let address = far.local_addr().expect("it listens");
        near.connect_at("far@127.0.0.1", address).await.expect("it listens");
        [near, far]
    }

    /// Goal: a node that says of many processes that they leave many groups takes work for what it
    /// has sent and for its members, and not for the product of the two lists.
    #[test]
    fn many_processes_leave_many_groups_with_little_work() {
        const COUNT: u32 = 1000;
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
        scheduler.block_on(async {
            let [near, far] = pair().await;
            let groups = Groups::new();
            let (here, node) = (groups.clone(), near.clone());
            let scope = start(move |cx: Context<Heard>| async move {
                let mut scope = Scope::new(&cx, node, Atom::new("pg").expect("it is short"), here);
                let (node, creation) = (far.name().clone(), far.0.own.creation);
                let pid = |id| NodePid { node: node.clone(), id, serial: 0, creation };
                let peer = pid(0);
                assert!(scope.enter(&peer).await);
                let all: Vec<Term> = (1..=COUNT).map(|id| pid(id).into()).collect();
                let name = |at: u32| Term::atom(&format!("group {at}"));
                // All processes are in the first group, and one in each of the others, twice.
                scope.join(&peer, &name(0), &all).await;
                for at in 1..COUNT {
                    scope.join(&peer, &name(at), &[all[0].clone(), all[0].clone()]).await;
                }
                let mut took = Vec::new();
                for (who, groups) in
                    [(&all[..], 0..COUNT), (&all[..1], 1..COUNT), (&all[..], 0..COUNT)]
                {
                    let before = scope.looks;
                    let groups: Vec<_> = groups.map(name).collect();
                    scope.leave(&peer, who, &groups).await;
                    took.push((scope.looks - before, scope.peers[&peer.node].count));
                }
                took
            });
            let took = scope.await.expect("it ends");
            let left: Vec<_> = took.iter().map(|(_, left)| *left).collect();
            assert_eq!(left, [COUNT as usize - 1, 0, 0]);
            assert!(took.iter().all(|(looks, _)| *looks <= 4 * COUNT as usize), "{took:?}");
            assert_eq!(groups.groups(), Vec::<Arc<str>>::new());
            near.stop().await;
        });
    }

    #[test]
    fn members_of_a_forgotten_incarnation_leave() {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
        scheduler.block_on(async {
            let [near, far] = pair().await;
            let (here, there) = (Groups::new(), Groups::new());
            near.share_groups("pg", &here).expect("the name is free");
            far.share_groups("pg", &there).expect("the name is free");
            let member = start(|mut cx: Context<Letter>| async move { cx.recv().await.is_some() });
            far.attach(&member.address().map(|letter| letter));
            there.join("lobby", member.pid()).expect("it runs");
            let (_, mut changes) = here.monitor("lobby");
            assert!(matches!(changes.recv().await, GroupEvent::Join { .. }));
            // As when the next incarnation connects before the end of this one is told.
            let next = far.0.own.creation + 1;
            let gone = near.0.remotes.lock().connected(far.name(), next);
            drop(gone);
            far.stop().await;
            let left = timeout(Duration::from_secs(20), changes.recv()).await;
            assert!(matches!(left, Ok(GroupEvent::Leave { .. })), "{left:?}");
            assert_eq!(here.groups(), Vec::<Arc<str>>::new());
            near.stop().await;
        });
    }
}
