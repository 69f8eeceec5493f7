//! What threads of a simulated program use to wait for other threads, with the interface of
//! [`std::sync`].
//!
//! A thread that waits passes its turn on. Outside of a simulation, it waits in the real system.

use procession_sync::host::{Condvar, Mutex};

use crate::engine::threads::current;
use crate::engine::wait::{notify, publish, wait_until};

/// A place where threads wait until a certain number of threads has arrived.
///
/// ```
/// use std::sync::Arc;
///
/// use procession_sim::sync::Barrier;
/// use procession_sim::{Check, thread};
///
/// Check::new().seeds(0..10).run_threads(|_| {
///     let both = Arc::new(Barrier::new(2));
///     let own = Arc::clone(&both);
///     let other = thread::spawn(move || own.wait().is_leader());
///     let leads = both.wait().is_leader();
///     assert_ne!(other.join().unwrap(), leads, "one of them leads");
/// });
/// ```
#[derive(Debug)]
pub struct Barrier {
    count: usize,
    round: Mutex<Round>,
    is_over: Condvar,
}

#[derive(Debug, Default)]
struct Round {
    number: usize,
    waiting: usize,
}

/// The result of a wait at a [`Barrier`].
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns `true` for one of the threads that have waited together.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Creates a barrier for `count` threads. One for 0 threads is one for 1.
    pub fn new(count: usize) -> Self {
        Self { count, round: Mutex::new(Round::default()), is_over: Condvar::new() }
    }

    /// Waits until as many threads wait as the barrier is for. Then all these threads continue, and
    /// the barrier can be used again.
    ///
    /// # Blocking
    /// Blocks the thread, and with it the worker that the thread is.
    pub fn wait(&self) -> BarrierWaitResult {
        publish();
        let mut round = self.round.lock();
        round.waiting += 1;
        if round.waiting >= self.count {
            *round = Round { number: round.number.wrapping_add(1), waiting: 0 };
            drop(round);
            self.is_over.notify_all();
            notify();
            return BarrierWaitResult(true);
        }
        let number = round.number;
        if current().is_none() {
            while round.number == number {
                round = self.is_over.wait(round);
            }
            return BarrierWaitResult(false);
        }
        drop(round);
        wait_until(None, || self.round.lock().number != number);
        BarrierWaitResult(false)
    }
}
