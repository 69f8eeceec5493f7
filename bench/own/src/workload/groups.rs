//! The workloads of sets and groups of processes.

use super::{Definition, Figure};

pub(crate) const JOINSET: Definition = Definition {
    name: "joinset",
    what: "1 M processes are started in a set, 1000 at a time, and all results are taken from it",
    figures: &[Figure { name: "joinset", unit: "ns", per: "process" }],
};
pub(crate) const JOINSET_ROUNDS: u64 = 1000;
pub(crate) const JOINSET_AT_ONCE: u64 = 1000;

pub(crate) const GROUP_BROADCAST: Definition = Definition {
    name: "group_broadcast",
    what: "100 messages are sent to a group of 10 000 processes, each when all have received the last one",
    figures: &[Figure { name: "group_broadcast", unit: "ns", per: "message received" }],
};
pub(crate) const GROUP_MESSAGES: u64 = 100;
pub(crate) const GROUP_MEMBERS: u64 = 10_000;
