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
use crate::shards::table::Shard;
use crate::shards::view::View;
use crate::shards::wire;
use crate::term::{NodePid, Term};
use crate::wire::control::Control;

impl<M: Portable> Router<M> {
    /// Changes the view. If a `router` has joined, it may have processes of each shard at home on
    /// this node.
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
            let acts = shard.set_home(&view, &self.limits, &self.counts);
            if let Some(new) = router
                && is_member
                && shard.is_home()
            {
                shard.await_from(new, &self.limits);
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
        let is_former = |(own, other): &(&Pid, &NodePid)| **own != pid && other.node == router.node;
        let former = self.view.lock().known.iter().find(is_former).map(|(own, _)| *own);
        if let Some(former) = former {
            self.gone(former);
        }
        self.change_view(Some(router), |view| {
            if view.known.insert(pid, router.clone()).is_none() {
                self.process.monitor(pid);
                self.ledgers.lock().entry(router.clone()).or_default();
            }
            view.members.insert(router.clone())
        });
    }

    /// Notes that a router speaks, and takes shards. The first time, it may not be known as a
    /// member yet. What it gives must not find a process that was started for what it forwards.
    pub(in crate::shards) fn met(self: &Arc<Self>, router: &NodePid) {
        let is_known = {
            let view = self.view.lock();
            let is_of_node = |other: &NodePid| other.node == router.node;
            let has_router = || view.members.iter().any(is_of_node) || view.is_known(router);
            view.members.contains(router) || has_router()
        };
        if !is_known {
            self.joined(self.node.pid(router), router);
        }
    }

    /// Notes that the router of another node takes no shards any more.
    pub(in crate::shards) fn left(self: &Arc<Self>, router: &NodePid) {
        self.change_view(Some(router), |view| view.members.remove(router));
    }

    pub(in crate::shards) fn left_group(self: &Arc<Self>, pid: Pid) {
        let router = self.view.lock().known.get(&pid).cloned();
        if let Some(router) = router {
            self.left(&router);
        }
    }

    /// Notes that the router of another node has ended, or cannot be reached.
    pub(in crate::shards) fn gone(self: &Arc<Self>, pid: Pid) {
        let Some(router) = self.view.lock().known.remove(&pid) else { return };
        self.left(&router);
        for number in 0..self.count() {
            self.change(number, |shard| shard.forget(&router, &self.counts));
        }
        if let Some(Ledger { sent, done, .. }) = self.ledgers.lock().remove(&router) {
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
        let is_alone = {
            let view = self.view.lock();
            if view.takes {
                return false;
            }
            view.members.is_empty()
        };
        is_alone || self.shards.iter().all(|shard| shard.lock().is_given())
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
        let known: BTreeSet<_> = self.view.lock().known.values().cloned().collect();
        for number in 0..self.count() {
            self.change(number, |shard| {
                let acts = shard.expire(&known, &self.counts);
                for router in &shard.awaits {
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
