//! Stacks that a step notes where it leaves a waker.
//!
//! A future that waits has cloned the waker of its process, inside its own `poll`. If a step is to
//! note its stacks, its waker does so when it is cloned (`process/waker.rs`). This finds each place
//! where the process waits, whatever the futures are.

use std::cell::RefCell;

/// The maximum number of stacks that one step notes.
const STACKS_MAX: usize = 32;
/// The maximum number of frames of a stack.
pub(crate) const FRAMES_MAX: usize = 256;

/// The stacks that one step has noted: the return addresses of each, the innermost first.
pub(crate) type StackNotes = Vec<Vec<usize>>;

thread_local! {
    static NOTES: RefCell<Option<StackNotes>> = const { RefCell::new(None) };
}

/// Notes the stacks of a step until it is ended.
#[must_use]
pub(crate) struct Noting(());

impl Noting {
    pub(crate) fn begin() -> Self {
        let _ = NOTES.try_with(|notes| notes.replace(Some(Vec::new())));
        Self(())
    }

    /// Returns the stacks.
    pub(crate) fn end(self) -> StackNotes {
        NOTES.try_with(|notes| notes.take()).ok().flatten().unwrap_or_default()
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        let _ = NOTES.try_with(|notes| notes.take());
    }
}

/// Notes the stack of the calling thread, if the running step notes any.
#[cold]
pub(crate) fn note() {
    let has_room = |notes: &RefCell<Option<StackNotes>>| {
        notes.borrow().as_ref().is_some_and(|notes| notes.len() < STACKS_MAX)
    };
    if NOTES.try_with(has_room) != Ok(true) {
        return;
    }
    let stack = addresses(FRAMES_MAX);
    let _ = NOTES.try_with(|notes| {
        if let Some(notes) = notes.borrow_mut().as_mut() {
            notes.push(stack);
        }
    });
}

/// Returns at most `max` return addresses of the calling thread's stack, the innermost first.
pub(crate) fn addresses(max: usize) -> Vec<usize> {
    let mut stack = Vec::new();
    backtrace::trace(|frame| {
        stack.push(frame.ip().addr());
        stack.len() < max
    });
    stack
}
