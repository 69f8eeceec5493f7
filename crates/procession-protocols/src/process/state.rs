//! The state word of a process: its phase, and the events since its step began.
//!
//! # State protocol
//!
//! ## Problem
//! A wake-up arrives while the process runs. Its worker then finds that the process waits, and puts
//! it away: nothing queues it again. Or two wakers both queue a waiting process, and it runs twice
//! at the same time.
//!
//! ## States
//! One word. The low bits are the phase; the flags are below, each with its rule.
//!
//! | phase | queue entries | owner of the body |
//! |---|---|---|
//! | `ACTIVE` (ready, in a step, or suspended) | exactly one | the worker that has the entry |
//! | `BLOCKED` (waits, but not for messages) | none | none |
//! | `IDLE` (waits for messages among others) | none | none |
//! | `COMPLETE`, the final phase | none | the handle, while `HANDLE` is set |
//!
//! The entry of an `ACTIVE` process is in a run queue, with the worker that took it, with the
//! thread that is about to queue it, or with the requests.
//!
//! ## Steps: event x phase
//! | event | `ACTIVE` | `BLOCKED`, `IDLE` | `COMPLETE` |
//! |---|---|---|---|
//! | `wake` | sets `WOKEN` | `ACTIVE`, queued | nothing |
//! | `cancel`, `terminate` | set their flag and `WOKEN` | set it; `ACTIVE`, queued | nothing |
//! | `cancel_by_drop` | sets its flags and `WOKEN` | sets them; `ACTIVE`, queued | nothing |
//! | `start` | clears `WOKEN` if it sees that | - | - |
//! | `yield_step` | nothing, queued | - | - |
//! | `wait` | `WOKEN` unset: `BLOCKED` or `IDLE`; set: as `yield_step` | - | - |
//! | `complete` | `COMPLETE` | - | - |
//! | `complete_alone` | `COMPLETE` | - | - |
//! | `watch` | sets `WAITER` | sets it | returns: complete |
//! | `unwatch` | clears `WAITER` | clears it | returns: complete |
//! | `release_handle` | clears `HANDLE` | clears it | clears it by a store, returns: complete |
//! | `relate` | sets `RELATED` | sets it | returns: complete |
//! | `ask` | sets `ASKED` and `WOKEN` | sets `ASKED`; `ACTIVE`, queued | returns: complete |
//! | `attend` | clears `ASKED` | - | - |
//! | `ask_again` | sets `ASKED` | - | - |
//! | `hold` | sets `ASKED` | - | - |
//!
//! *Queued* means that the caller of the event queues the process. A `-` cannot happen: only the
//! worker that has the entry causes such events, and debug builds assert it.
//!
//! - `wake` is not called by the process's own step, see `scheduler/current.rs`.
//! - `cancel_by_drop` has the flags `CANCEL` and `TERMINATE`. It does nothing if `TERMINATE` is
//!   set.
//! - `start`: the entry was taken. `yield_step` and `wait`: the step has ended, and the process is
//!   ready or waits.
//! - `complete` does nothing if `RELATED` is set and the names are not released. `complete_alone`
//!   takes its place if the slot was sealed, see `process/refcount.rs`.
//! - `watch`: the handle left a waker, see `process/join_waker.rs`. `unwatch`: the handle takes the
//!   waker back.
//! - `relate`: an entry was left, see `relations/on_exit.rs`. `ask`: a request was left, see
//!   `process/request_table.rs`.
//! - `attend`: the worker takes the requests. `ask_again`: the worker leaves a request for the next
//!   step, or a thread that is about to queue the entry begins to measure the wait for that step.
//!   `hold`: the worker hands the entry to the requests.
//!
//! ## Why it works
//! Every event that changes the word is one read-modify-write, so these events are totally ordered.
//! Some events at the ends of a process are stores: `renew` and `complete_alone`, when nothing
//! refers to the process, and `release_handle`, when the process is complete. Only a wake-up by an
//! unpinned waker (`process/waker.rs`) can meet such a store. It finds `COMPLETE`, or an `ACTIVE`
//! process, or fails its compare-and-swap, or wakes the next process for nothing.
//!
//! A wake ordered before `wait` has set `WOKEN`. `wait` sees it unless a `start` has cleared it,
//! and that `start` acquired the waker's writes before its step. A wake ordered after `wait` sees
//! that the process waits, and only one of several makes it `ACTIVE`.
//!
//! `complete` and `release_handle` are also ordered. If `complete` is first, it sees `HANDLE` set
//! and leaves the body to `release_handle`, which sees `COMPLETE`. If `release_handle` is first, it
//! leaves the body to `complete`, which sees `HANDLE` clear. Exactly one of the two disposes of the
//! body.
//!
//! A message that is sent after `terminate` has returned is never received. The step takes messages
//! out of the mailbox first, and reads the word then (`take_for_step`). Taking acquires the
//! sender's view, and so the flag. A batch that was taken before is older than the terminate, and
//! may be received.
//!
//! A request is left before `ask`, and taken after `attend` has cleared `ASKED`. If `ask` is
//! ordered before `attend`, the worker takes the request. Otherwise the flag stays for the next
//! step.
//!
//! A suspended process is `ACTIVE`, and its entry is with its requests, under their lock. A cancel
//! or a terminate looks for the entry there if it finds `ASKED`. If it is ordered before `hold`,
//! the worker finds its flag and keeps the entry. Otherwise it finds `ASKED`, and then the entry.
//!
//! From one step to the next, the body goes with the entry. A run queue releases an entry to the
//! worker that takes it. Otherwise a `wake` acquires from `wait`, and its caller puts the entry
//! into a run queue.
//!
//! ## Allowed
//! A process may run once more than needed: `WOKEN` says that something happened, but a step may
//! have handled it already. `start` may miss a `WOKEN` that was just set.
//!
//! ## Rejected
//! A separate phase for a process in its step, entered by one more read-modify-write and left by
//! another one at a yield: `yield` 27.5 ns instead of 17.8 on one CPU, `ring` 74.5 instead of 66.9,
//! `spawn` 98 instead of 86. A snapshot asks the workers instead (`observe/snapshot.rs`).
//!
//! ## Checked by
//! `models::*` below (`terminate_against_receive` and `canary_look_before_take` are about
//! messages). The models leave out wake-ups by unpinned wakers at the same time as the stores:
//! `loom` lets a read-modify-write read a value that a store has overwritten, and then takes it for
//! the later of the two. `tests::every_event_in_every_phase` walks through the table.

