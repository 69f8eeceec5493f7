//! What the end of a connection does, however it ends.

use std::sync::Arc;

use procession::Exit;
use procession::mailbox::relay::{self, Outgoing, RemoteSignal};

use super::farewell::LEFT;
use super::io::SHUTS_DOWN;
use crate::connection::Connection;
use crate::connection::io::Ends;
use crate::link::{Link, StartRefusal};
use crate::node::Node;

/// The end of a connection before the subscribers have received it. Its drop makes the end known,
/// even if a notification has panicked, because otherwise no later connection would be admitted.
struct Over {
    node: Node,
    link: Arc<Link>,
    why: Ends,
    /// The entry of the messages that are left, and their number.
    outgoing: Option<(Outgoing, u64)>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.node.disconnected(&self.link, std::mem::take(&mut self.why));
        if let Some((outgoing, lost)) = self.outgoing.take() {
            outgoing.lose(lost);
        }
    }
}

/// Notifies all of the end, even if the process is terminated.
impl Drop for Connection {
    fn drop(&mut self) {
        let (node, link) = (self.node.clone(), Arc::clone(&self.link));
        let is_terminated = self.why.is_none();
        let why = self.why.take().unwrap_or_else(|| "its process was terminated".to_owned());
        let is_in_order = self.link.outbound.is_ending();
        let is_last = is_terminated || self.node.is_stopped() || why == SHUTS_DOWN;
        let outgoing = self.link.outbound.close().map(|outgoing| {
            let lost = match (is_last, is_in_order) {
                (true, true) => self.link.lost(),
                (true, false) => self.link.outbound.unsent(),
                // The program continues, and its subscribers receive the number.
                (false, _) => 0,
            };
            (outgoing, lost)
        });
        let exit = if why == LEFT { Exit::Left } else { Exit::NoConnection };
        // The field that is dropped last.
        let _over = Over { node, link, why, outgoing };
        // First, so that a notified process can connect again.
        self.node.forget(&self.link);
        let mut tables = self.link.close();
        for (monitor, watch) in std::mem::take(&mut tables.watches) {
            watch.tell(monitor, exit.clone());
        }
        for (_, caller) in std::mem::take(&mut tables.calls) {
            caller.waits.end(Err(exit.clone()));
        }
        for (_, asker) in std::mem::take(&mut tables.starts) {
            asker.refuse(StartRefusal::NoConnection);
        }
        for (own, other) in std::mem::take(&mut tables.links) {
            if let Some((to, _)) = self.node.local(own) {
                let from = self.node.pid(&other);
                relay::receive(RemoteSignal::Exit { from, to, exit: exit.clone() });
            }
        }
        for (id, (own, other)) in std::mem::take(&mut tables.unlinks) {
            if let Some((to, _)) = self.node.local(own) {
                relay::receive(RemoteSignal::UnlinkAck { from: self.node.pid(&other), to, id });
            }
        }
    }
}
