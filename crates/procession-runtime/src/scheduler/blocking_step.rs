//! The step that blocks its thread on a future, while the thread polls this future.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use crate::process::slot::{Slot, SlotRef};

thread_local! {
    static CURRENT: RefCell<Option<Rc<BlockingStep>>> = const { RefCell::new(None) };
}

/// A step of a process that blocks its thread on a future, which notes its waits for the process.
///
/// The future is polled with a waker of its own, which the futures of the runtime replace by the
/// waker of the root. So a clone of it that is left belongs to code that is not the runtime's.
pub(crate) struct BlockingStep {
    pub(crate) slot: SlotRef,
    /// The waker for the polls.
    pub(crate) lent: Waker,
    /// The waker of the root.
    pub(crate) root: Waker,
}

impl BlockingStep {
    pub(crate) fn process(&self) -> &Slot {
        &self.slot
    }
}

/// Returns the step that blocks on the future that this thread polls.
fn current() -> Option<Rc<BlockingStep>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Calls `with` with the process of this step, if there is one.
#[cold]
pub(crate) fn with_process(with: impl FnOnce(&Slot)) {
    if let Some(step) = current() {
        with(step.process());
    }
}

/// Returns the step that blocks on the future that this thread polls, if this is the waker for its
/// polls, and not a waker that wraps it.
pub(crate) fn of(waker: &Waker) -> Option<Rc<BlockingStep>> {
    current().filter(|step| step.lent.will_wake(waker))
}

/// Makes a step current until the guard is dropped.
pub(crate) struct PolledStep(Option<Rc<BlockingStep>>);

impl PolledStep {
    pub(crate) fn begin(step: &Rc<BlockingStep>) -> Self {
        Self(CURRENT.with(|current| current.replace(Some(Rc::clone(step)))))
    }
}

impl Drop for PolledStep {
    fn drop(&mut self) {
        let before = self.0.take();
        drop(CURRENT.try_with(|current| current.replace(before)));
    }
}