#[cfg(all(debug_assertions, not(procession_loom)))]
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const PHASE: u32 = 0b11;
const ACTIVE: u32 = 0;
const BLOCKED: u32 = 1;
const IDLE: u32 = 2;
const COMPLETE: u32 = 3;

/// Woken while `ACTIVE`. Set only in that phase; cleared by the next `start`.
const WOKEN: u32 = 1 << 3;
/// Asked to end. Set in any phase but `COMPLETE`; never cleared. In a process that a cancel drops,
/// set only together with `TERMINATE`, by the first of several reasons to end.
const CANCEL: u32 = 1 << 4;
/// To be terminated between two steps. Set in any phase but `COMPLETE`; never cleared.
const TERMINATE: u32 = 1 << 5;
/// A handle exists, which takes the result. Set at the start; cleared when the handle goes.
const HANDLE: u32 = 1 << 6;
/// The handle left a waker. Set and cleared only by the handle, while there is one. Without meaning
/// once the process is `COMPLETE`.
const WAITER: u32 = 1 << 7;
/// Others may have left entries with the process, to be settled at its end. Set in any phase, by
/// the thread that left an entry; never cleared.
const RELATED: u32 = 1 << 8;
/// Requests were left, or the process is suspended, or its wait for this step is measured. Set in
/// any phase but `COMPLETE`; cleared by the worker that takes the requests.
const ASKED: u32 = 1 << 9;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("state", SOUND);
    /// `wait` stores the phase without checking `WOKEN`.
    pub const WAIT_WITHOUT_LOOKING: u8 = 1;
    /// `wake` loads the word and stores the new phase.
    pub const WAKE_WITHOUT_CAS: u8 = 2;
    /// `complete` does not release the writes of the process.
    pub const COMPLETE_RELAXED: u8 = 3;
    /// `start` clears `WOKEN` without acquiring the waker's writes.
    pub const START_RELAXED: u8 = 4;
    /// `take_for_step` reads the word before it takes.
    pub const LOOK_BEFORE_TAKE: u8 = 5;
    /// `attend` clears `ASKED` after it has taken the requests.
    pub const TAKE_BEFORE_CLEAR: u8 = 6;
    /// `hold` ignores that the process is to end.
    pub const HOLD_WITHOUT_LOOKING: u8 = 7;
}

/// The duty of the caller of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Duty {
    /// The process is `ACTIVE` and has no entry: put it into a run queue.
    Enqueue,
    /// Nothing.
    Nothing,
}

