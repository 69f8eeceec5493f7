//! Lists of processes for people.

use crate::Pid;

/// The largest number of processes in one list.
pub(crate) const LISTED_MAX: usize = 16;

/// The first processes of a list, and the length of the whole list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PidList {
    /// The first 16 processes of the list.
    pub first: Vec<Pid>,
    /// The number of processes in the whole list.
    pub total: usize,
}

impl PidList {
    /// Returns the list of these processes.
    pub(crate) fn of(pids: impl Iterator<Item = Pid>) -> Self {
        let mut list = Self::default();
        for pid in pids {
            if list.first.len() < LISTED_MAX {
                list.first.push(pid);
            }
            list.total += 1;
        }
        list
    }
}
