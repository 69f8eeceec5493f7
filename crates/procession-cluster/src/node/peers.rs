//! The connections of a node: which node is connected, which node is about to be, and the order in
//! which subscribers receive the news.
//!
//! # Two nodes that connect at the same time
//!
//! ## Problem
//! Each side makes a connection and accepts the connection of the other side. If both sides end a
//! connection, they must end the same connection, or they lose both.
//!
//! ## States
//! A node has one entry for each other node: `Connecting`, by one attempt of this node;
//! `Accepting`, attempts of the other node; or `Connected`. Attempts have numbers, and later
//! attempts have greater numbers.
//!
//! ## Steps
//! - `Dial`: takes a free entry. If there is an attempt, waits for what becomes of it, or takes its
//!   place if the attempt is only accepted and exceeds the time limit, because before its proof of
//!   the cookie, an attempt may be by anybody. `Dial` does not take the place of an attempt that
//!   waits in `Admit`, because that attempt has proved the cookie. If there is a connection that
//!   this node ends, waits for its end.
//! - `Decide`, for an attempt of the other node: enters it, if this node does not connect itself.
//!   If it does, the attempt of the node with the greater name continues.
//! - `Replace`, for an attempt of this node that finds the other node connected: it continues if
//!   this node has agreed to no attempt of the other node, because then the connection has ended.
//!   Otherwise the connection is that attempt.
//! - `Admit`, after the handshake: an attempt of this node becomes the connection if it still has
//!   the entry. An attempt of the other node does if the entry is free or accepting, if its node
//!   has the greater name, or if it is newer than the connection, which it then ends. Each attempt
//!   waits until everybody has been notified of the end of the previous connection, unless the
//!   other side abandons the attempt first. During this wait, the attempt of the other node is
//!   entered, so that this node does not dial. If several attempts of the other node wait, only the
//!   newest continues.
//! - `End`, of an attempt of this node: frees the entry, or leaves it to the attempts of the other
//!   node that it has agreed to.
//!
//! ## Why it works
//! A node makes at most one attempt to reach another node at a time. So if both connect, there is
//! one attempt from each side, and both sides abandon the attempt of the smaller name: one side in
//! `Decide` or `Admit`, and the other side because it receives that decision. If one side has
//! entered the attempt of the other side first, it makes none.
//!
//! The other node makes an attempt only while it has no connection and has agreed to none. So when
//! an attempt has proved the cookie, the other node has abandoned all earlier attempts of either
//! side. This node may learn of that later, or not at all, if the network has lost it. An older
//! attempt must not become the connection then, so the newest is known until it ends.
//!
//! # Two connections, one after the other
//!
//! The end of a connection is reported to links, monitors and calls, and then to subscribers. That
//! takes a while, and another thread may admit the next connection during that time. If the next
//! connection was served immediately, its messages could arrive before `NodeDown` of the previous
//! connection. A process could make an earlier link again, and the pending report of the end would
//! end the new link on this side only. So `Admit` waits: on each side, one connection is over when
//! the next one is there. The next connection is served once the subscribers have received its
//! `NodeUp`, which another thread may be delivering.
//!
//! A process that links, unlinks or monitors while no connection is there is answered by this node.
//! The answer to a link ends the link of the two on this side, whichever it is. Until the answer to
//! an unlink, the process ignores links of the other process. So if the next connection was
//! admitted before the answer, a link of the other process could arrive by it, be ended or ignored
//! here, and stay on the other side only. Therefore one lock is held from the look that finds no
//! connection to the end of the answer, and in `Admit`: the next connection is there after the
//! answer. Relations that the previous connection still brings end with that connection, on both
//! sides. A signal that finds the tables of a connection closed looks again, because the next one
//! may be there already. The answer to a monitor ends that monitor only, and what ends a monitor
//! has no answer.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::Recipient;
use procession::time::Instant;

use crate::guarded::Guarded;
use crate::handshake::Status;
use crate::letter::Letter;
use crate::link::Link;
use crate::node::ended::EndedConnection;
use crate::term::Atom;

