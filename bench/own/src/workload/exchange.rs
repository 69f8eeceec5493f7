//! The workloads of notifications, oneshot channels, watches and broadcasts.

use super::{Definition, Figure};

pub(crate) const NOTIFY: Definition = Definition {
    name: "notify",
    what: "two processes notify each other, 1 M times there and back",
    figures: &[Figure { name: "notify", unit: "ns", per: "round trip" }],
};
pub(crate) const NOTIFY_ROUND_TRIPS: u64 = 1_000_000;

pub(crate) const ONESHOT: Definition = Definition {
    name: "oneshot",
    what: "1 M oneshot channels, one after the other: used by one process, and with a process that sends",
    figures: &[
        Figure { name: "oneshot", unit: "ns", per: "channel" },
        Figure { name: "oneshot_spawn", unit: "ns", per: "channel" },
    ],
};
pub(crate) const ONESHOT_COUNT: u64 = 1_000_000;

pub(crate) const WATCH: Definition = Definition {
    name: "watch",
    what: "a value is changed 100 k times, each time when 8 processes have seen the last change",
    figures: &[Figure { name: "watch", unit: "ns", per: "value seen" }],
};
pub(crate) const WATCH_CHANGES: u64 = 100_000;
pub(crate) const WATCH_RECEIVERS: u64 = 8;

pub(crate) const BROADCAST: Definition = Definition {
    name: "broadcast",
    what: "200 k messages are sent to 8 processes, 1000 at a time",
    figures: &[Figure { name: "broadcast", unit: "ns", per: "message received" }],
};
pub(crate) const BROADCAST_BATCHES: u64 = 200;
pub(crate) const BROADCAST_AT_ONCE: u64 = 1000;
/// A power of two, so that all runtimes keep as many.
pub(crate) const BROADCAST_CAPACITY: usize = 1024;
pub(crate) const BROADCAST_RECEIVERS: u64 = 8;
