//! One shard on one node: the processes of its keys, the queues of their messages, and what the
//! shard waits for or owes while it moves.
//!
//! Everything here happens under the lock of the shard, so it runs no code of the user and drops no
//! message. What is to be done after that is returned as [`Act`]s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use procession::sync::Notify;
use procession::time::Instant;
use procession_sync::atomic::Ordering::Relaxed;

use super::error::Refusal;
use super::limits::Limits;
use super::slot::{Act, Counts, Ended, Envelope, Key, Slot, Taken};
use super::view::{View, is_node};
use super::wire;
use crate::term::{NodePid, Term};

/// The routers of which a shard remembers the latest message, at most.
const SENDERS_MAX: usize = 4096;

/// The routers for which a shard waits, at most.
const AWAITS_MAX: usize = 1024;

/// A shard, as this node knows it.
#[derive(Debug)]
pub(super) struct Shard<M> {
    number: u32,
    own: NodePid,
    pub(super) home: NodePid,
    pub(super) is_closed: bool,
    keys: BTreeMap<Key, Slot<M>>,
    /// The routers that may have processes of the shard, and have not given it yet. While there are
    /// any, messages wait.
    pub(super) awaits: Vec<NodePid>,
    /// From then on, messages do not wait any more, but are refused.
    until: Instant,
    early: usize,
    /// The routers that are told once this node has nothing left of the shard, one of each node.
    askers: Vec<NodePid>,
    /// The other node that was the home last, of those that have not ended.
    before: Option<NodePid>,
    /// This node takes no shards any more.
    leaves: bool,
    /// While this node leaves: the routers that may still send to it.
    senders: BTreeSet<NodePid>,
    /// The number of the latest message of this node.
    pub(super) sent: u64,
    /// The numbers of the latest messages that were accepted here, by origin.
    latest: BTreeMap<NodePid, u64>,
    /// What is to be sent to each other router, in this order.
    pub(super) outbox: BTreeMap<NodePid, VecDeque<Term>>,
}

impl<M> Shard<M> {
    pub(super) fn new(number: u32, own: NodePid) -> Self {
        Self {
            number,
            home: own.clone(),
            own,
            is_closed: false,
            keys: BTreeMap::new(),
            awaits: Vec::new(),
            until: Instant::NEVER,
            early: 0,
            askers: Vec::new(),
            before: None,
            leaves: false,
            senders: BTreeSet::new(),
            sent: 0,
            latest: BTreeMap::new(),
            outbox: BTreeMap::new(),
        }
    }

    pub(super) fn is_home(&self) -> bool {
        self.home == self.own
    }

    fn waits(&self) -> bool {
        !self.awaits.is_empty() && self.is_home() && !self.is_closed
    }

    /// Returns `true` if another node is the home, and has got everything that came here.
    pub(super) fn is_given(&self) -> bool {
        let has_nothing = self.keys.is_empty() && self.outbox.is_empty();
        let gets_nothing = self.awaits.is_empty() && self.senders.is_empty();
        !self.is_home() && has_nothing && gets_nothing
    }

    fn enter(&mut self, key: &Key, limits: &Limits, counts: &Counts) -> Option<&mut Slot<M>> {
        if !self.keys.contains_key(key) {
            // Relaxed: a limit that two threads exceed by one is still a limit.
            if counts.keys.load(Relaxed) >= limits.keys {
                return None;
            }
            counts.keys.fetch_add(1, Relaxed);
            self.keys.insert(Arc::clone(key), Slot::new());
        }
        self.keys.get_mut(key)
    }

    fn remove(&mut self, key: &Key, counts: &Counts) -> Option<Slot<M>> {
        let slot = self.keys.remove(key)?;
        counts.keys.fetch_sub(1, Relaxed);
        Some(slot)
    }

    /// Returns why a message cannot be the latest of its origin.
    fn is_next(&self, message: &Envelope<M>) -> Result<(), Refusal> {
        match self.latest.get(&message.origin) {
            Some(latest) if *latest >= message.number => Err(Refusal::Late),
            None if self.latest.len() >= SENDERS_MAX => Err(Refusal::Senders),
            _ => Ok(()),
        }
    }

