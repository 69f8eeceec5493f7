//! What has happened on a node.

use procession_sync::atomic::Ordering::Relaxed;

use super::router::{Portable, Router};
use crate::node::parts::{Lists, Part, ShardsInfo};

/// What has happened to the messages and keys of shards, on one node.
///
/// Add up the numbers of all nodes while no message is on its way. If no node has ended, `sent` is
/// the sum of `handled`, `returned` and `dead`. Otherwise, up to `lost` messages of the nodes that
/// still run are missing from that sum, because the nodes that have ended report nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardsStatus {
    /// The shards at home on this node.
    pub shards: usize,
    /// The keys of this node.
    pub keys: u64,
    /// The messages that wait while their shard moves.
    pub waiting: usize,
    /// The messages that this node has accepted for keys.
    pub sent: u64,
    /// The messages that processes of this node have received.
    pub handled: u64,
    /// The messages that were passed on to their home.
    pub forwarded: u64,
    /// The messages that other nodes were given, and have not reported as received or passed on.
    pub outstanding: u64,
    /// The messages of this node that were refused after [`send`](super::Shards::send) had accepted
    /// them, and came back.
    pub returned: u64,
    /// The dead letters: refused messages that could not be returned, or that no
    /// [function](super::ShardsBuilder::on_returned) takes, and messages that could not be read.
    pub dead: u64,
    /// At most so many messages were lost: the messages that other nodes had when they ended, or
    /// when the connection to them was lost.
    pub lost: u64,
    /// How often a shard has moved to this node or away from it.
    pub moves: u64,
    /// The states of earlier processes that were dropped, because the key had a process already,
    /// the node had no room, there was no other node, or the home could not be reached.
    pub states_dropped: u64,
}

impl ShardsStatus {
    pub(super) fn of<M: Portable>(router: &Router<M>) -> Self {
        let ((shards, waiting), counts) = (router.held(), &router.counts);
        // Relaxed: the numbers are for people.
        Self {
            shards,
            waiting,
            outstanding: router.outstanding(),
            keys: counts.keys.load(Relaxed),
            sent: counts.sent.load(Relaxed),
            handled: counts.handled.load(Relaxed),
            forwarded: counts.forwarded.load(Relaxed),
            returned: counts.returned.load(Relaxed),
            dead: counts.dead.load(Relaxed),
            lost: counts.lost.load(Relaxed),
            moves: counts.moves.load(Relaxed),
            states_dropped: counts.states_dropped.load(Relaxed),
        }
    }
}

impl<M: Portable> Part for Router<M> {
    fn list(&self, lists: &mut Lists) {
        if self.is_closed() {
            return;
        }
        let ShardsStatus { keys, waiting, moves, .. } = ShardsStatus::of(self);
        let (name, homes) = (self.name.to_string(), self.homes().into_iter().collect());
        lists.shards.push(ShardsInfo { name, keys, waiting, moves, homes });
    }
}
