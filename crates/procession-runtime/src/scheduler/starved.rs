//! Listeners that wait for a free file descriptor.

use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;

/// The listeners that were refused a descriptor.
#[derive(Default)]
pub(crate) struct Starved {
    /// `true` if wakers may be registered.
    any: AtomicBool,
    listeners: Mutex<Listeners>,
    /// Number of times a listener was refused a descriptor.
    pub(crate) refused: AtomicU64,
}

impl Part for Starved {}

impl Starved {
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Wakes the waiting listeners, since a descriptor was closed.
    #[inline]
    pub(crate) fn note_closed(&self) {
        // Pairs with the fence in `register`: either this call sees the flag, or the listener's
        // next attempt sees the free descriptor. If the kernel orders the two otherwise, the
        // listener's next retry finds the descriptor.
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
        change(&mut self.listeners.lock())
    }

    /// Registers a waker that is woken when a descriptor is closed. Dropping the guard removes it.
    pub(crate) fn register(&self, waker: Waker) -> Registration<'_> {
        let number = self.change(|listeners| {
            listeners.last += 1;
            listeners.wakers.push((listeners.last, waker));
            listeners.last
        });
        self.any.store(true, Relaxed);
        fence(SeqCst);
        Registration { starved: self, number }
    }
}

/// The registered wakers, each with a unique number.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) wakers: Vec<(u64, Waker)>,
    pub(crate) last: u64,
}

/// Keeps a waker registered. The waker may have been woken already.
pub(crate) struct Registration<'a> {
    pub(crate) starved: &'a Starved,
    pub(crate) number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let own = self.starved.change(|listeners| {
            let place = listeners.wakers.iter().position(|&(number, _)| number == self.number)?;
            Some(listeners.wakers.swap_remove(place))
        });
        drop_guarded(own);
    }
}