    /// `Accept`, at the home.
    pub(super) fn accept(
        &mut self,
        key: Key,
        message: Envelope<M>,
        limits: &Limits,
        counts: &Counts,
    ) -> Option<Act<M>> {
        let waits = self.waits();
        let refusal = if self.is_closed {
            Err(Refusal::Stopped)
        } else if waits && Instant::now() >= self.until {
            Err(Refusal::MoveElapsed)
        } else if waits && self.early >= limits.moves {
            Err(Refusal::MoveFull)
        } else {
            self.is_next(&message)
        };
        if let Err(why) = refusal {
            return Some(Act::Refuse(key, message, why));
        }
        let Some(slot) = self.enter(&key, limits, counts) else {
            return Some(Act::Refuse(key, message, Refusal::Keys));
        };
        if slot.queue.len() + slot.early.len() >= limits.queue {
            if slot.is_empty() {
                self.remove(&key, counts);
            }
            return Some(Act::Refuse(key, message, Refusal::QueueFull));
        }
        if waits {
            // Behind the earlier messages of its origin, and before the later messages.
            let is_later = |other: &Envelope<M>| {
                other.origin == message.origin && other.number > message.number
            };
            let at = slot.early.iter().position(is_later).unwrap_or(slot.early.len());
            slot.early.insert(at, message);
            self.early += 1;
            return None;
        }
        let (origin, number) = (message.origin.clone(), message.number);
        slot.queue.push_back(message);
        let act = slot.rouse(&key);
        self.latest.insert(origin, number);
        act
    }

    /// Takes the next message for the process of a key. `gives_up` says that the process ends if
    /// there is none, and `is_cancelled` that it also ends while the shard waits.
    pub(super) fn take(
        &mut self,
        key: &Key,
        process: &Arc<Notify>,
        gives_up: bool,
        is_cancelled: bool,
    ) -> Taken<M> {
        let (waits, stays) = (self.waits(), self.is_home() && !self.is_closed);
        let slot = self.keys.get_mut(key).filter(|slot| slot.is_of(process) && !slot.is_ending);
        let Some(slot) = slot else { return Taken::End };
        if let Some(message) = slot.queue.pop_front() {
            return Taken::Message(message);
        }
        slot.is_ending = is_cancelled || !stays || (gives_up && !waits);
        slot.has_moved = slot.is_ending && !stays;
        if slot.is_ending {
            return Taken::End;
        }
        slot.is_overdue = gives_up;
        // Most keys wait most of the time. Room for four messages would be a fifth of their memory.
        slot.queue.shrink_to_fit();
        Taken::Wait
    }

    /// Notes the end of the process of a key.
    pub(super) fn end(
        &mut self,
        key: &Key,
        process: &Arc<Notify>,
        (state, ended): (Option<Term>, Ended),
        counts: &Counts,
    ) -> Vec<Act<M>> {
        let (is_home, waits) = (self.is_home(), self.waits());
        let Some(slot) = self.keys.get_mut(key).filter(|slot| slot.is_of(process)) else {
            return Vec::new();
        };
        let mut acts = Vec::new();
        slot.process = None;
        if matches!(ended, Ended::Failed | Ended::Unstarted) {
            let left = slot.queue.drain(..);
            acts.extend(left.map(|message| Act::Refuse(Arc::clone(key), message, Refusal::Failed)));
        }
        slot.state = state;
        // The state of an idle process is not kept. A shutdown of the program cancels processes,
        // starts none, and moves the shard next.
        let is_shutdown = matches!(ended, Ended::Cancelled | Ended::Unstarted);
        let keeps_state = (is_shutdown || slot.has_moved) && slot.state.is_some();
        let is_kept = keeps_state || !slot.early.is_empty();
        if !slot.queue.is_empty() {
            // Also if the shard has moved, because the next home refuses what was accepted here.
            acts.extend(slot.rouse(key));
        } else if !is_home {
            self.give(key, counts, &mut acts);
        } else if self.is_closed || !is_kept {
            counts.states_dropped.fetch_add(u64::from(keeps_state), Relaxed);
            self.remove(key, counts);
        } else if keeps_state && !is_shutdown && !waits {
            // The shard has moved away and back, and the process has ended for that.
            acts.extend(slot.rouse(key));
        }
        acts
    }

