//! The schedulers that the user has entered on this thread.
//!
//! An entry counts only in the *turn* in which it was made: until this thread begins to work for
//! another scheduler, until the poll of a block-on future returns, and until the step of a process
//! ends. An entry that is kept beyond its turn, or leaked, therefore never reaches the processes
//! that the thread runs afterwards.

use std::cell::{Cell, RefCell};
use std::mem::{ManuallyDrop, take};
use std::sync::Arc;

use crate::scheduler::shared::Shared;

struct EnteredScheduler {
    number: u64,
    turn: u64,
    /// The step counter of the worker that this thread is, or 0.
    step: u64,
    shared: Arc<Shared>,
}

thread_local! {
    /// The entries of this thread, the latest last. It has no destructor, for the reason given at
    /// `CURRENT`. It holds no memory while it is empty.
    static ENTRIES: RefCell<ManuallyDrop<Vec<EnteredScheduler>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    /// The current turn.
    static TURN: Cell<u64> = const { Cell::new(0) };
    /// The last number that was given to a turn or an entry.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

fn next_number() -> u64 {
    LAST.set(LAST.get() + 1);
    LAST.get()
}

/// Removes the entries that `goes` selects.
fn remove(goes: impl Fn(&EnteredScheduler) -> bool) {
    let removed = ENTRIES.with(|entries| {
        let mut entries = entries.borrow_mut();
        let (gone, kept): (Vec<_>, Vec<_>) = take(&mut **entries).into_iter().partition(goes);
        **entries = kept;
        gone
    });
    // Outside the borrow: if one of these is the last reference to a scheduler, its hooks are
    // dropped, which is user code.
    drop(removed);
}

/// A turn of this thread. The previous turn continues when it is dropped.
#[must_use]
pub(crate) struct EntriesTurn(u64);

impl EntriesTurn {
    #[inline]
    pub(crate) fn begin() -> Self {
        Self(TURN.replace(next_number()))
    }
}

impl Drop for EntriesTurn {
    #[inline]
    fn drop(&mut self) {
        let over = TURN.replace(self.0);
        if has_any() {
            remove(|entry| entry.turn == over);
        }
    }
}

/// Adds an entry of this turn and of this step, and returns its number. Removes the entries of
/// earlier steps of this turn.
pub(crate) fn add(shared: Arc<Shared>, step: u64) -> u64 {
    let turn = TURN.get();
    remove(|entry| entry.turn == turn && entry.step != step);
    let number = next_number();
    ENTRIES
        .with(|entries| entries.borrow_mut().push(EnteredScheduler { number, turn, step, shared }));
    number
}

/// Removes the entry with this number, if it is still there.
pub(crate) fn remove_number(number: u64) {
    remove(|entry| entry.number == number);
}

/// Returns `true` if this thread has entries of any turn.
pub(crate) fn has_any() -> bool {
    ENTRIES.with(|entries| !entries.borrow().is_empty())
}

/// Returns the scheduler of the latest entry that counts in this step.
pub(crate) fn latest(step: u64) -> Option<Arc<Shared>> {
    let turn = TURN.get();
    ENTRIES.with(|entries| {
        let entries = entries.borrow();
        let counts = |entry: &&EnteredScheduler| entry.turn == turn && entry.step == step;
        entries.iter().rev().find(counts).map(|entry| Arc::clone(&entry.shared))
    })
}
