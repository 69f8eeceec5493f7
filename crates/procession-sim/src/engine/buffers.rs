//! What the engine knows between two points, if each operation of an atomic is one.

use std::collections::BTreeMap;
use std::panic::Location;

use procession_sync::host::Mutex;
use procession_sync::host::atomic::{AtomicBool, AtomicU32};

use crate::memory::{Memory, Processor};

/// An access of a cell that has not ended.
pub(super) struct CellAccess {
    pub(super) number: u64,
    pub(super) thread: usize,
    pub(super) address: usize,
    pub(super) is_write: bool,
    pub(super) at: &'static Location<'static>,
}

/// What the engine knows between two points. Only the thread that has the turn touches it.
pub(super) struct Operations {
    /// The number of operations after which the running thread is preempted, or 0.
    pub(super) gap: AtomicU32,
    /// The number of operations of this turn.
    pub(super) done: AtomicU32,
    /// Set if the run preempts threads where it was not planned.
    pub(super) has_aim: AtomicBool,
    /// Set if a load of the running thread has passed a store that is still in its buffer.
    pub(super) has_passed: AtomicBool,
    /// Set if the last operation of the running thread was the release of a mutex.
    pub(super) has_released: AtomicBool,
    pub(super) memory: Mutex<Memory>,
    /// The threads that have locks, by the address of the lock.
    pub(super) holders: Mutex<BTreeMap<usize, usize>>,
    pub(super) accesses: Mutex<Vec<CellAccess>>,
    /// What has happened in the run.
    pub(super) counts: Mutex<OperationCounts>,
}

impl Operations {
    pub(super) fn on(processor: Processor) -> Self {
        Self {
            gap: AtomicU32::new(0),
            done: AtomicU32::new(0),
            has_aim: AtomicBool::new(false),
            has_passed: AtomicBool::new(false),
            has_released: AtomicBool::new(false),
            memory: Mutex::new(Memory::of(processor)),
            holders: Mutex::default(),
            accesses: Mutex::default(),
            counts: Mutex::default(),
        }
    }
}

/// Counts of what happens between points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationCounts {
    /// Operations of atomics, locks, cells and fences.
    pub operations: u64,
    /// Preemptions before an operation.
    pub preemptions: u64,
    /// Stores that were not visible when their thread lost its turn.
    pub delayed_stores: u64,
    /// Operations of a weak processor that have found an older value than the newest one, or have
    /// stored behind it.
    pub older_values: u64,
}

impl std::ops::AddAssign for OperationCounts {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.preemptions += other.preemptions;
        self.delayed_stores += other.delayed_stores;
        self.older_values += other.older_values;
    }
}
