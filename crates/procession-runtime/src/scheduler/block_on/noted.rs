//! What the future that a step blocks on notes for the process of the step.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};

use crate::process::wait_edge::WaitProof;
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::scheduler::blocking_step::{BlockingStep, PolledStep};
use crate::scheduler::current;
use crate::scheduler::root::BlockOnFuture;

/// The root, behind the waker for the polls.
struct LentRoot(Arc<BlockOnFuture>);

impl Wake for LentRoot {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_by_ref();
    }
}

/// The waits of a process while its step blocks on a future (`process/wait_edge.rs`, `Block`). Its
/// drop restores what the step had noted before.
pub(super) struct NotedWaits {
    step: Rc<BlockingStep>,
    lent: Arc<LentRoot>,
    /// The reasons before.
    before: Waiting,
    /// Set once code that is not the runtime's has kept a clone of the waker.
    is_cloned: Cell<bool>,
}

impl NotedWaits {
    /// Returns `None` if the thread runs no process of the scheduler of the root.
    pub(super) fn begin(root: &Arc<BlockOnFuture>) -> Option<Self> {
        let slot = current::current()?;
        let is_near = std::ptr::eq(slot.shared(), &**root.shared());
        if !is_near || slot.state.see().is_complete() || root.process.set(slot.index()).is_err() {
            return None;
        }
        let lent = Arc::new(LentRoot(Arc::clone(root)));
        let before = slot.waiting.get();
        let wakers = (Waker::from(Arc::clone(&lent)), Waker::from(Arc::clone(root)));
        let step = Rc::new(BlockingStep { slot, lent: wakers.0, root: wakers.1 });
        Some(Self { step, lent, before, is_cloned: Cell::new(false) })
    }

    /// Polls the future once.
    pub(super) fn poll(&self, poll: &mut dyn FnMut(&mut TaskContext<'_>) -> bool) -> bool {
        let slot = &self.step.slot;
        let (shared, flags) = (slot.shared(), self.before.flags());
        shared.processes.edges.unblock(slot.index());
        slot.waiting.set(flags);
        let polled = PolledStep::begin(&self.step);
        let is_over = poll(&mut TaskContext::from_waker(&self.step.lent));
        drop(polled);
        // The step and this have one each.
        if Arc::strong_count(&self.lent) > 2 {
            self.is_cloned.set(true);
        }
        if !is_over && !self.is_cloned.get() {
            let (slots, generation) = (shared.table().limit(), slot.pins.generation());
            let is_woken = || self.lent.0.is_ready();
            shared.processes.edges.block(slot.index(), slots, generation, is_woken);
        }
        is_over
    }
}

impl Drop for NotedWaits {
    fn drop(&mut self) {
        let slot = &self.step.slot;
        let shared = slot.shared();
        shared.processes.edges.unblock(slot.index());
        if self.before != Waiting::default() {
            // The notes of the step are overwritten.
            let (slots, nothing) = (shared.table().limit(), WaitTarget::UNKNOWN);
            shared.processes.edges.note(slot.index(), slots, nothing, WaitProof::None);
        }
        slot.waiting.set(self.before);
    }
}
