//! The time of a scheduler: its deadlines, and the causes for which the test clock stands still.

use std::mem;
use std::task::Waker;

use procession_protocols::scheduler::driver::Driver;
use procession_protocols::scheduler::pace::Beacon;
use procession_protocols::time::timers::Timers;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, fence};

use crate::process::unwind::guarded;
use crate::time::action::Action;

/// The time of a scheduler, except for the timers of its seats.
pub(crate) struct Clock {
    pub(crate) driver: Driver,
    pub(crate) beacon: Beacon,
    /// Timers set by threads that are not workers.
    pub(crate) outside: Timers<Action>,
    /// The number of outstanding completions, of block-on futures that were woken, and of threads
    /// from outside that queue a process. The test clock stands still for them.
    pub(crate) outstanding: AtomicU32,
    /// The wakers of sleeps that found no room for a timer, and whether there are any.
    timer_waiters: Mutex<Vec<Waker>>,
    has_timer_waiters: AtomicBool,
}

impl Clock {
    /// Creates the clock, with at most this many pending timers outside of the seats.
    pub(crate) fn new(timers: u32) -> Self {
        Self {
            driver: Driver::none(),
            beacon: Beacon::default(),
            outside: Timers::new(timers),
            outstanding: AtomicU32::new(0),
            timer_waiters: Mutex::new(Vec::new()),
            has_timer_waiters: AtomicBool::new(false),
        }
    }

    /// Registers a sleep that found no room for a timer, to be woken when there may be some. The
    /// caller tries once more afterwards.
    pub(crate) fn wait_for_timer(&self, waker: Waker) {
        self.timer_waiters.lock().push(waker);
        // Relaxed, as all uses: ordered by the fence (`time/timers.rs`, *Room*).
        self.has_timer_waiters.store(true, Relaxed);
        fence(SeqCst);
    }

    /// Wakes the sleeps that wait for room, after a timer was deleted, reset or fired.
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

    /// Returns the number of outstanding completions.
    ///
    /// A thread that finds none, and finds no work afterwards, knows that nothing is outstanding.
    /// In the other order, work may have been queued in between.
    pub(crate) fn outstanding(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `end_outstanding`. A thread that sees its
        // count sees what was queued before.
        self.outstanding.load(Acquire)
    }
}