/// The reasons of ends that are counted apart.
const CAUSES_MAX: usize = 32;
/// The connections that have ended and are listed one by one.
const LISTED_MAX: usize = 64;
/// The number of connections with known numbers, at least. Without a bound, each node that asks
/// once under a new name would leave an entry.
const NUMBERS_KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_name: BTreeMap<Atom, Peer>,
    /// The number of the latest connection to each recently connected node.
    numbers: HashMap<Atom, u64>,
    /// The nodes of `numbers`, in the order in which they were connected.
    connected: VecDeque<(Atom, u64)>,
    /// The greatest number of a connection that is forgotten.
    forgotten: u64,
    attempts: u64,
    /// Set once the node is stopped: the connections that were there.
    stopped: Option<Vec<Arc<Link>>>,
    /// Set once the node leaves the cluster: since when.
    leaving: Option<Instant>,
    /// The ended connections of which not everybody has been notified. There is at most one to each
    /// node. By name, so that later subscribers learn of the connections in one order.
    told: BTreeMap<Atom, Told>,
    /// The attempts of other nodes that wait for that.
    waiting: HashMap<Atom, Waiting>,
    /// The news for subscribers, and the new subscribers, in this order.
    events: VecDeque<Event>,
    /// Some thread delivers the events.
    is_telling: bool,
    /// The connections that have ended, by reason.
    ends: BTreeMap<String, u64>,
    /// The latest of them, and when they ended, the oldest first.
    ended: VecDeque<(EndedConnection, Instant)>,
    /// The messages that they have lost, at most.
    lost: u64,
}

#[derive(Debug)]
enum Peer {
    /// This node is connecting to it, by the attempt with this number. It has agreed that these
    /// attempts of the other node go on instead.
    Connecting(u64, Vec<u64>),
    /// It is connecting to this node, by these attempts.
    Accepting(Vec<u64>),
    Connected(Arc<Link>),
}

/// A connection that subscribers receive.
#[derive(Debug)]
struct Told {
    connection: u64,
    /// The subscribers have received it.
    is_up: bool,
    /// The end is queued for the subscribers. Everybody else has been notified.
    has_ended: bool,
}

/// The attempts of another node that wait, until they end.
#[derive(Debug, Default)]
struct Waiting {
    attempts: Vec<u64>,
    /// The newest attempt that has waited or become the connection since the first attempt began to
    /// wait. Older attempts are abandoned, even if the newest has ended before they learn that.
    newest: u64,
}

/// The news for subscribers, one after the other.
#[derive(Debug)]
pub(crate) enum Event {
    Changed(PeerEvent),
    /// A process becomes a subscriber. It first receives the present connections.
    Subscribed(Guarded<Recipient<Letter>>, Vec<PeerEvent>),
}

/// A connection is there, or has ended.
#[derive(Clone, Debug)]
pub(crate) struct PeerEvent {
    node: Atom,
    connection: u64,
    ended: Option<Ended>,
}

/// The end of a connection.
#[derive(Clone, Debug)]
struct Ended {
    why: String,
    unconfirmed: Option<u64>,
}

impl PeerEvent {
    pub(crate) fn letter(&self) -> Letter {
        let (node, connection) = (self.node.clone(), self.connection);
        match self.ended.clone() {
            None => Letter::NodeUp { node, connection },
            Some(Ended { why, unconfirmed }) => {
                Letter::NodeDown { node, connection, why, unconfirmed }
            }
        }
    }
}

/// What a process that wants a connection does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// There is a connection.
    Connected,
    /// It waits for an attempt that is going on, or for a connection that this node ends.
    Wait,
    /// It ends, because this node still ends a connection.
    GiveUp,
    /// It makes an attempt with this number.
    Begin(u64),
    /// The node has stopped, or leaves the cluster.
    Stopped,
}

/// What becomes of an attempt after its handshake.
#[derive(Debug)]
pub(crate) enum Admission {
    Made(Arc<Link>),
    /// It tries again once everybody has been notified of the end of the previous connection. This
    /// is that connection, if it still has to be ended.
    Waits(Option<Arc<Link>>),
    Unwanted(&'static str),
}

/// The side that has made an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Own,
    Other,
}

