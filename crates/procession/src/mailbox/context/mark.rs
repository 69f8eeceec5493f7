//! The mark behind which the answer of a new monitor is looked for.

use super::Context;
use super::aside::Mark;
use crate::process::body::{Event as Queued, System};
use crate::process::slot::Mailbox;
use crate::relations::signal::{Down, MonitorRef, Signal};

/// A mailbox shorter than this is looked through from its beginning. A mark takes memory, and a
/// look at one message some nanoseconds.
const WORTH_A_MARK: u32 = 64;

impl<M: Send + 'static> Context<M> {
    /// As `pick_down`, and leaves what it looks at where it is. Each entry is charged, as there.
    pub(super) fn pick_down_behind_mark(&mut self, monitor: MonitorRef) -> Option<Down> {
        loop {
            let marked = self.marked()?;
            if marked.looked_for != monitor {
                let mut all = std::mem::take(&mut marked.looked);
                all.append(std::mem::take(&mut marked.rest));
                (marked.looked_for, marked.rest) = (monitor, all);
            }
            while marked.rest.len() > 0 {
                if crate::scheduler::budget::is_spent() {
                    return None;
                }
                crate::scheduler::budget::spend();
                let is_it = |system: &mut System| matches!(system, System::Signal(Signal::Down(down)) if down.monitor == monitor);
                if !marked.rest.peek_system().is_some_and(is_it) {
                    marked.rest.move_oldest_to(&mut marked.looked);
                    continue;
                }
                let found = marked.rest.next();
                self.note_answered(monitor);
                if let Some(Queued::System(entry)) = found
                    && let Some(Signal::Down(down)) = self.accept(entry)
                {
                    return Some(down);
                }
                // The process has given this monitor up.
                return None;
            }
            let more = self.take_queued()?;
            self.marked()?.rest.append(more);
        }
    }

    pub(super) fn marked(&mut self) -> Option<&mut Mark<M>> {
        self.aside.as_mut()?.marked.as_mut()
    }

    /// The process does not wait for the answer of this monitor any more.
    pub(super) fn note_answered(&mut self, monitor: MonitorRef) {
        if let Some(marked) = self.marked() {
            marked.is_answered |= marked.since == monitor;
        }
    }

    /// Returns `true` if the mailbox is unbounded, and has so much in it that a mark is worth
    /// while.
    pub(super) fn is_mailbox_long(&self) -> bool {
        let mailbox = self.slot.mailbox();
        matches!(mailbox, Mailbox::Unbounded(_)) && self.slot.mailbox_length() >= WORTH_A_MARK
    }

    /// Takes what is in the mailbox, to be received later; with it goes what a mark stands before,
    /// unless that is still of use.
    #[cold]
    pub(super) fn gather(&mut self) {
        if let Some(aside) = &mut self.aside
            && let Some(marked) = aside.marked.take_if(|marked| marked.is_answered)
        {
            self.taken.append(marked.into_batch());
        }
        if self.marked().is_none()
            && let Some(more) = self.take_queued()
        {
            self.taken.append(more);
        }
    }

    /// Has the answer of this monitor looked for behind what was gathered only.
    #[cold]
    pub(super) fn set_mark(&mut self, monitor: MonitorRef) {
        if self.taken.len() > 0 {
            self.aside.get_or_insert_default().marked.get_or_insert_with(|| Mark::new(monitor));
        }
    }

    /// What is older than the mark has been taken: there is none any more. To be called before the
    /// mailbox is looked into, if anything has been put aside.
    #[cold]
    pub(super) fn pass_mark(&mut self) {
        if self.taken.len() == 0
            && let Some(aside) = &mut self.aside
            && let Some(marked) = aside.marked.take()
        {
            self.taken = marked.into_batch();
            if aside.is_empty() {
                self.aside = None;
            }
        }
    }
}
