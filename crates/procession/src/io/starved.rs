//! Listeners that wait for a free descriptor.

use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::process::unwind::{drop_guarded, guarded};

/// Listeners for whose connections there are no descriptors.
#[derive(Default)]
pub(crate) struct Starved {
    /// Whether there may be wakers.
    any: AtomicBool,
    listeners: Mutex<Listeners>,
    /// How often a listener was refused a descriptor.
    pub(crate) refused: AtomicU64,
}

impl Starved {
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// A descriptor was closed.
    #[inline]
    pub(crate) fn note_closed(&self) {
        // With the one in `leave`: either this sees the flag, or the listener's next try sees the descriptor. If the kernel orders it
        // otherwise, the listener tries again soon.
        fence(SeqCst);
        if self.any.load(Relaxed) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.any.store(false, Relaxed);
        for (_, waker) in self.change(|listeners| std::mem::take(&mut listeners.wakers)) {
            drop(guarded(|| waker.wake()));
        }
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Listeners) -> R) -> R {
        change(&mut self.listeners.lock().expect("nothing that can panic runs under this lock"))
    }

    /// Is woken when a descriptor was closed, until the guard goes.
    pub(crate) fn leave(&self, waker: Waker) -> InList<'_> {
        let number = self.change(|listeners| {
            listeners.last += 1;
            listeners.wakers.push((listeners.last, waker));
            listeners.last
        });
        self.any.store(true, Relaxed);
        fence(SeqCst);
        InList { starved: self, number }
    }
}

/// Those who wait, each by a number that no other has.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) wakers: Vec<(u64, Waker)>,
    pub(crate) last: u64,
}

/// A waker that was left, perhaps woken since.
pub(crate) struct InList<'a> {
    pub(crate) starved: &'a Starved,
    pub(crate) number: u64,
}

impl Drop for InList<'_> {
    fn drop(&mut self) {
        let own = self.starved.change(|listeners| {
            let place = listeners.wakers.iter().position(|&(number, _)| number == self.number)?;
            Some(listeners.wakers.swap_remove(place))
        });
        drop_guarded(own);
    }
}
