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
//!
//! A scope monitors those of other nodes, so that it forgets their members when they end or cannot
//! be reached. Each node decides about its own members only, so there is nothing to agree on: what
//! two scopes know of one another is what was said last.
//!
//! A message that finds the queue of a connection full is not repeated. Instead, the other node
//! gets a `sync` once there is room, which says the same and takes the same memory however much has
//! changed.
//!
//! When a scope is started on a node of the BEAM, it looks for the scopes of visible nodes only. So
//! a hidden node asks the connected nodes of the BEAM again while they have none.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::{Event, relay};
use procession::process::{GroupEvent, GroupMonitor, Groups, OnCancel, cancel};
use procession::time::{Instant, sleep_until};
use procession::{Context, Pid, SpawnOptions, yield_now};

use crate::error::{RegisterError, SendTermCause};
use crate::letter::Letter;
use crate::node::Node;
use crate::node::member::Member;
use crate::remote::Remote;
use crate::term::{Atom, NodePid, Reference, Term};

/// The longest name of a group, in bytes. A group of another node with a longer one is left out.
const NAME_MAX: usize = 4096;
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

/// Returns the name that a group of the BEAM has in [`Groups`]: the text of an atom, and the
/// notation of any other term.
///
/// ```
/// use procession_cluster::{Term, group_name};
///
/// assert_eq!(&*group_name(&Term::atom("lobby")), "lobby");
/// assert_eq!(&*group_name(&Term::tuple([Term::atom("room"), Term::from(7)])), "{room,7}");
/// ```
pub fn group_name(group: &Term) -> Arc<str> {
    match group {
        Term::Atom(atom) => atom.as_str().into(),
        other => other.to_string().into(),
    }
}

/// Returns the group that a name means on other nodes. `None` if there is none: an atom has at most
/// 255 characters.
pub(crate) fn group_of(name: &str) -> Option<Term> {
    match name.parse::<Term>() {
        Ok(term) if !matches!(term, Term::Atom(_)) && *group_name(&term) == *name => Some(term),
        _ => Atom::new(name).map(Term::Atom),
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
    /// 255 characters stays on this node.
    ///
    /// Nodes agree within a round trip after the last change. A node that is out of reach takes its
    /// members along, and brings them back when it is connected again. With
    /// [`grants_only`](crate::NodeBuilder::grants_only), other nodes need the grants to
    /// [send](crate::Grants::send) to the name of the scope, and [by
    /// PID](crate::Grants::send_by_pid). Of one node, 1 048 576 memberships are known at most.
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
        let name = Atom::new(scope).ok_or_else(|| RegisterError::TooLong(scope.to_owned()))?;
        let (node, groups) = (self.clone(), groups.clone());
        let label = format!("groups {name} of {}", self.name());
        let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
        let begin = move || options.try_start(move |cx| run(cx, node, name, groups)).ok();
        let started = self.0.scheduler.get().and_then(|own| relay::within(*own, begin)).flatten();
        let stopped = || RegisterError::NotAttached(scope.to_owned());
        let process = started.filter(|_| !self.is_leaving()).ok_or_else(stopped)?;
        let (pid, member) = (process.pid(), self.attach(&process.address().map(|letter| letter)));
        if let Err(refused) = self.register(scope, &member) {
            cancel(pid);
            return Err(refused);
        }
        Ok(SharedGroups { pid, member })
    }
}

/// A process in a group.
#[derive(Clone, Copy, Debug)]
struct Entries {
    /// It is kept, because a node forgets the PIDs of an incarnation when it meets the next one.
    pid: Pid,
    /// How often the process is in the group.
    count: usize,
}

/// The scope of another node.
#[derive(Debug)]
struct Peer {
    monitor: Reference,
    members: BTreeMap<(Arc<str>, NodePid), Entries>,
    /// How many entries these are.
    count: usize,
    /// It lacks changes, because they had no room.
    is_behind: bool,
    /// It was not asked for its members, because there was no room.
    is_unasked: bool,
}

impl Peer {
    fn is_waiting(&self) -> bool {
        self.is_behind || self.is_unasked
    }
}