    /// Hands a key without a process, and so without accepted messages, to the next home.
    fn give(&mut self, key: &Key, counts: &Counts, acts: &mut Vec<Act<M>>) {
        let Some(slot) = self.remove(key, counts) else { return };
        if let Some(state) = slot.state {
            let state = wire::state((&self.own, self.leaves), self.number, 0, key, state);
            self.outbox.entry(self.home.clone()).or_default().push_back(state);
        }
        let early = slot.early.into_iter();
        acts.extend(early.map(|message| Act::Forward(Arc::clone(key), message)));
    }

    /// `Move`: the shard has the home that the view says.
    pub(super) fn set_home(
        &mut self,
        view: &View,
        limits: &Limits,
        counts: &Counts,
    ) -> Vec<Act<M>> {
        let mut acts = Vec::new();
        self.leaves = !view.takes;
        let home = view.home(self.number);
        if *home == self.home {
            return acts;
        }
        let was_home = self.is_home();
        let before = std::mem::replace(&mut self.home, home.clone());
        // The home has everything.
        self.awaits.retain(|router| *router != self.home);
        if view.is_known(&before) {
            self.before = Some(before);
        }
        counts.moves.fetch_add(u64::from(was_home || self.is_home()), Relaxed);
        self.until = Instant::now() + limits.move_time;
        if self.is_home() {
            // The home before may have ended, and cannot name the home before that.
            view.known.keys().for_each(|router| self.await_from(router, limits));
        } else if was_home {
            self.early = 0;
            let idle = self.keys.iter().filter(|(_, slot)| slot.process.is_none());
            for key in idle.map(|(key, _)| Arc::clone(key)).collect::<Vec<_>>() {
                self.give(&key, counts, &mut acts);
            }
            for (key, slot) in &mut self.keys {
                let early = slot.early.drain(..);
                acts.extend(early.map(|message| Act::Forward(Arc::clone(key), message)));
                slot.process.iter().for_each(|process| process.notify_one());
            }
            if !view.takes {
                self.senders.extend(view.known.keys().cloned());
            }
        }
        acts
    }

    /// `Moved`: answers a router that leaves that no message follows. If this node waits for the
    /// router, it asks instead, because the router must stay until it has answered.
    pub(super) fn tell_moved(&mut self, router: &NodePid) {
        if !self.awaits.contains(router) && !self.has_terms_for(router) {
            let moved = wire::moved((&self.own, self.leaves), self.number);
            self.outbox.insert(router.clone(), [moved].into());
        }
    }

    /// Returns `true` if something waits to be sent to the node of a router. A router that asks
    /// gets no answer then. It asks again, and a node that does not read takes no memory.
    fn has_terms_for(&self, router: &NodePid) -> bool {
        self.outbox.keys().any(|to| to.node == router.node)
    }

    /// A router has joined: it may have been the home among other nodes, and may believe that this
    /// node is the home.
    pub(super) fn joined(
        &mut self,
        router: &NodePid,
        limits: &Limits,
        counts: &Counts,
    ) -> Vec<Act<M>> {
        if self.is_home() {
            self.await_from(router, limits);
        }
        if self.leaves {
            self.senders.insert(router.clone());
        }
        self.heard(router, counts)
    }

    /// The node of a router has said whether it has one.
    pub(super) fn heard(&mut self, router: &NodePid, counts: &Counts) -> Vec<Act<M>> {
        self.stop_waiting(|other| is_node(other) && other.node == router.node, counts)
    }

