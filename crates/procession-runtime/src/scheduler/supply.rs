//! What coroutines need from their scheduler: stacks. And the coroutines that could not be unwound.

use std::mem;
use std::panic::Location;
use std::task::Waker;

use procession_coroutine::Stacks;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32};

use crate::Pid;
use crate::process::unwind::guarded;

/// What the coroutines of a scheduler share.
pub(crate) struct Supply {
    /// Where coroutines get their stacks, if they are enabled.
    pub(crate) stacks: Option<Stacks>,
    pub(crate) stacks_limit: usize,
    /// What a coroutine's stack holds at least, unless it says otherwise.
    pub(crate) stack_bytes: usize,
    /// Coroutines for which there was no stack, and whether there are any.
    stack_waiters: Mutex<Vec<Waker>>,
    has_stack_waiters: AtomicBool,
    /// Coroutines that have begun, and stay nowhere.
    pub(crate) migrating: AtomicU32,
    /// Coroutines that could not be unwound.
    stuck: Mutex<Vec<StuckCoroutine>>,
}

impl Supply {
    pub(crate) fn new(stacks: Option<Stacks>, stacks_limit: usize, stack_bytes: usize) -> Self {
        Self {
            stacks,
            stacks_limit,
            stack_bytes,
            stack_waiters: Mutex::new(Vec::new()),
            has_stack_waiters: AtomicBool::new(false),
            migrating: AtomicU32::new(0),
            stuck: Mutex::default(),
        }
    }

    /// A coroutine found no stack left: it is woken when there may be one. The caller tries once
    /// more.
    pub(crate) fn wait_for_stack(&self, waker: Waker) {
        self.stack_waiters.lock().push(waker);
        self.has_stack_waiters.store(true, SeqCst);
    }

    /// Whether a coroutine waits for a stack that this thread is about to give back.
    pub(crate) fn has_stack_waiters(&self) -> bool {
        // Ordering: SeqCst, as in `wait_for_stack`. A coroutine that is missed here, because it has
        // just begun to wait, is found by `note_stack_room`.
        self.has_stack_waiters.load(SeqCst)
    }

    /// After a stack came back. Stacks come and go under a lock. Either the second try of a
    /// coroutine that waits takes that lock later, and finds the stack; or it took the lock before,
    /// and is seen here.
    pub(crate) fn note_stack_room(&self) {
        // Relaxed: that lock orders it.
        if self.has_stack_waiters.load(Relaxed) {
            self.wake_stack_waiters();
        }
    }

    /// A stack came back, or is about to.
    #[cold]
    pub(crate) fn wake_stack_waiters(&self) {
        self.has_stack_waiters.store(false, SeqCst);
        for waiter in self.take_stack_waiters() {
            drop(guarded(|| waiter.wake()));
        }
    }

    pub(crate) fn note_stuck(&self, coroutine: StuckCoroutine) {
        self.stuck.lock().push(coroutine);
    }

    pub(crate) fn stuck(&self) -> Vec<StuckCoroutine> {
        self.stuck.lock().clone()
    }

    pub(crate) fn take_stack_waiters(&self) -> Vec<Waker> {
        mem::take(&mut *self.stack_waiters.lock())
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
