//! Admitting connections: the steps of `peers`, for the processes that carry them out.

use std::pin::pin;
use std::sync::Arc;

use procession::Address;
use procession_sync::MutexGuard;

use crate::handshake::Introduction;
use crate::link::{Link, Order};
use crate::node::Node;
use crate::node::peers::{Admission, Side};
use crate::remote::Remote;
use crate::term::Atom;

/// An attempt to connect. When it ends without a connection, others may try.
#[derive(Debug)]
pub(crate) struct Attempt {
    node: Node,
    peer: Atom,
    pub(crate) number: u64,
    pub(crate) side: Side,
}

impl Attempt {
    pub(crate) fn new(node: Node, peer: Atom, number: u64, side: Side) -> Self {
        Self { node, peer, number, side }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.node.0.peers.lock().end(&self.peer, self.number);
        self.node.0.changed.notify_waiters();
    }
}

impl Node {
    /// Lets a signal be answered as for a process that cannot be reached. No connection is admitted
    /// until the result is dropped. Returns `None` if the process is connected.
    pub(crate) fn refuse(&self, remote: &Remote) -> Option<MutexGuard<'_, ()>> {
        let refusal = self.0.refusal.lock();
        self.link_of(remote).is_none().then_some(refusal)
    }

    /// Makes a connection known, once everybody has been notified of the end of its predecessor.
    /// Returns the reason if it is not wanted.
    pub(crate) async fn connected(
        &self,
        attempt: &Attempt,
        peer: &Introduction,
        orders: &Address<Order>,
    ) -> Result<Arc<Link>, &'static str> {
        let mut is_waiting = false;
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            match self.admit(attempt, peer, orders) {
                Admission::Made(link) => {
                    self.publish();
                    self.0.changed.notify_waiters();
                    return Ok(link);
                }
                Admission::Waits(replaced) => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        // Others that wait may be unwanted now.
                        self.0.changed.notify_waiters();
                    }
                    if let Some(old) = replaced {
                        let why = "a newer connection has replaced it".to_owned();
                        // Ignored: it has ended.
                        drop(old.orders.send(Order::Close(why)));
                    }
                }
                Admission::Unwanted(why) => return Err(why),
            }
            changed.await;
        }
    }

    /// Waits until the subscribers have received the news of a connection, which another thread may
    /// be delivering. What the connection brings is delivered after that.
    pub(crate) async fn until_up(&self, link: &Link) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.0.peers.lock().is_up(link) {
                return;
            }
            changed.await;
        }
    }

    fn admit(&self, attempt: &Attempt, peer: &Introduction, orders: &Address<Order>) -> Admission {
        let mut gone = Vec::new();
        let make = |connection| {
            gone = self.0.remotes.lock().connected(&peer.name, peer.creation);
            let most = self.0.message_limit;
            Link::new(peer.clone(), connection, attempt.number, orders.clone(), most)
        };
        let attempt = (attempt.side, attempt.number);
        let refusal = self.0.refusal.lock();
        let admission = self.0.peers.lock().admit(self.name(), &peer.name, attempt, make);
        drop(refusal);
        // Outside of the locks, because their relays are dropped.
        drop(gone);
        admission
    }

    /// Forgets a connection that has ended, so that another connection can be made.
    pub(crate) fn forget(&self, link: &Arc<Link>) {
        self.0.peers.lock().forget(link);
    }

    /// Makes the end of a connection known.
    pub(crate) fn disconnected(&self, link: &Arc<Link>, why: String) {
        self.0.remotes.lock().disconnected(&link.peer.name);
        self.0.peers.lock().ended(link, why);
        self.publish();
        self.0.changed.notify_waiters();
    }
}