/// The phase of a process that waits. It is as wide as the pointer that a
/// `Step` of a body may hold instead, so that such a step is a tag and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum WaitPhase {
    /// Waits, but not for messages.
    Blocked,
    /// Waits for messages, perhaps among others.
    Idle,
}

/// The phase of a process, as its word has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessPhase {
    /// In a run queue or in a step.
    Active,
    /// Waiting, but not for messages.
    Blocked,
    /// Waiting for messages, perhaps among others.
    Idle,
    /// Ended.
    Complete,
}

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

impl Seen {
    /// Returns `true` if the process is cancelled or terminated.
    #[inline]
    pub fn is_cancelled(self) -> bool {
        self.0 & (CANCEL | TERMINATE) != 0
    }

    /// Returns `true` if the process is cancelled and may end itself. A terminated process may not,
    /// because its own exit would hide the reason.
    #[inline]
    pub fn may_end_itself(self) -> bool {
        self.0 & (CANCEL | TERMINATE) == CANCEL
    }

    /// Returns `true` if the process is asked to end or, if a cancel drops it, was dropped by one.
    #[inline]
    pub fn has_cancel(self) -> bool {
        self.0 & CANCEL != 0
    }

    /// Returns `true` if the process is to be terminated between two steps.
    #[inline]
    pub fn is_terminated(self) -> bool {
        self.0 & TERMINATE != 0
    }

    /// Returns `true` if a step is more than a call of the body: the process is terminated, or
    /// requests were left.
    #[inline]
    pub fn is_special(self) -> bool {
        self.0 & (TERMINATE | ASKED) != 0
    }

    /// Returns `true` if requests were left, or the process is suspended.
    #[inline]
    pub fn is_asked(self) -> bool {
        self.0 & ASKED != 0
    }

    /// Returns `true` if nothing is left to signal at the end: no handle, relation or request.
    #[inline]
    pub fn leaves_nothing(self) -> bool {
        self.0 & (HANDLE | RELATED | ASKED) == 0
    }

    /// Returns `true` if the process has ended.
    #[inline]
    pub fn is_complete(self) -> bool {
        self.0 & PHASE == COMPLETE
    }

    /// Returns `true` if a handle exists, which takes the result.
    #[inline]
    pub fn has_handle(self) -> bool {
        self.0 & HANDLE != 0
    }

    /// Returns `true` if the handle has left a waker.
    #[inline]
    pub fn has_waiter(self) -> bool {
        self.0 & WAITER != 0
    }

    /// Returns `true` if others may have left entries with the process.
    #[inline]
    pub fn is_related(self) -> bool {
        self.0 & RELATED != 0
    }

    /// Returns the phase.
    #[inline]
    pub fn phase(self) -> ProcessPhase {
        match self.0 & PHASE {
            ACTIVE => ProcessPhase::Active,
            BLOCKED => ProcessPhase::Blocked,
            IDLE => ProcessPhase::Idle,
            _ => ProcessPhase::Complete,
        }
    }
}

/// The state word.
#[derive(Debug)]
pub struct State<const MUTATION: u8 = { mutation::BUILT }> {
    word: AtomicU32,
    /// Set while a worker is in a step of the process.
    #[cfg(all(debug_assertions, not(procession_loom)))]
    in_step: AtomicBool,
}

impl<const MUTATION: u8> State<MUTATION> {
    /// Creates a process with a handle, to be queued by the caller.
    #[cfg(test)]
    fn ready() -> Self {
        let state = Self::vacant();
        state.renew();
        state
    }

    /// Sets the word to the word of a new process. Only the thread that occupies the slot may call
    /// this.
    pub fn renew(&self) {
        // Relaxed: published with the pin that makes the slot reachable.
        self.word.store(ACTIVE | HANDLE, Relaxed);
    }

    /// Creates the word of a slot without a process.
    pub fn vacant() -> Self {
        Self {
            word: AtomicU32::new(COMPLETE),
            #[cfg(all(debug_assertions, not(procession_loom)))]
            in_step: AtomicBool::new(false),
        }
    }

    /// Returns the current word. Acquire pairs with the Release of `complete` and of `raise`: a
    /// process that finds `CANCEL` also finds the messages in its mailbox that were sent before the
    /// cancel.
    pub fn see(&self) -> Seen {
        Seen(self.word.load(Acquire))
    }

