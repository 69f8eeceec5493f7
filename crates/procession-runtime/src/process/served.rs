//! How a primitive wakes the waiters that its protocol has served, and how it lends the waker of a
//! task to a list. Both may run code of the user, which the protocols leave to their callers.

use std::ops::{Deref, DerefMut};
use std::task::Waker;

use procession_protocols::sync::wait_list::{Another, ServedWaiters, Waiter};

use crate::process::unwind::{drop_guarded, guarded};
use crate::process::waker::{another, is_lent, wake_together};

/// Waiters that were served, and are to be woken outside of all locks.
pub(crate) trait WakeServed {
    /// Wakes all wakers. A waker may be code of the user, so its panic is caught here.
    fn wake(self);
}

impl WakeServed for Waiter {
    fn wake(self) {
        if let Some(waker) = self.into_waker() {
            drop(guarded(|| waker.wake()));
        }
    }
}

impl WakeServed for ServedWaiters {
    #[inline]
    fn wake(mut self) {
        let count = self.len();
        if count < 2 {
            return self.drain().for_each(Waiter::wake);
        }
        wake_together(count, self.drain().filter_map(Waiter::into_waker));
    }
}

/// Wakes the waiter that was served, if there is one.
#[inline]
pub(crate) fn wake(waiter: Option<Waiter>) {
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

/// The waker of the task that waits, for a list that may need a clone.
///
/// The spare clone is dropped together with this, outside of all locks.
pub(crate) struct TaskWaker<'a>(Another<'a>);

impl<'a> TaskWaker<'a> {
    #[inline]
    pub(crate) fn of(waker: &'a Waker) -> Self {
        Self(Another::new(waker, another, is_lent(waker)))
    }
}

impl<'a> Deref for TaskWaker<'a> {
    type Target = Another<'a>;

    #[inline]
    fn deref(&self) -> &Another<'a> {
        &self.0
    }
}

impl DerefMut for TaskWaker<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for TaskWaker<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(spare) = self.0.take_spare() {
            drop_guarded(spare);
        }
    }
}