impl Peers {
    pub(crate) fn link(&self, peer: &Atom) -> Option<&Arc<Link>> {
        match self.by_name.get(peer)? {
            Peer::Connected(link) => Some(link),
            _ => None,
        }
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.by_name.keys().filter_map(|peer| self.link(peer))
    }

    /// Refuses all connections from now on. Returns the connections that were there when the node
    /// was first stopped.
    pub(crate) fn stop(&mut self) -> Vec<Arc<Link>> {
        let links = self.stopped.take().unwrap_or_else(|| self.links().cloned().collect());
        self.by_name.clear();
        self.stopped.insert(links).clone()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Refuses further connections from now on, because the node leaves the cluster. Returns the
    /// connections, or `None` if it leaves already.
    pub(crate) fn leave(&mut self) -> Option<Vec<Arc<Link>>> {
        if self.is_leaving() {
            return None;
        }
        self.leaving = Some(Instant::now());
        Some(self.links().cloned().collect())
    }

    /// Returns since when the node leaves the cluster, if it does.
    pub(crate) fn leaves_since(&self) -> Option<Instant> {
        self.leaving
    }

    /// Returns `true` if the node leaves the cluster, or has stopped.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some() || self.is_stopped()
    }

    /// `Dial`. An impatient process does not wait for an attempt of the other node, nor for the end
    /// of a connection, which takes up to the patience.
    pub(crate) fn dial(&mut self, peer: &Atom, is_impatient: bool) -> Dial {
        if self.is_leaving() {
            return Dial::Stopped;
        }
        match self.by_name.get(peer) {
            // A connection that this node ends releases its entry at its end.
            Some(Peer::Connected(link)) if link.outbound.is_ending() => {
                return if is_impatient { Dial::GiveUp } else { Dial::Wait };
            }
            Some(Peer::Connected(_)) => return Dial::Connected,
            Some(Peer::Connecting(..)) => return Dial::Wait,
            Some(Peer::Accepting(_)) if !is_impatient || self.is_waiting(peer) => {
                return Dial::Wait;
            }
            Some(Peer::Accepting(_)) | None => {}
        }
        self.attempts += 1;
        self.by_name.insert(peer.clone(), Peer::Connecting(self.attempts, Vec::new()));
        Dial::Begin(self.attempts)
    }

    /// Returns `true` if this node is connecting by the attempt with this number.
    pub(crate) fn is_connecting(&self, peer: &Atom, attempt: u64) -> bool {
        matches!(self.by_name.get(peer), Some(Peer::Connecting(number, _)) if *number == attempt)
    }

    /// Returns `true` if an attempt of the other node waits for the end of the previous connection,
    /// and is not given up. It has proved the cookie.
    pub(crate) fn is_waiting(&self, peer: &Atom) -> bool {
        self.waiting.get(peer).is_some_and(|waiting| waiting.attempts.contains(&waiting.newest))
    }

    /// Returns `true` if the attempt of this node may replace a connection that only the other node
    /// knows. It may not if that is an attempt of the other node to which this one has agreed.
    pub(crate) fn may_replace(&self, peer: &Atom) -> bool {
        matches!(self.by_name.get(peer), Some(Peer::Connecting(_, agreed)) if agreed.is_empty())
    }

    /// `Decide`. Also returns the number of the attempt.
    pub(crate) fn decide(&mut self, own: &Atom, peer: &Atom) -> (Status, u64) {
        self.attempts += 1;
        let attempt = self.attempts;
        if self.is_leaving() {
            return (Status::NotAllowed, attempt);
        }
        let status = match self.by_name.entry(peer.clone()) {
            Entry::Vacant(free) => {
                free.insert(Peer::Accepting(vec![attempt]));
                Status::Ok
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Peer::Accepting(attempts) => {
                    attempts.push(attempt);
                    Status::Ok
                }
                Peer::Connecting(_, agreed) if peer > own => {
                    agreed.push(attempt);
                    Status::OkSimultaneous
                }
                Peer::Connecting(..) => Status::Nok,
                Peer::Connected(_) => Status::Alive,
            },
        };
        (status, attempt)
    }

