//! The moves of shards: how a router follows the view, and what it repeats until others have it.

use std::collections::BTreeSet;
use std::sync::Arc;

use procession::Pid;
use procession::scheduler::Health;
use procession_sync::atomic::Ordering::Relaxed;

use super::{Ledger, Portable, Router};
use crate::node::messages::readable;
use crate::outbound::Unqueued;
use crate::remote::Remote;
use crate::shards::limits::SHARDS_MAX;
use crate::shards::table::Shard;
use crate::shards::view::{View, is_node};
use crate::shards::wire;
use crate::term::{NodePid, Term};
use crate::wire::control::Control;

impl<M: Portable> Router<M> {
    /// Changes the view. `router` may have joined.
    fn change_view(
        self: &Arc<Self>,
        router: Option<&NodePid>,
        change: impl FnOnce(&mut View) -> bool,
    ) {
        let mut all = Vec::new();
        let mut view = self.view.lock();
        if !change(&mut view) {
            return;
        }
        let is_member = router.is_some_and(|router| view.members.contains(router));
        for number in 0..self.count() {
            let mut shard = self.shards[number as usize].lock();
            let mut acts = shard.set_home(&view, &self.limits, &self.counts);
            if let Some(new) = router.filter(|_| is_member) {
                acts.extend(shard.joined(new, &self.limits, &self.counts));
            }
            self.flush(number, &mut shard);
            all.push((number, acts));
        }
        drop(view);
        for (number, acts) in all {
            self.act(number, acts);
        }
        // It asks the earlier homes.
        self.changed.notify_one();
    }

    /// Notes that the router of another node takes shards.
    pub(in crate::shards) fn joined(self: &Arc<Self>, pid: Pid, router: &NodePid) {
        if pid.remote_parts().is_none() || router.node == self.own.node {
            return;
        }
        // A node has one router, so another one takes the place of the one before.
        let (has_ended, former) = {
            let view = self.view.lock();
            let former = view.of_node(&router.node).filter(|former| *former != router);
            (view.has_ended(router), former.cloned())
        };
        if has_ended {
            return;
        }
        if let Some(former) = former {
            self.gone(&former, true);
        }
        self.change_view(Some(router), |view| {
            if view.enter(router, pid) {
                self.process.monitor(pid);
                self.ledgers.lock().entry(router.clone()).or_default();
            }
            view.members.insert(router.clone())
        });
    }

    /// Notes that a router speaks, and takes shards. The first time, it may not be known as a
    /// member yet. What it gives must not find a process that was started for what it forwards. A
    /// node that returns may also speak before the end of its former incarnation is told.
    pub(in crate::shards) fn met(self: &Arc<Self>, router: &NodePid) {
        let is_new = {
            let view = self.view.lock();
            let is_later = |known: &NodePid| match known.creation == router.creation {
                true => known.number() < router.number(),
                false => self.is_former(known),
            };
            !view.members.contains(router) && view.of_node(&router.node).is_none_or(is_later)
        };
        if is_new {
            self.joined(self.node.pid(router), router);
        }
    }

    /// Returns `true` if the node of a router is connected in another incarnation.
    pub(super) fn is_former(&self, router: &NodePid) -> bool {
        let peers = self.node.0.peers.lock();
        peers.link(&router.node).is_some_and(|link| !link.is_of_peer(&router.into()))
    }

    /// Notes that a node has said whether it has a router of these shards.
    pub(in crate::shards) fn heard(self: &Arc<Self>, node: &NodePid) {
        for number in 0..self.count() {
            self.change(number, |shard| shard.heard(node, &self.counts));
        }
    }

    /// Notes that the router of another node takes no shards any more.
    pub(in crate::shards) fn left(self: &Arc<Self>, router: &NodePid) {
        self.change_view(Some(router), |view| view.members.remove(router));
    }

    pub(in crate::shards) fn left_group(self: &Arc<Self>, pid: Pid) {
        let router = self.view.lock().of_pid(pid).cloned();
        if let Some(router) = router {
            self.left(&router);
        }
    }

    pub(in crate::shards) fn gone_pid(self: &Arc<Self>, pid: Pid, has_ended: bool) {
        let router = self.view.lock().of_pid(pid).cloned();
        if let Some(router) = router {
            self.gone(&router, has_ended);
        }
    }

    /// Notes that the router of another node has ended, or else cannot be reached.
    fn gone(self: &Arc<Self>, router: &NodePid, has_ended: bool) {
        self.view.lock().forget(router, has_ended);
        self.left(router);
        for number in 0..self.count() {
            self.change(number, |shard| shard.forget(router, &self.counts));
        }
        if let Some(Ledger { sent, done, .. }) = self.ledgers.lock().remove(router) {
            self.counts.lost.fetch_add(sent.saturating_sub(done), Relaxed);
        }
    }

