//! The function of a timer, and the wait until it does not run any more.
//!
//! # Why it works
//! A removal cannot stop a function that another thread is about to run: that thread has taken a
//! reference to the function out of the timers already. So the wait is for the drop of the last
//! reference. Once the timer is removed and the last reference is gone, the function neither runs
//! nor will run. The drop rings a bell (`sync/bell.rs`). The lock of the bell orders the drop with
//! a wait that begins.
//!
//! A wait on a thread that runs the function would wait for itself. Therefore the bell's lock also
//! guards the list of threads that run or drop the function. A thread that is in the list does not
//! wait.

use std::sync::Arc;

use procession_protocols::sync::bell::Bell;
use procession_protocols::sync::wait_list::Place;
use procession_protocols::util::small_vec::SmallVec;

use crate::process::served::WakeServed;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::in_turn;
use crate::scheduler::current;
use crate::scheduler::listener::{leave, look_or_enlist};

/// Rings once the function of a timer is gone.
#[derive(Debug)]
pub(super) struct FunctionEnd(Bell<FunctionRuns>);

/// The state under the lock of the bell.
#[derive(Debug, Default)]
struct FunctionRuns {
    /// The threads that run or drop the function, by number.
    threads: SmallVec<u64>,
    is_gone: bool,
}

/// The function of a timer, with its end.
pub(super) struct TimerFunction<F> {
    end: Arc<FunctionEnd>,
    /// Present until the drop.
    function: Option<F>,
}

/// The time in which a thread runs or drops a function.
struct Inside<'a>(&'a FunctionEnd);

/// Rings the bell when it is dropped.
struct Rings<'a>(&'a FunctionEnd);

impl<F> TimerFunction<F> {
    pub(super) fn new(function: F) -> Self {
        let end = Arc::new(FunctionEnd(Bell::new(FunctionRuns::default())));
        Self { end, function: Some(function) }
    }

    pub(super) fn end(&self) -> Arc<FunctionEnd> {
        Arc::clone(&self.end)
    }

    /// Runs the function by `run`.
    pub(super) fn run(&self, run: impl FnOnce(&F)) {
        let _inside = Inside::begin(&self.end);
        if let Some(function) = &self.function {
            run(function);
        }
    }

    /// Takes the function out.
    pub(super) fn into_inner(mut self) -> Option<F> {
        self.function.take()
    }
}

impl<F> Drop for TimerFunction<F> {
    fn drop(&mut self) {
        let _rings = Rings(&self.end);
        // The values of the function may wait for its end as well.
        let _inside = Inside::begin(&self.end);
        drop(self.function.take());
    }
}

impl<'a> Inside<'a> {
    fn begin(end: &'a FunctionEnd) -> Self {
        let this = current::thread_number();
        end.0.change(|ringing| ringing.about.threads.push(this));
        Self(end)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let this = current::thread_number();
        self.0.0.change(|ringing| {
            // The thread may be in it several times, if the function makes it drive a scheduler.
            let mut is_first = true;
            let keeps = |&thread: &u64| thread != this || !std::mem::take(&mut is_first);
            ringing.about.threads.retain(keeps);
        });
    }
}

impl Drop for Rings<'_> {
    fn drop(&mut self) {
        self.0.0.ring_all_if(|runs| !std::mem::replace(&mut runs.is_gone, true)).wake();
    }
}

impl FunctionEnd {
    /// Waits until the function is gone, or does not wait on a thread that runs it.
    pub(super) async fn wait(&self) {
        let mut wait = FunctionWait { end: self, place: None };
        in_turn(|task| {
            let this = current::thread_number();
            let look = |runs: &mut FunctionRuns| {
                let is_over = runs.is_gone || runs.threads.iter().any(|&thread| thread == this);
                is_over.then_some(())
            };
            let looked = look_or_enlist(&self.0, &mut wait.place, task, look);
            if looked.is_pending() {
                current::note_waiting_for_some(Waiting::LOCK);
            }
            looked
        })
        .await;
    }
}

/// A wait that ends when it is dropped.
struct FunctionWait<'a> {
    end: &'a FunctionEnd,
    place: Option<Place>,
}

impl Drop for FunctionWait<'_> {
    fn drop(&mut self) {
        leave(&self.end.0, &mut self.place);
    }
}