    /// `End`. Frees the entry of an attempt that is over, if the entry still belongs to it.
    /// Attempts of the other node keep the entry.
    pub(crate) fn end(&mut self, peer: &Atom, attempt: u64) {
        if let Some(waiting) = self.waiting.get_mut(peer) {
            waiting.attempts.retain(|number| *number != attempt);
            if waiting.attempts.is_empty() {
                self.waiting.remove(peer);
            }
        }
        let is_free = match self.by_name.get_mut(peer) {
            Some(Peer::Connecting(number, agreed)) if *number == attempt => {
                let agreed = std::mem::take(agreed);
                let is_free = agreed.is_empty();
                self.by_name.insert(peer.clone(), Peer::Accepting(agreed));
                is_free
            }
            Some(Peer::Connecting(_, agreed)) => {
                agreed.retain(|number| *number != attempt);
                false
            }
            Some(Peer::Accepting(attempts)) => {
                attempts.retain(|number| *number != attempt);
                attempts.is_empty()
            }
            _ => false,
        };
        if is_free {
            self.by_name.remove(peer);
        }
    }

    /// `Admit`. `make` makes the connection with the number.
    pub(crate) fn admit(
        &mut self,
        own: &Atom,
        peer: &Atom,
        (side, attempt): (Side, u64),
        make: impl FnOnce(u64) -> Link,
    ) -> Admission {
        if self.is_leaving() {
            return Admission::Unwanted("this node has stopped, or leaves the cluster");
        }
        let is_wanted = match (side, self.by_name.get(peer)) {
            (Side::Own, _) => self.is_connecting(peer, attempt),
            (Side::Other, None | Some(Peer::Accepting(_))) => true,
            (Side::Other, Some(Peer::Connecting(..))) => peer > own,
            (Side::Other, Some(Peer::Connected(old))) => old.attempt < attempt,
        };
        let is_newest = match side {
            Side::Own => !self.is_waiting(peer),
            Side::Other => self.waiting.get(peer).is_none_or(|waiting| waiting.newest <= attempt),
        };
        if !is_wanted || !is_newest {
            return Admission::Unwanted("another connection is kept");
        }
        if self.told.contains_key(peer) {
            let replaced = self.link(peer).cloned();
            if side == Side::Other {
                self.keep(peer, attempt);
            }
            return Admission::Waits(replaced);
        }
        if let Some(waiting) = self.waiting.get_mut(peer) {
            waiting.newest = attempt;
        }
        let number = self.next_number(peer);
        let link = Arc::new(make(number));
        self.by_name.insert(peer.clone(), Peer::Connected(Arc::clone(&link)));
        self.told.insert(peer.clone(), Told { connection: number, is_up: false, has_ended: false });
        let event = PeerEvent { node: peer.clone(), connection: number, ended: None };
        self.events.push_back(Event::Changed(event));
        Admission::Made(link)
    }

    /// Enters an attempt of the other node that waits. So this node makes no other one, which the
    /// other node would take for the newer one.
    fn keep(&mut self, peer: &Atom, attempt: u64) {
        let waiting = self.waiting.entry(peer.clone()).or_default();
        waiting.newest = attempt;
        if !waiting.attempts.contains(&attempt) {
            waiting.attempts.push(attempt);
        }
        match self.by_name.get_mut(peer) {
            Some(Peer::Connecting(_, attempts) | Peer::Accepting(attempts)) => {
                if !attempts.contains(&attempt) {
                    attempts.push(attempt);
                }
            }
            None | Some(Peer::Connected(_)) => {
                self.by_name.insert(peer.clone(), Peer::Accepting(vec![attempt]));
            }
        }
    }