    /// Returns `true` if the node leaves, or the program ends.
    pub(in crate::shards) fn is_ending(&self) -> bool {
        self.node.is_leaving() || Health::here().is_ending()
    }

    /// `Leave`: this node takes no shards any more.
    pub(in crate::shards) fn leave(self: &Arc<Self>) {
        // Ignored: it may leave already.
        let _ = self.leaving.set(());
        self.change_view(None, |view| std::mem::take(&mut view.takes));
    }

    /// Returns `true` once this node has left, and the other nodes have got everything.
    pub(in crate::shards) fn has_left(&self) -> bool {
        let has_members = {
            let view = self.view.lock();
            if view.takes {
                return false;
            }
            !view.members.is_empty()
        };
        // A node that has not named its router yet may know this one, and send to it.
        let is_alone = !has_members && !self.shards.iter().any(|shard| shard.lock().awaits_nodes());
        is_alone || self.shards.iter().all(|shard| shard.lock().is_given())
    }

    /// Returns `true` if something of this router has not left the queues of the connections. Its
    /// end must not be told before that, because it is told in another lane.
    pub(in crate::shards) fn has_unsent(&self) -> bool {
        let lanes = self.lane(0)..=self.lane(SHARDS_MAX);
        let peers = self.node.0.peers.lock();
        peers.links().any(|link| link.outbound.has_waiting_in(lanes.clone()))
    }

    pub(in crate::shards) fn close(self: &Arc<Self>) {
        for number in 0..self.count() {
            self.change(number, |shard| shard.close(&self.counts));
        }
    }

    // What is repeated.

    /// Sends what a shard has for other routers, as far as there is room.
    pub(super) fn flush(&self, number: u32, shard: &mut Shard<M>) {
        loop {
            for (to, terms) in &mut shard.outbox {
                while let Some(term) = terms.front() {
                    match self.tell(number, to, term) {
                        Err(Unqueued::Full(_)) => {
                            self.changed.notify_one();
                            break;
                        }
                        Ok(()) => {}
                        // The end of the other router is told, and makes nodes ask again. Only a
                        // state is lost with it.
                        Err(_) => {
                            let is_state = u64::from(wire::is_state(term));
                            self.counts.states_dropped.fetch_add(is_state, Relaxed);
                        }
                    }
                    terms.pop_front();
                }
            }
            shard.outbox.retain(|_, terms| !terms.is_empty());
            if !shard.tell_askers() {
                return;
            }
        }
    }

    fn tell(&self, number: u32, to: &NodePid, term: &Term) -> Result<(), Unqueued> {
        let to = Remote::from(to);
        let link = self.node.link_of(&to).ok_or(Unqueued::Closed)?;
        link.check_permitted(&to.target())?;
        let (from, to) = (Some(self.own.clone()), to.target());
        let control = readable(Control::Send { from, to, request: None }, &link);
        link.outbound.send(self.lane(number), &control, term)
    }

    /// Asks earlier homes, and the senders if this node leaves. Refuses what has waited too long,
    /// and sends what had no room. Returns `true` if there is something to do later.
    pub(in crate::shards) fn look(self: &Arc<Self>) -> bool {
        let mut is_waiting = false;
        let known: BTreeSet<_> = self.view.lock().known.keys().cloned().collect();
        for number in 0..self.count() {
            self.change(number, |shard| {
                let acts = shard.expire(&known, &self.counts);
                for router in shard.awaits.iter().filter(|router| !is_node(router)) {
                    // Ignored: it is asked again, unless its end is told.
                    let _ = self.tell(number, router, &wire::ask(self.speaks(), number));
                }
                for router in shard.senders() {
                    // Ignored: as above.
                    let _ = self.tell(number, router, &wire::leave(self.speaks(), number));
                }
                let is_done = shard.awaits.is_empty() && shard.outbox.is_empty();
                is_waiting |= !is_done || shard.senders().next().is_some();
                acts
            });
        }
        let debts: Vec<_> = {
            let ledgers = self.ledgers.lock();
            let debts = ledgers.iter().filter(|(_, ledger)| ledger.owed > 0);
            debts.map(|(router, _)| router.clone()).collect()
        };
        debts.iter().for_each(|router| self.pay(router));
        is_waiting || self.ledgers.lock().values().any(|ledger| ledger.owed > 0)
    }
}
