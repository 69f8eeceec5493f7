//! The mark behind which a receive looks for the answer of a new monitor.

use super::{Context, Mark};
use crate::process::body::{Queued, System};
use crate::process::slot::Mailbox;
use crate::relations::signal::{Down, MonitorRef, Signal};

/// A shorter mailbox is searched from its beginning. A mark takes memory, and a look at one message
/// takes some nanoseconds.
const WORTH_A_MARK: u32 = 64;

impl<M: Send + 'static> Context<M> {
    /// Takes the answer as `pick_down` does, but leaves the other entries where they are. Each
    /// entry is charged, as there.
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
                // The process has ended this monitor.
                return None;
            }
            let more = self.take_queued()?;
            self.marked()?.rest.append(more);
        }
    }

    pub(super) fn marked(&mut self) -> Option<&mut Mark<M>> {
        self.aside()?.marked.as_mut()
    }

    /// Notes that the process no longer waits for the answer of this monitor.
    pub(super) fn note_answered(&mut self, monitor: MonitorRef) {
        if let Some(marked) = self.marked() {
            marked.is_answered |= marked.since == monitor;
        }
    }

    /// Returns `true` if the mailbox is unbounded, and long enough for a mark to pay off.
    pub(super) fn is_mailbox_long(&self) -> bool {
        let mailbox = self.slot.mailbox();
        !matches!(mailbox, Mailbox::Bounded(_)) && self.slot.mailbox_length() >= WORTH_A_MARK
    }

    /// Takes the events out of the mailbox, to be received later. The events behind the old mark go
    /// with them, unless that mark is still of use.
    #[cold]
    pub(super) fn gather(&mut self) {
        if let Some(aside) = self.aside()
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

    /// Sets a mark: the answer of this monitor is looked for only behind the gathered events.
    #[cold]
    pub(super) fn set_mark(&mut self, monitor: MonitorRef) {
        if self.taken.len() > 0 {
            self.make_aside().marked.get_or_insert_with(|| Mark::new(monitor));
        }
    }

    /// Removes the mark if all older events were received. Call it before the mailbox is looked
    /// into, if anything was put aside.
    #[cold]
    pub(super) fn pass_mark(&mut self) {
        if self.taken.len() == 0
            && let Some(aside) = self.aside()
            && let Some(marked) = aside.marked.take()
        {
            let is_empty = aside.is_empty();
            self.taken = marked.into_batch();
            if is_empty {
                self.aside = None;
            }
        }
    }
}