#[derive(Debug)]
struct Scope {
    node: Node,
    own: Member,
    name: Atom,
    groups: Groups,
    /// The members of this node as others know them.
    local: BTreeMap<Arc<str>, Vec<(Pid, NodePid)>>,
    peers: BTreeMap<NodePid, Peer>,
    /// How many memberships of other nodes have changed.
    changes: usize,
}

/// What a scope waits for.
enum Next {
    Letter(Letter),
    Changed(GroupEvent),
    /// Something else may have happened: the node may leave, or it is time to try again.
    Look,
    End,
}

async fn run(mut cx: Context<Letter>, node: Node, name: Atom, groups: Groups) {
    let recipient = cx.address().map(|letter| letter);
    let own = node.attach(&recipient);
    let (members, mut changes) = groups.monitor_all();
    let (local, peers) = (BTreeMap::new(), BTreeMap::new());
    let mut scope = Scope { node, own, name, groups, local, peers, changes: 0 };
    for (group, pids) in members {
        for pid in pids {
            scope.joined(Arc::clone(&group), pid);
        }
    }
    // It first learns of the nodes that are connected.
    scope.node.subscribe(&recipient);
    let mut asked = Instant::now();
    loop {
        match next(&mut cx, &mut changes, &scope, asked).await {
            Next::Letter(letter) => scope.letter(letter).await,
            Next::Changed(GroupEvent::Join { group, pid }) => scope.joined(group, pid),
            Next::Changed(GroupEvent::Leave { group, pid }) => scope.left(&group, pid),
            Next::Changed(_) => {}
            Next::Look => {
                scope.catch_up();
                if Instant::now() >= asked + ASK_EVERY {
                    asked = Instant::now();
                    scope.unasked().into_iter().for_each(|node| scope.ask(node));
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
    cx: &mut Context<Letter>,
    changes: &mut GroupMonitor,
    scope: &Scope,
    asked: Instant,
) -> Next {
    let until = if scope.peers.values().any(Peer::is_waiting) {
        Instant::now() + AGAIN
    } else if scope.unasked().is_empty() {
        Instant::NEVER
    } else {
        asked + ASK_EVERY
    };
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
            Poll::Ready(Some(Event::Message(letter))) => return Poll::Ready(Next::Letter(letter)),
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

fn message(word: &str, parts: impl IntoIterator<Item = Term>) -> Term {
    Term::tuple([Term::atom(word)].into_iter().chain(parts))
}

/// Returns a process, or the processes of a list. Of anything else, none.
fn pids(term: &Term) -> &[Term] {
    match term {
        Term::Pid(_) => std::slice::from_ref(term),
        Term::List(items) => items,
        _ => &[],
    }
}

impl Scope {
    fn own_pid(&self) -> Term {
        self.own.pid().into()
    }

    // What happens here.

    fn joined(&mut self, group: Arc<str>, pid: Pid) {
        let Some(term) = group_of(&group).filter(|_| pid.remote_parts().is_none()) else { return };
        let Some(member) = self.node.node_pid(pid) else { return };
        self.tell_all(message("join", [self.own_pid(), term, member.clone().into()]));
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
            self.tell_all(message(
                "leave",
                [self.own_pid(), member.into(), Term::List(vec![term])],
            ));
        }
    }

    // What is said to others.

    fn ask(&self, node: Atom) {
        let to = Remote::Name { name: self.name.clone(), node };
        // Ignored: the queue of a new connection has room.
        drop(self.own.send(to, message("discover", [self.own_pid()])));
    }

    fn tell_all(&mut self, term: Term) {
        for (pid, peer) in &mut self.peers {
            if !peer.is_behind {
                peer.is_behind = !tell(&self.own, pid, term.clone());
            }
        }
    }

    /// Returns the members of this node, as a message to another one.
    fn all(&self) -> Term {
        let groups = self.local.iter().filter_map(|(group, members)| {
            let members = members.iter().map(|(_, member)| Term::from(member));
            Some(Term::tuple([group_of(group)?, Term::list(members)]))
        });
        let sync = message("sync", [self.own_pid(), Term::list(groups)]);
        Term::tuple([Term::atom("$gen_cast"), sync])
    }

    /// Brings the nodes up to date that lack changes.
    fn catch_up(&mut self) {
        if !self.peers.values().any(Peer::is_waiting) {
            return;
        }
        let (all, discover) = (self.all(), message("discover", [self.own_pid()]));
        for (pid, peer) in &mut self.peers {
            peer.is_behind = peer.is_behind && !tell(&self.own, pid, all.clone());
            peer.is_unasked = peer.is_unasked && !tell(&self.own, pid, discover.clone());
        }
    }

    /// Returns the connected nodes that do not ask this one when they start the scope, and have
    /// none so far.
    fn unasked(&self) -> Vec<Atom> {
        if self.node.is_visible() {
            return Vec::new();
        }
        let known: BTreeSet<&Atom> = self.peers.keys().map(|peer| &peer.node).collect();
        let peers = self.node.0.peers.lock();
        let names = peers.links().filter(|link| !link.is_of_own_kind()).map(|link| &link.peer.name);
        names.filter(|name| !known.contains(name)).cloned().collect()
    }

    // What others say.

    async fn letter(&mut self, letter: Letter) {
        match letter {
            Letter::NodeUp { node, .. } => self.ask(node),
            Letter::Down(down) => {
                let Remote::Pid(pid) = &down.process else { return };
                if self.peers.get(pid).is_some_and(|peer| peer.monitor == down.monitor) {
                    self.sync(pid, &[]).await;
                    self.peers.remove(pid);
                }
            }
            Letter::Message { from, term } => {
                let Some([Term::Atom(word), Term::Pid(peer), rest @ ..]) = term.as_tuple() else {
                    return;
                };
                // A node speaks for itself.
                if from.is_some_and(|from| from.node != peer.node) {
                    return;
                }
                match (word.as_str(), rest) {
                    // Later releases of OTP add a version.
                    ("discover", [] | [_]) => self.discovered(peer),
                    ("join", [group, who]) => self.join(peer, group, pids(who)).await,
                    ("leave", [who, Term::List(groups)]) => {
                        self.leave(peer, pids(who), groups).await
                    }
                    _ => {}
                }
            }
            Letter::Cast(term) => {
                if let Some([word, Term::Pid(peer), Term::List(groups)]) = term.as_tuple()
                    && word.is_atom("sync")
                {
                    self.sync(peer, groups).await;
                }
            }
            _ => {}
        }
    }

    /// Enters the scope of another node. Returns `false` if it is known, or is none.
    fn enter(&mut self, pid: &NodePid) -> bool {
        let is_new = !self.peers.contains_key(pid)
            && pid.node != *self.node.name()
            && self.node.reaches(&pid.into());
        if is_new {
            let monitor = self.own.monitor(pid);
            let members = BTreeMap::new();
            let peer = Peer { monitor, members, count: 0, is_behind: false, is_unasked: false };
            self.peers.insert(pid.clone(), peer);
        }
        is_new
    }

    fn discovered(&mut self, pid: &NodePid) {
        let is_new = self.enter(pid);
        let (all, discover) = (self.all(), message("discover", [self.own_pid()]));
        let Some(peer) = self.peers.get_mut(pid) else { return };
        peer.is_behind = !tell(&self.own, pid, all);
        peer.is_unasked |= is_new && !tell(&self.own, pid, discover);
    }

    async fn join(&mut self, peer: &NodePid, group: &Term, who: &[Term]) {
        let name = group_name(group);
        for pid in who.iter().filter_map(Term::as_pid) {
            self.add(peer, &name, pid);
            self.pause().await;
        }
    }

    async fn leave(&mut self, peer: &NodePid, who: &[Term], groups: &[Term]) {
        for group in groups {
            let name = group_name(group);
            for pid in who.iter().filter_map(Term::as_pid) {
                self.remove(peer, &name, pid);
                self.pause().await;
            }
        }
    }

    /// Makes the members of a node those of a list.
    async fn sync(&mut self, peer: &NodePid, groups: &[Term]) {
        self.enter(peer);
        let mut wanted = BTreeMap::<_, usize>::new();
        for group in groups {
            let Some([group, who]) = group.as_tuple() else { continue };
            let name = group_name(group);
            for pid in pids(who).iter().filter_map(Term::as_pid) {
                *wanted.entry((Arc::clone(&name), pid.clone())).or_default() += 1;
            }
        }
        let Some(known) = self.peers.get(peer).map(|peer| peer.members.clone()) else { return };
        for ((name, pid), Entries { count, .. }) in &known {
            let wanted = wanted.get(&(Arc::clone(name), pid.clone())).copied().unwrap_or_default();
            for _ in wanted..*count {
                self.remove(peer, name, pid);
                self.pause().await;
            }
        }
        for ((name, pid), count) in &wanted {
            let known = known.get(&(Arc::clone(name), pid.clone()));
            for _ in known.map_or(0, |known| known.count)..*count {
                self.add(peer, name, pid);
                self.pause().await;
            }
        }
    }

    /// Lets other processes run now and then.
    async fn pause(&mut self) {
        self.changes += 1;
        if self.changes.is_multiple_of(STEP) {
            yield_now().await;
        }
    }

    /// Notes that a process of another node is in a group once more.
    fn add(&mut self, peer: &NodePid, name: &Arc<str>, pid: &NodePid) {
        let is_of_peer = pid.node == peer.node && pid.creation == peer.creation;
        let Some(known) = self.peers.get_mut(peer) else { return };
        if is_of_peer && name.len() <= NAME_MAX && known.count < MEMBERS_MAX {
            let entry = known.members.entry((Arc::clone(name), pid.clone()));
            let entries = entry.or_insert_with(|| Entries { pid: self.node.pid(pid), count: 0 });
            entries.count += 1;
            known.count += 1;
            self.groups.join_remote(Arc::clone(name), entries.pid);
        }
    }

    /// Notes that a process of another node is in a group once less.
    fn remove(&mut self, peer: &NodePid, name: &Arc<str>, pid: &NodePid) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let key = (Arc::clone(name), pid.clone());
        let Some(entries) = known.members.get_mut(&key) else { return };
        entries.count -= 1;
        let Entries { pid, count } = *entries;
        if count == 0 {
            known.members.remove(&key);
        }
        known.count -= 1;
        self.groups.leave(name, pid);
    }
}

/// Sends a message. Returns `false` if it has no room, and is to be sent again.
fn tell(own: &Member, to: &NodePid, term: Term) -> bool {
    // The end of a connection is told by the monitor.
    !own.send(to, term).is_err_and(|refused| refused.cause() == SendTermCause::Full)
}

/// The members of other nodes leave with the scope.
impl Drop for Scope {
    fn drop(&mut self) {
        for peer in std::mem::take(&mut self.peers).into_values() {
            for ((name, _), Entries { pid, count }) in peer.members {
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

    use super::{group_name, group_of};
    use crate::cookie::Cookie;
    use crate::letter::Letter;
    use crate::node::Node;
    use crate::term::Term;

    #[test]
    fn members_of_a_forgotten_incarnation_leave() {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
        scheduler.block_on(async {
            let cookie = Cookie::new("secret").expect("it has a text");
            let far = Node::builder("far@127.0.0.1").cookie(cookie.clone());
            let far = far.listen((Ipv4Addr::LOCALHOST, 0).into()).start().await;
            let far = far.expect("it starts");
            let near = Node::builder("near@127.0.0.1").cookie(cookie).start().await;
            let near = near.expect("it starts");
            let (here, there) = (Groups::new(), Groups::new());
            near.share_groups("pg", &here).expect("the name is free");
            far.share_groups("pg", &there).expect("the name is free");
            let member = start(|mut cx: Context<Letter>| async move { cx.recv().await.is_some() });
            far.attach(&member.address().map(|letter| letter));
            there.join("lobby", member.pid()).expect("it runs");
            let (_, mut changes) = here.monitor("lobby");
            let address = far.local_addr().expect("it listens");
            near.connect_at("far@127.0.0.1", address).await.expect("it listens");
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

    #[test]
    fn a_group_has_the_same_name_on_all_nodes() {
        for text in ["lobby", "{room,7}", "<<\"room\">>", "[1,2]", "7", "'Elixir.Shop.PubSub'"] {
            let group: Term = text.parse().expect("it is a term");
            assert_eq!(group_of(&group_name(&group)), Some(group));
        }
        for name in ["lobby", "no room", "Lobby", "{ room,7}", ""] {
            assert_eq!(group_of(name), Some(Term::atom(name)));
        }
        assert_eq!(group_of(&"x".repeat(256)), None);
    }
}
