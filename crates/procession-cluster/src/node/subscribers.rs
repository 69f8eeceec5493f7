//! The subscribers of connections, and the order in which they are notified.

use procession::mailbox::Recipient;

use crate::guarded::Guarded;
use crate::letter::{Letter, post};
use crate::node::Node;
use crate::node::peers::{Event, PeerEvent};

impl Node {
    /// Sends [`NodeUp`](Letter::NodeUp) to a process for each node that is connected, and from then
    /// on `NodeUp` and [`NodeDown`](Letter::NodeDown) as connections begin and end, in order.
    ///
    /// A process that subscribes again gets nothing twice: its new recipient replaces the previous
    /// recipient. The end of the process ends its subscription.
    ///
    /// # Blocking
    /// A function of the recipient ([`Address::map`](procession::Address::map)) must not block. The
    /// other subscribers are notified once it has returned, and only then can the node connect
    /// again.
    pub fn subscribe(&self, recipient: &Recipient<Letter>) {
        self.0.peers.lock().subscribe(Guarded::new(recipient.clone()));
        self.publish();
    }

    fn subscribed(&self, recipient: Guarded<Recipient<Letter>>, connected: Vec<PeerEvent>) {
        let pid = recipient.pid();
        let (is_attached, replaced) = {
            let mut locals = self.0.locals.lock();
            let replaced = locals.subscribers.insert(pid, recipient.clone());
            (locals.by_pid.contains_key(&pid), replaced)
        };
        if replaced.is_none() {
            for event in connected {
                // Ignored: it has ended, or takes no more.
                drop(post(&recipient, event.letter()));
            }
            if !is_attached {
                self.notice_end(pid);
            }
        }
        // Outside of the lock, because it has code of the user.
        drop(replaced);
    }

    /// Notifies the subscribers of connections. One thread does so at a time, so that the events
    /// stay in order, and no lock is held.
    pub(super) fn publish(&self) {
        struct Telling<'a>(&'a Node);
        impl Drop for Telling<'_> {
            fn drop(&mut self) {
                self.0.0.peers.lock().end_telling();
            }
        }

        /// An event that the subscribers receive. Its drop notes that, even if the delivery was cut
        /// short.
        struct Told<'a>(&'a Node, PeerEvent);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                self.0.0.peers.lock().was_told(&self.1);
                // A connection may wait for that.
                self.0.0.changed.notify_waiters();
            }
        }

        loop {
            if !self.0.peers.lock().begin_to_tell() {
                return;
            }
            let telling = Telling(self);
            while let Some(event) = self.next_event() {
                let told = match event {
                    Event::Changed(event) => Told(self, event),
                    Event::Subscribed(recipient, connected) => {
                        self.subscribed(recipient, connected);
                        continue;
                    }
                };
                let subscribers: Vec<_> =
                    self.0.locals.lock().subscribers.values().cloned().collect();
                for subscriber in subscribers {
                    // Ignored: it has ended, or takes no more.
                    drop(post(&subscriber, told.1.letter()));
                }
            }
            drop(telling);
            // An event that arrived since the last look found a thread that delivers.
            if !self.0.peers.lock().has_events() {
                return;
            }
        }
    }

    fn next_event(&self) -> Option<Event> {
        self.0.peers.lock().next_event()
    }
}