    /// Returns the number of the next connection to a node. It is greater than all earlier numbers,
    /// even if they are forgotten.
    fn next_number(&mut self, peer: &Atom) -> u64 {
        let latest = self.numbers.get(peer).copied().unwrap_or(self.forgotten);
        let number = latest + 1;
        self.numbers.insert(peer.clone(), number);
        self.connected.push_back((peer.clone(), number));
        while self.connected.len() > NUMBERS_KEPT
            && let Some((peer, number)) = self.connected.pop_front()
        {
            // Unless the node was connected again.
            if self.numbers.get(&peer) == Some(&number) {
                self.numbers.remove(&peer);
                self.forgotten = self.forgotten.max(number);
            }
        }
        number
    }

    /// Returns the number of entries about nodes.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.by_name.len() + self.numbers.len() + self.told.len() + self.waiting.len()
    }

    /// Forgets a connection that has ended, so that another connection can be made.
    pub(crate) fn forget(&mut self, link: &Arc<Link>) {
        if self.link(&link.peer.name).is_some_and(|current| Arc::ptr_eq(current, link)) {
            self.by_name.remove(&link.peer.name);
        }
    }

    /// Notes that links, monitors and calls have been notified of the end of an admitted
    /// connection.
    pub(crate) fn ended(&mut self, link: &Link, why: String) {
        let is_counted = self.ends.len() < CAUSES_MAX || self.ends.contains_key(&why);
        let cause = if is_counted { why.clone() } else { "another reason".to_owned() };
        *self.ends.entry(cause).or_default() += 1;
        self.lost += *link.left.get_or_init(|| link.lost());
        let node = link.peer.name.clone();
        let (now, unconfirmed) = (Instant::now(), link.unconfirmed());
        let ended = EndedConnection {
            name: node.clone(),
            connection: link.number,
            age: now.saturating_duration_since(link.since),
            ago: Duration::ZERO,
            why: why.clone(),
            unconfirmed,
        };
        self.ended.push_back((ended, now));
        if self.ended.len() > LISTED_MAX {
            self.ended.pop_front();
        }
        if let Some(told) = self.told.get_mut(&node) {
            told.has_ended = true;
        }
        let ended = Some(Ended { why, unconfirmed });
        self.events.push_back(Event::Changed(PeerEvent { node, connection: link.number, ended }));
    }

    /// Returns the reasons for which connections have ended, and how many for each.
    pub(crate) fn ends(&self) -> Vec<(String, u64)> {
        self.ends.iter().map(|(cause, count)| (cause.clone(), *count)).collect()
    }

    /// Returns the latest connections that have ended, the oldest first.
    pub(crate) fn ended_connections(&self) -> Vec<EndedConnection> {
        let now = Instant::now();
        let ago = |since: &Instant| now.saturating_duration_since(*since);
        let all = self.ended.iter();
        all.map(|(ended, since)| EndedConnection { ago: ago(since), ..ended.clone() }).collect()
    }

    /// Returns the number of messages that ended connections have lost, at most.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Queues a new subscriber behind the events that it must not receive, with the connections
    /// that these events announce.
    pub(crate) fn subscribe(&mut self, recipient: Guarded<Recipient<Letter>>) {
        let current = self.told.iter().filter(|(_, told)| !told.has_ended);
        let up = |(node, told): (&Atom, &Told)| PeerEvent {
            node: node.clone(),
            connection: told.connection,
            ended: None,
        };
        let connected = current.map(up).collect();
        self.events.push_back(Event::Subscribed(recipient, connected));
    }

    /// Takes the next event, for the only thread that delivers events.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Notes that all subscribers have received an event.
    pub(crate) fn was_told(&mut self, event: &PeerEvent) {
        if event.ended.is_some() {
            self.told.remove(&event.node);
        } else if let Some(told) = self.told.get_mut(&event.node) {
            told.is_up = true;
        }
    }

    /// Returns `true` if the subscribers have received the news of a connection.
    pub(crate) fn is_up(&self, link: &Link) -> bool {
        self.told.get(&link.peer.name).is_some_and(|told| told.is_up)
    }

    /// Begins to deliver events. Returns `false` if another thread does already, which then
    /// delivers these events as well.
    pub(crate) fn begin_to_tell(&mut self) -> bool {
        !std::mem::replace(&mut self.is_telling, true)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn end_telling(&mut self) {
        self.is_telling = false;
    }
}