    /// `Wait`, for another router that may have processes of the shard.
    pub(super) fn await_from(&mut self, router: &NodePid, limits: &Limits) {
        if self.awaits.is_empty() {
            self.until = Instant::now() + limits.move_time;
        }
        let is_new = *router != self.home && !self.awaits.contains(router);
        if is_new && self.awaits.len() < AWAITS_MAX {
            self.awaits.push(router.clone());
        }
    }

    /// Returns `true` if a node may still name its router, within the limit.
    pub(super) fn awaits_nodes(&self) -> bool {
        self.awaits.iter().any(is_node) && Instant::now() < self.until
    }

    /// `Open`: a router has given the shard, or has ended.
    pub(super) fn given(&mut self, router: &NodePid, counts: &Counts) -> Vec<Act<M>> {
        self.stop_waiting(|other| other == router, counts)
    }

    fn stop_waiting(&mut self, is_over: impl Fn(&NodePid) -> bool, counts: &Counts) -> Vec<Act<M>> {
        let waited = self.waits();
        self.awaits.retain(|router| !is_over(router));
        let mut acts = Vec::new();
        if !waited || !self.awaits.is_empty() {
            return acts;
        }
        self.early = 0;
        let mut latest = BTreeMap::new();
        self.keys.retain(|key, slot| {
            for message in std::mem::take(&mut slot.early) {
                // An earlier home may have accepted a later message in the meantime.
                let known = self.latest.get(&message.origin).copied().unwrap_or_default();
                if known >= message.number {
                    acts.push(Act::Refuse(Arc::clone(key), message, Refusal::Late));
                    continue;
                }
                let own = latest.entry(message.origin.clone()).or_default();
                *own = message.number.max(*own);
                slot.queue.push_back(message);
            }
            let stays = !slot.is_empty();
            // All others have nothing to do, and may be many.
            if stays && (slot.process.is_none() || slot.is_overdue || !slot.queue.is_empty()) {
                acts.extend(slot.rouse(key));
            }
            counts.keys.fetch_sub(u64::from(!stays), Relaxed);
            stays
        });
        self.latest.extend(latest);
        acts
    }

