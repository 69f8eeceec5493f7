//! What coroutines need from their scheduler: stacks. And the coroutines that could not be unwound.

use std::panic::Location;

use procession_coroutine::{Stack, StackError, Stacks};
use procession_protocols::sync::supply_queue::SupplyQueue;
use procession_protocols::sync::upkeep::Upkeep;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;

use crate::Pid;

/// What the coroutines of a scheduler share.
pub(crate) struct Supply {
    /// Where coroutines get their stacks, if they are enabled.
    pub(crate) stacks: Option<Stacks>,
    pub(crate) stacks_limit: usize,
    /// What a coroutine's stack holds at least, unless it says otherwise.
    pub(crate) stack_bytes: usize,
    /// The coroutines for which there was no stack, each with the bytes that it needs.
    pub(crate) waiters: SupplyQueue<usize, Result<Stack, StackError>>,
    /// The number of coroutines that have a stack and are not counted for a seat: they have begun
    /// and stay nowhere, or were handed a stack and have not begun.
    pub(crate) migrating: AtomicU32,
    /// The timer that lets free stacks expire.
    pub(crate) expiry: Upkeep,
    /// Coroutines that could not be unwound.
    stuck: Mutex<Vec<StuckCoroutine>>,
}

impl Supply {
    pub(crate) fn new(stacks: Option<Stacks>, stacks_limit: usize, stack_bytes: usize) -> Self {
        Self {
            stacks,
            stacks_limit,
            stack_bytes,
            waiters: SupplyQueue::new(),
            migrating: AtomicU32::new(0),
            expiry: Upkeep::new(),
            stuck: Mutex::default(),
        }
    }

    /// Returns the slab of the stacks.
    pub(crate) fn slab(&self) -> &Stacks {
        self.stacks.as_ref().expect("coroutines are refused unless they are enabled")
    }

    pub(crate) fn note_stuck(&self, coroutine: StuckCoroutine) {
        self.stuck.lock().push(coroutine);
    }

    pub(crate) fn stuck(&self) -> Vec<StuckCoroutine> {
        self.stuck.lock().clone()
    }
}

/// A coroutine with a leaked stack, which could not be unwound. Its process has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckCoroutine {
    /// The PID that it had.
    pub pid: Pid,
    /// Its label, if it had one.
    pub label: Option<Box<str>>,
    /// The place where it was spawned.
    pub location: &'static Location<'static>,
}
