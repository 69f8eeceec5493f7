//! What a scheduler knows of time: its deadlines, and what holds the test clock.

use std::mem;
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, fence};

use crate::process::unwind::guarded;
use crate::scheduler::driver::Keeper;
use crate::scheduler::pace::Beacon;
use crate::time::action::Action;
use crate::time::timers::Timers;

/// The time of a scheduler, the timers of its seats apart.
pub(crate) struct Clock {
    pub(crate) keeper: Keeper,
    pub(crate) beacon: Beacon,
    /// Timers set by threads that are no workers.
    pub(crate) outside: Timers<Action>,
    /// Completions that are out, root futures that were woken, and threads from outside that bring
    /// a process: the test clock stands still for them.
    pub(crate) outstanding: AtomicU32,
    /// Sleeps for which there was no timer, and whether there are any.
    timer_waiters: Mutex<Vec<Waker>>,
    has_timer_waiters: AtomicBool,
}

impl Clock {
    /// With so many pending timers outside of the seats at most.
    pub(crate) fn new(timers: u32) -> Self {
        Self {
            keeper: Keeper::none(),
            beacon: Beacon::default(),
            outside: Timers::new(timers),
            outstanding: AtomicU32::new(0),
            timer_waiters: Mutex::new(Vec::new()),
            has_timer_waiters: AtomicBool::new(false),
        }
    }

    /// A sleep found no timer left: it is woken when there may be one. The caller tries once more.
    pub(crate) fn wait_for_timer(&self, waker: Waker) {
        self.timer_waiters.lock().push(waker);
        // Relaxed, as all uses: ordered by the fence (`time/timers.rs`, *Room*).
        self.has_timer_waiters.store(true, Relaxed);
        fence(SeqCst);
    }

    /// There may be room for a timer again: one was deleted, reset or fired.
    #[inline]
    pub(crate) fn note_timer_room(&self) {
        if self.has_timer_waiters.load(Relaxed) {
            self.wake_timer_waiters();
        }
    }

    #[cold]
    fn wake_timer_waiters(&self) {
        self.has_timer_waiters.store(false, Relaxed);
        for waiter in self.take_timer_waiters() {
            drop(guarded(|| waiter.wake()));
        }
    }

    pub(crate) fn take_timer_waiters(&self) -> Vec<Waker> {
        mem::take(&mut *self.timer_waiters.lock())
    }

    /// Who finds none, and then no work, knows that nothing is on its way; in the other order it
    /// may have been queued in between.
    pub(crate) fn outstanding(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `end_outstanding`: what was queued before is
        // seen by who sees this.
        self.outstanding.load(Acquire)
    }
}