    /// Notes messages that were accepted at an earlier home.
    pub(super) fn learn<'a>(&mut self, latest: impl Iterator<Item = (&'a NodePid, u64)>) {
        for (origin, number) in latest.take(SENDERS_MAX) {
            if self.latest.len() < SENDERS_MAX || self.latest.contains_key(origin) {
                let known = self.latest.entry(origin.clone()).or_default();
                *known = number.max(*known);
            }
        }
    }

    /// `Moved`: another router sends no message of the shard to this one any more.
    pub(super) fn moved(&mut self, router: &NodePid) {
        self.senders.remove(router);
    }

    /// `Ask`: another router is the home, and is told once nothing is left here.
    pub(super) fn asked(&mut self, router: &NodePid) {
        self.moved(router);
        self.askers.retain(|other| other.node != router.node);
        self.askers.push(router.clone());
    }

    /// `Given`: answers the routers that wait for this node, once nothing is left here, and no
    /// earlier home may hand something over. Nodes that wait for each other in a circle do so up to
    /// the limit. It waits until all states are sent. Returns `true` if it has answered.
    pub(super) fn tell_askers(&mut self) -> bool {
        let is_last = self.awaits.is_empty() || Instant::now() >= self.until;
        let has_states = self.outbox.values().flatten().any(wire::is_state);
        if has_states || !(self.is_home() || (self.keys.is_empty() && is_last)) {
            return false;
        }
        let (own, is_home) = ((&self.own, self.leaves), self.is_home());
        let askers = std::mem::take(&mut self.askers);
        let (later, now): (Vec<_>, Vec<_>) =
            askers.into_iter().partition(|router| self.has_terms_for(router));
        self.askers = later;
        for router in &now {
            // A third node may have processes: the home, or the home before that.
            let mut others = [Some(&self.home), self.before.as_ref()].into_iter().flatten();
            // A node that returns was the third node itself, and does not wait for itself.
            let is_third =
                |other: &&NodePid| ![&router.node, &self.own.node].contains(&&other.node);
            let other = others.find(is_third).filter(|_| !is_home);
            let given = wire::given(own, self.number, other, &self.latest);
            self.outbox.insert(router.clone(), [given].into());
        }
        !now.is_empty()
    }

    /// Restores a key with the state that its process has returned at an earlier home. While the
    /// shard waits, another earlier home may still have a process of the key, so none is started.
    /// Returns `Err` if the state has to be dropped.
    pub(super) fn restore(
        &mut self,
        key: &Key,
        state: Term,
        limits: &Limits,
        counts: &Counts,
    ) -> Result<Option<Act<M>>, Term> {
        let (is_closed, waits) = (self.is_closed, self.waits());
        let slot = if is_closed { None } else { self.enter(key, limits, counts) };
        match slot.filter(|slot| slot.process.is_none() && slot.state.is_none()) {
            Some(slot) => {
                slot.state = Some(state);
                Ok(if waits { None } else { slot.rouse(key) })
            }
            None => Err(state),
        }
    }

    /// Refuses the messages that have waited too long for another router. A router that this node
    /// does not know is not waited for any longer. A node that leaves still refuses messages then,
    /// because it hears of no router any more, and the other router may have processes.
    pub(super) fn expire(&mut self, known: &BTreeSet<NodePid>, counts: &Counts) -> Vec<Act<M>> {
        if Instant::now() < self.until {
            return Vec::new();
        }
        let opens = !(self.leaves && self.is_home());
        let mut acts = self.stop_waiting(|router| opens && !known.contains(router), counts);
        if self.waits() {
            acts.extend(self.take_early(Refusal::MoveElapsed, counts));
        }
        acts
    }

    /// Refuses everything from now on, and the messages without a process.
    pub(super) fn close(&mut self, counts: &Counts) -> Vec<Act<M>> {
        self.is_closed = true;
        let mut acts = self.take_early(Refusal::Stopped, counts);
        self.awaits.clear();
        for (key, slot) in &mut self.keys {
            match &slot.process {
                Some(process) => process.notify_one(),
                None => acts.extend(
                    slot.queue
                        .drain(..)
                        .map(|message| Act::Refuse(Arc::clone(key), message, Refusal::Stopped)),
                ),
            }
        }
        acts
    }

    fn take_early(&mut self, why: Refusal, counts: &Counts) -> Vec<Act<M>> {
        self.early = 0;
        let mut acts = Vec::new();
        self.keys.retain(|key, slot| {
            let early = slot.early.drain(..);
            acts.extend(early.map(|message| Act::Refuse(Arc::clone(key), message, why)));
            let stays = !slot.is_empty();
            counts.keys.fetch_sub(u64::from(!stays), Relaxed);
            stays
        });
        acts
    }

    /// Forgets a router that has ended.
    pub(super) fn forget(&mut self, router: &NodePid, counts: &Counts) -> Vec<Act<M>> {
        // It may only be out of reach, and its messages on their way by other nodes.
        if self.latest.len() > SENDERS_MAX / 2 {
            self.latest.remove(router);
        }
        self.senders.remove(router);
        self.before.take_if(|before| before == router);
        self.askers.retain(|other| other != router);
        for term in self.outbox.remove(router).unwrap_or_default() {
            if wire::is_state(&term) && !self.is_home() {
                self.outbox.entry(self.home.clone()).or_default().push_back(term);
            } else {
                counts.states_dropped.fetch_add(u64::from(wire::is_state(&term)), Relaxed);
            }
        }
        self.given(router, counts)
    }

    /// Returns the routers that may still send to this node, which leaves.
    pub(super) fn senders(&self) -> impl Iterator<Item = &NodePid> {
        self.senders.iter()
    }

    pub(super) fn early(&self) -> usize {
        self.early
    }
}

#[cfg(test)]
mod tests;
