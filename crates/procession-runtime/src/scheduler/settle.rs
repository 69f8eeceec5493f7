//! The waits for what other threads write: the data of files, and reports.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::scheduler::section::Section;
use crate::scheduler::shared::Shared;
use crate::scheduler::writes::{PATIENCE, SettledWrites};
use crate::scheduler::{block_on, current};
use crate::sys::{World, nanoseconds, stderr};
use crate::time::sleep_on;

impl Shared {
    /// Waits until nothing is left of `settled`, a wait for writes of this scheduler, or until
    /// `deadline`.
    pub(crate) async fn settle_writes(
        self: &Arc<Self>,
        settled: &mut SettledWrites,
        deadline: u64,
    ) {
        let mut sleep = pin!(sleep_on(Arc::clone(self), deadline));
        poll_fn(|task| {
            if Pin::new(&mut *settled).poll(task).is_ready() || self.world.now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(task)
        })
        .await;
    }
}

/// Waits until what was reported is written, for a short time, at the end of a shutdown with
/// this deadline.
pub(crate) fn settle_reports(world: &World, deadline: u64) {
    if !stderr::is_unsettled_in(world) {
        return;
    }
    // The test clock says nothing about standard error.
    let left = if world.is_test() {
        stderr::FLUSH_MAX
    } else {
        Duration::from_nanos(deadline.saturating_sub(world.now())).min(stderr::FLUSH_MAX)
    };
    let _section = Section::enter();
    stderr::flush(world, left);
}

/// The time of a `block_on`. When it is dropped, it waits for writes that the scheduler accepted
/// during the call, and for reports. So the code after the `block_on` finds the data in its file,
/// and a program that ends with a panic says why.
///
/// It does nothing on a thread that belongs to a scheduler, because such a thread does not end the
/// program.
pub(crate) struct SettledOutput<'a> {
    shared: &'a Arc<Shared>,
    /// The number of the last write before.
    before: u64,
}

impl<'a> SettledOutput<'a> {
    #[inline]
    pub(crate) fn of(shared: &'a Arc<Shared>) -> Self {
        Self { shared, before: shared.lifetime.last_write() }
    }
}

impl Drop for SettledOutput<'_> {
    #[inline]
    fn drop(&mut self) {
        if stderr::is_unsettled() || self.has_accepted() {
            self.settle();
        }
    }
}

impl SettledOutput<'_> {
    fn has_accepted(&self) -> bool {
        self.shared.lifetime.last_write() != self.before
    }

    #[cold]
    fn settle(&self) {
        if current::here().is_some() {
            return;
        }
        // A panic continues without a wait. If it ends the program, the program's end waits.
        if !thread::panicking() && self.has_accepted() {
            let mut settled = SettledWrites::of(self.shared.id(), self.before);
            // Nothing to wait for is no reason to drive the scheduler.
            if !settled.is_settled() {
                let world = &self.shared.world;
                let deadline = world.now().saturating_add(nanoseconds(PATIENCE));
                block_on::block_on(self.shared, self.shared.settle_writes(&mut settled, deadline));
                // The test clock says nothing about the system, where the program ends.
                if !world.is_test() {
                    settled.note_overdue();
                }
            }
        }
        if stderr::is_unsettled() {
            stderr::flush(&self.shared.world, stderr::FLUSH_MAX);
        }
    }
}
