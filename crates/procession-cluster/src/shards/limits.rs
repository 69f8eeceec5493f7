//! The limits of shards.

use std::time::Duration;

/// The bytes of a key, at most.
pub(super) const KEY_MAX: usize = 1024;
/// The shards at most. Each has a lane in each connection.
pub(super) const SHARDS_MAX: u32 = 1 << 12;
/// How often a message is forwarded, at most: more often than views differ, and less than a circle
/// of two nodes needs to be noticed.
pub(super) const HOPS_MAX: u8 = 4;

/// The limits of shards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) idle: Duration,
    /// The messages of a key.
    pub(super) queue: usize,
    /// The keys of this node.
    pub(super) keys: u64,
    /// The messages that wait while their shard moves.
    pub(super) moves: usize,
    pub(super) move_time: Duration,
}
