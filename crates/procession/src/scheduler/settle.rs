//! The waits for reports that are not written yet.

use std::sync::Arc;
use std::time::Duration;

use crate::report::writer;
use crate::scheduler::current;
use crate::scheduler::current::Section;
use crate::scheduler::shared::Shared;

impl Shared {
    /// Waits until what was reported is written, for a short time, at the end of a shutdown with
    /// this deadline.
    pub(crate) fn settle_reports(&self, deadline: u64) {
        if !writer::is_unsettled() {
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

/// Waits, when it is dropped, until what was reported is written, for a short time. A program that
/// ends with its `block_on`, or with a panic of it, then says why.
///
/// It does nothing on a thread that belongs to a scheduler, which does not end the program.
pub(crate) struct SettledReports<'a>(pub(crate) &'a Arc<Shared>);

impl Drop for SettledReports<'_> {
    fn drop(&mut self) {
        if writer::is_unsettled() && current::here().is_none() {
            writer::flush(&self.0.world, writer::FLUSH_MAX);
        }
    }
}
