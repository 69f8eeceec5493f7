//! The waits for what other threads write: the data of files, and reports.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::report::writer;
use crate::scheduler::current::Section;
use crate::scheduler::shared::Shared;
use crate::scheduler::writes::{PATIENCE, SettledWrites};
use crate::scheduler::{block_on, current};
use crate::sys::nanoseconds;
use crate::time::sleep_on;

impl Shared {
    /// Waits until the writes of this scheduler after the one with the number `before` are done, or
    /// until `deadline`.
    pub(crate) async fn settle_writes(
        self: &Arc<Self>,
        before: u64,
        deadline: u64,
    ) -> SettledWrites {
        let mut settled = SettledWrites::of(self.id(), before);
        if !settled.is_settled() {
            let mut sleep = pin!(sleep_on(Arc::clone(self), deadline));
            poll_fn(|task| match Pin::new(&mut settled).poll(task) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => sleep.as_mut().poll(task),
            })
            .await;
        }
        settled
    }

    /// Waits until what was reported is written, for a short time, at the end of a shutdown with
    /// this deadline.
    pub(crate) fn settle_reports(&self, deadline: u64) {
        if !writer::is_unsettled_in(&self.world) {
            return;
        }
        // The test clock says nothing about standard error.
        let left = if self.world.is_test() {
            writer::FLUSH_MAX
        } else {
            Duration::from_nanos(deadline.saturating_sub(self.world.now())).min(writer::FLUSH_MAX)
        };
        let _section = Section::enter();
        writer::flush(&self.world, left);
    }
}

/// The time of a `block_on`. When it is dropped, it waits for writes that the scheduler accepted
/// meanwhile, and for reports. So what follows the `block_on` finds the data in its file, and a
/// program that ends with a panic says why.
///
/// It does nothing on a thread that belongs to a scheduler, which does not end the program.
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
        if writer::is_unsettled() || self.has_accepted() {
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
        // A panic goes on without a wait: if it ends the program, the program's end waits.
        let is_settled = || SettledWrites::of(self.shared.id(), self.before).is_settled();
        if !thread::panicking() && self.has_accepted() && !is_settled() {
            let deadline = self.shared.world.now().saturating_add(nanoseconds(PATIENCE));
            drop(block_on::block_on(self.shared, self.shared.settle_writes(self.before, deadline)));
        }
        if writer::is_unsettled() {
            writer::flush(&self.shared.world, writer::FLUSH_MAX);
        }
    }
}