    /// Returns `true` if the process is cancelled or terminated, as far as this thread can see.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: no read depends on it.
        Seen(self.word.load(Relaxed)).is_cancelled()
    }

    /// Takes messages for the running step. The second value is `true` if the process has been
    /// terminated. The step must not receive the messages then, because they may have been sent
    /// after the call of `terminate` returned.
    #[inline]
    pub fn take_for_step<T>(&self, take: impl FnOnce() -> T) -> (T, bool) {
        if mutation::is(MUTATION, mutation::LOOK_BEFORE_TAKE) {
            let terminated = self.see().is_terminated();
            return (take(), terminated);
        }
        let taken = take();
        // Relaxed: a sender that sent a message after the terminate released the flag with the
        // push, and `take` acquired it. So the flag is visible here.
        (taken, Seen(self.word.load(Relaxed)).is_terminated())
    }

    /// Wakes the process.
    #[inline]
    pub fn wake(&self) -> Duty {
        self.raise(0)
    }

    /// Asks the process to end.
    pub fn cancel(&self) -> Duty {
        self.raise(CANCEL)
    }

    /// Has the process terminated between two steps.
    pub fn terminate(&self) -> Duty {
        self.raise(TERMINATE)
    }

    /// Cancels a process that a cancel drops.
    pub fn cancel_by_drop(&self) -> Duty {
        self.raise(CANCEL | TERMINATE)
    }

    #[inline]
    fn raise(&self, flag: u32) -> Duty {
        let mut old = self.word.load(Relaxed);
        // Each failure means that another event was ordered first.
        loop {
            if flag == CANCEL | TERMINATE && old & TERMINATE != 0 {
                // The first of the two decides with which exit the process ends.
                return Duty::Nothing;
            }
            let (new, wake) = match old & PHASE {
                ACTIVE => (old | flag | WOKEN, Duty::Nothing),
                BLOCKED | IDLE => (old & !PHASE | ACTIVE | flag, Duty::Enqueue),
                _ => return Duty::Nothing,
            };
            if mutation::is(MUTATION, mutation::WAKE_WITHOUT_CAS) {
                self.word.store(new, Release);
                return wake;
            }
            // Ordering: AcqRel. Release pairs with the Acquire of `start`: the step sees the
            // waker's writes, even if the word does not change. Acquire pairs with the Release of
            // `wait`: the entry is queued after the step has ended.
            match self.word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return wake,
                Err(now) => old = now,
            }
        }
    }

    /// Begins a step, after the entry was taken from a run queue.
    #[inline]
    pub fn start(&self) -> Seen {
        self.note_step(true);
        // Ordering: Acquire, both, pairs with the Release of `raise`: the step sees the writes of
        // the wakers that set the `WOKEN` cleared here, or that made the process `ACTIVE`.
        let (load, clear) = if mutation::is(MUTATION, mutation::START_RELAXED) {
            (Relaxed, Relaxed)
        } else {
            (Acquire, Acquire)
        };
        let mut seen = self.word.load(load);
        if seen & WOKEN != 0 {
            seen = self.word.fetch_and(!WOKEN, clear);
        }
        debug_assert_eq!(seen & PHASE, ACTIVE, "[entry] only an active process has an entry");
        Seen(seen)
    }

    /// Ends a step of a process that is ready again. The caller queues it.
    #[inline]
    pub fn yield_step(&self) {
        self.note_step(false);
    }

    /// Ends a step of a process that waits. If it was woken during the step, the caller queues it.
    #[inline]
    pub fn wait(&self, phase: WaitPhase) -> Duty {
        let phase = match phase {
            WaitPhase::Blocked => BLOCKED,
            WaitPhase::Idle => IDLE,
        };
        self.note_step(false);
        let mut old = self.word.load(Relaxed);
        if mutation::is(MUTATION, mutation::WAIT_WITHOUT_LOOKING) {
            self.word.store(old & !(PHASE | WOKEN) | phase, Release);
            return Duty::Nothing;
        }
        while old & WOKEN == 0 {
            // Ordering: Release pairs with the Acquire of `raise`, and so of the next `start`.
            match self.word.compare_exchange_weak(old, old & !PHASE | phase, AcqRel, Relaxed) {
                Ok(_) => return Duty::Nothing,
                Err(now) => old = now,
            }
        }
        Duty::Enqueue
    }

    /// Ends a process that has left its result in the body. Returns whether a handle takes the
    /// result, and whether it left a waker. Returns `None`, and does nothing, if the process has
    /// relations and its names were not `released`, because a name must be free before anybody can
    /// see the end.
    pub fn complete(&self, released: bool) -> Option<Seen> {
        // COMPLETE - ACTIVE turns one phase into the other. WOKEN is left, because nothing reads it
        // any more. Ordering: Release pairs with the Acquire of `watch` and `release_handle`: the
        // handle sees the result. Acquire pairs with their Release: the handle's waker is visible
        // here.
        let order =
            if mutation::is(MUTATION, mutation::COMPLETE_RELAXED) { Relaxed } else { AcqRel };
        let mut old = self.word.load(Relaxed);
        loop {
            if old & RELATED != 0 && !released {
                return None;
            }
            debug_assert_eq!(old & PHASE, ACTIVE, "[entry] only an active process ends");
            match self.word.compare_exchange_weak(old, old + (COMPLETE - ACTIVE), order, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        self.note_step(false);
        Some(Seen(old))
    }

    /// Ends a process that only the caller reaches.
    #[inline]
    pub fn complete_alone(&self) {
        self.note_step(false);
        // Relaxed: until the slot is occupied again, only unpinned wakers read the word.
        self.word.store(COMPLETE, Relaxed);
    }

    /// Asserts in debug builds that one worker at a time is in a step.
    #[inline]
    fn note_step(&self, starts: bool) {
        // Relaxed: the entry orders it.
        #[cfg(all(debug_assertions, not(procession_loom)))]
        assert_ne!(self.in_step.swap(starts, Relaxed), starts, "[entry] one worker has it");
        #[cfg(not(all(debug_assertions, not(procession_loom))))]
        let _ = starts;
    }

    /// Marks a waker that the handle has left for `complete`. The result shows whether the process
    /// was already complete.
    pub fn watch(&self) -> Seen {
        // Ordering: as in `complete`, in the other direction.
        Seen(self.word.fetch_or(WAITER, AcqRel))
    }

    /// Clears the mark of a waker that the handle takes back. The result shows whether the process
    /// was already complete.
    pub fn unwatch(&self) -> Seen {
        // Ordering: as in `watch`: a handle that finds the process complete sees its writes.
        Seen(self.word.fetch_and(!WAITER, AcqRel))
    }

    /// Marks an entry that was left for the end of the process. The result shows whether the
    /// process was already complete.
    pub fn relate(&self) -> Seen {
        // Ordering: Release pairs with the Acquire of `complete`, and in the other direction:
        // either the end finds the entry, or this finds the end. The entry itself is under a lock.
        Seen(self.word.fetch_or(RELATED, AcqRel))
    }

    /// Marks a request that was left, and wakes the process. Returns `None` if the process is
    /// already complete.
    pub fn ask(&self) -> Option<Duty> {
        let duty = self.raise(ASKED);
        // Without the flag the process is complete, or the worker has just taken the request.
        // Ordering: Acquire pairs with the Release of `complete`.
        (!self.see().is_complete()).then_some(duty)
    }

    /// Marks a request that was left in a step of the process for its next step, or something else
    /// that its next step is to find. Wakes nothing. Only the thread that has the entry calls this.
    pub fn ask_again(&self) {
        // Relaxed: the worker of the next step takes the entry from this thread, and what it finds
        // is under a lock.
        self.word.fetch_or(ASKED, Relaxed);
    }

    /// Takes the requests that were left. Only the worker that has the entry calls this.
    pub fn attend<T>(&self, take: impl FnOnce() -> T) -> T {
        // Ordering: Acquire pairs with the Release of `ask`. The requests are under a lock, so this
        // only keeps the clearing before the taking.
        let clear = || self.word.fetch_and(!ASKED, AcqRel);
        if mutation::is(MUTATION, mutation::TAKE_BEFORE_CLEAR) {
            let taken = take();
            clear();
            return taken;
        }
        clear();
        take()
    }

    /// Marks that the requests have the entry of the process, under their lock. Returns `false` if
    /// the process is to end, and must run.
    pub fn hold(&self) -> bool {
        // Ordering: AcqRel, as in `raise`: the cancel that finds the flag takes the lock after this
        // worker has released it.
        let seen = Seen(self.word.fetch_or(ASKED, AcqRel));
        mutation::is(MUTATION, mutation::HOLD_WITHOUT_LOOKING) || !seen.is_cancelled()
    }

    /// Releases the handle. If the process is complete, the caller disposes of the body.
    pub fn release_handle(&self) -> Seen {
        let seen = self.see();
        if seen.is_complete() {
            // No read-modify-write: once the process is complete, only the handle changes the word,
            // except for `relate`, and its flag has no meaning then. Ordering: Release, for threads
            // that find the process complete by this store.
            self.word.store(seen.0 & !HANDLE, Release);
            return seen;
        }
        // Ordering: as in `complete`, in the other direction.
        Seen(self.word.fetch_and(!HANDLE, AcqRel))
    }
}

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
