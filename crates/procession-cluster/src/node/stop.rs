//! The end of a node, which can be awaited.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use procession::process;

use crate::link::{Link, Order};
use crate::node::Node;

impl Node {
    /// Ends the connection to a node. Returns `true` if there was one.
    ///
    /// All monitors and links across it report
    /// [`Exit::NoConnection`](procession::Exit::NoConnection), on both sides.
    ///
    /// From now on, sends by the connection fail. What it has accepted before is sent first. The
    /// connection ends once the other node has taken that, or after the
    /// [patience](crate::NodeBuilder::patience). [`NodeDown`](crate::Letter::NodeDown) reports that
    /// moment. Messages that are left then are counted
    /// ([`NodeStatus::lost`](crate::NodeStatus::lost)), and the process of the connection fails
    /// with their number, which is [reported](procession::observe).
    pub fn disconnect(&self, node: &str) -> bool {
        let link = self.link_to(node);
        link.is_some_and(|link| end(&link, "it was disconnected by this node"))
    }

    /// Ends all connections, and stops listening. It cannot be undone.
    ///
    /// Each connection ends as by [`disconnect`](Self::disconnect): what it has accepted is sent
    /// first. To wait for that, await the result. It returns the number of messages that may be
    /// lost. The node stops in the same way if you do not await the result, and an orderly end of
    /// the scheduler or the program waits for the connections (see the table in
    /// [`procession::fs`](procession::fs#at-the-end)).
    ///
    /// ```
    /// use procession_cluster::{Cookie, Node};
    ///
    /// # procession::run(async {
    /// let cookie = Cookie::new("secret").expect("it has the form of a cookie");
    /// let node = Node::builder("shop@127.0.0.1").cookie(cookie).start().await?;
    /// let lost = node.stop().await;
    /// assert_eq!(lost, 0);
    /// # Ok::<(), procession_cluster::StartError>(())
    /// # }).expect("the node starts");
    /// ```
    pub fn stop(&self) -> Stopping {
        let links = self.0.peers.lock().stop();
        for link in &links {
            end(link, "this node has stopped");
        }
        let keeper = self.0.keeper.lock().take();
        if let Some(keeper) = keeper {
            process::cancel(keeper.pid());
        }
        self.0.changed.notify_waiters();
        let node = self.clone();
        Stopping(Box::pin(async move { node.until_ended(&links).await }))
    }

    /// Waits until connections have ended. Returns the number of messages that they have lost.
    async fn until_ended(&self, links: &[Arc<Link>]) -> u64 {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let left = links.iter().map(|link| link.left.get().copied());
            if let Some(lost) = left.sum::<Option<u64>>() {
                return lost;
            }
            changed.await;
        }
    }
}

/// Ends a connection in order. Returns `false` if it has ended.
fn end(link: &Link, why: &str) -> bool {
    // Before the order is taken, so that no later message is accepted.
    link.outbound.drain();
    link.orders.send(Order::End(why.to_owned())).is_ok()
}

/// The end of a node that was [stopped](Node::stop). It returns the number of messages that were
/// accepted and may be lost.
pub struct Stopping(Pin<Box<dyn Future<Output = u64> + Send>>);

impl Future for Stopping {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<u64> {
        self.0.as_mut().poll(task)
    }
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopping").finish_non_exhaustive()
    }
}
