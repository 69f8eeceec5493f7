//! What has happened on a node.

use procession_sync::atomic::Ordering::Relaxed;

use super::router::{Portable, Router};

/// What has happened to the messages and keys of shards, on one node.
///
/// Of all nodes together, and once everything is quiet, `sent` is the sum of `handled`, `returned`
/// and `dead`, and of what was `lost` at most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardsStatus {
    /// The shards whose home is this node.
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
    /// The messages of this node that came back after they were accepted.
    pub returned: u64,
    /// The refused messages that could not be returned: dead letters.
    pub dead: u64,
    /// The messages that were with nodes that have ended, at most.
    pub lost: u64,
    /// The states that no process got, because the key had a process or the node no room.
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
            states_dropped: counts.states_dropped.load(Relaxed),
        }
    }
}
