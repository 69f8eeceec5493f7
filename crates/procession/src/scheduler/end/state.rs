//! How far a scheduler has come in its shutdown, and who waits for that.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::shutdown;
use crate::scheduler::shutdown::ShutdownPhase;

/// The life of a scheduler.
pub(crate) struct Lifetime {
    pub(crate) closing: ShutdownPhase,
    /// Who waits for processes to end, by number: until how many are left, and whom to wake then.
    waiters: Mutex<BTreeMap<u64, (u64, Waker)>>,
    last_waiter: AtomicU64,
}

impl Lifetime {
    pub(crate) fn open() -> Self {
        Self {
            closing: ShutdownPhase::open(),
            waiters: Mutex::default(),
            last_waiter: AtomicU64::new(0),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.closing.phase() == shutdown::ENDED
    }

    /// Whether a new process is taken; `inside` if one of the scheduler's own processes spawns it.
    pub(crate) fn takes_processes(&self, inside: bool) -> bool {
        // After the count: either a shutdown sees that, or this sees the shutdown.
        match self.closing.phase_after_publishing() {
            shutdown::OPEN => true,
            shutdown::STOPPING => inside,
            _ => false,
        }
    }

    /// A number for one that waits.
    pub(crate) fn number(&self) -> u64 {
        self.last_waiter.fetch_add(1, Relaxed)
    }

    /// Leaves a waker, to be woken once no more than `left` are alive. Returns the one before it.
    pub(crate) fn leave(&self, number: u64, left: u64, waker: Waker) -> Option<Waker> {
        Some(self.waiters.lock().insert(number, (left, waker))?.1)
    }

    /// One that waits goes. Returns its waker, to be dropped.
    pub(crate) fn forget(&self, number: u64) -> Option<Waker> {
        Some(self.waiters.lock().remove(&number)?.1)
    }

    /// Takes those that wait for no fewer than `alive` to be left.
    pub(crate) fn take_served(&self, alive: u64) -> Vec<Waker> {
        let mut waiters = self.waiters.lock();
        waiters
            .extract_if(.., |_, (left, _)| alive <= *left)
            .map(|(_, (_, waiter))| waiter)
            .collect()
    }

    /// Takes all that wait.
    pub(crate) fn take_waiters(&self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut *self.waiters.lock()).into_values().map(|(_, waiter)| waiter)
    }
}
