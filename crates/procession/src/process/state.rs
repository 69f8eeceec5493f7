//! The state word of a process: where it is, and what happened to it meanwhile.
//!
//! # State protocol
//!
//! ## Problem
//! A wake-up arrives while the process runs. Its worker then finds that the process waits, and puts
//! it away: nobody queues it again. Or two wakers both queue a process that waits, and it runs
//! twice at once.
//!
//! ## States
//! One word. The low bits are the phase; the flags are below, each with its rule.
//!
//! | phase | queue entries | who owns the body |
//! |---|---|---|
//! | `ACTIVE` (ready, or in a step) | exactly one, in a run queue or with the worker that took it | that worker |
//! | `BLOCKED` (waits, but not for messages) | none | nobody |
//! | `IDLE` (waits for messages among others) | none | nobody |
//! | `COMPLETE`, for ever | none | the handle, while `HANDLE` is set |
//!
//! ## Steps: event x phase
//! | event | `ACTIVE` | `BLOCKED`, `IDLE` | `COMPLETE` |
//! |---|---|---|---|
//! | `wake` (not by the process's own step, see `scheduler/current.rs`) | sets `WOKEN` | `ACTIVE`, caller queues it | nothing |
//! | `cancel`, `terminate` | set their flag and `WOKEN` | set it; `ACTIVE`, caller queues it | nothing |
//! | `start` (entry taken) | clears `WOKEN` if it sees that | - | - |
//! | `give_way` (step ended, wants to go on) | nothing, caller queues it | - | - |
//! | `wait` (step ended, waits) | `WOKEN` unset: `BLOCKED` or `IDLE`; set: as `give_way` | - | - |
//! | `complete` | `COMPLETE` | - | - |
//! | `complete_alone` (instead, if the slot was sealed, see `process/refcount.rs`) | `COMPLETE` | - | - |
//! | `watch` (the handle left a waker, see `process/join_waker.rs`) | sets `WAITER` | sets it | answers: complete |
//! | `unwatch` (the handle wants it back) | clears `WAITER` | clears it | answers: complete |
//! | `release_handle` | clears `HANDLE` | clears | clears by a store, answers: complete |
//! | `relate` (an entry was left, see `relations.rs`) | sets `RELATED` | sets it | answers: complete |
//!
//! A `-` cannot happen: only the worker that has the entry causes those events, and debug builds
//! assert it.
//!
//! ## Why it works
//! Every event that changes the word is one read-modify-write, so those are totally ordered; but
//! for some at the ends of a process, which are stores: `renew` and `complete_alone`, when nobody
//! refers to the process, and `release_handle`, when it is complete. All that may meet these is a
//! wake-up of whoever is in the slot (`process/waker.rs`), which finds `COMPLETE`, or an `ACTIVE`
//! process to be told, or fails, or wakes the next process for nothing. A wake ordered before
//! `wait` has set `WOKEN`, which `wait` sees unless a `start` has cleared it; that one acquired
//! what the waker did before its step. A wake ordered after `wait` sees that the process waits, and
//! of several only one makes it `ACTIVE`. `complete` and `release_handle` are ordered too: the
//! first sees `HANDLE` set and leaves the body to the second, which sees `COMPLETE`; or the other
//! way round. Exactly one of them disposes of the body.
//!
//! A message that is sent after `terminate` has returned is never received. The step takes messages
//! out of the mailbox first and looks at the word then (`take_for_step`): taking acquires what the
//! sender knew, and so the flag. A batch that was taken before is older than the terminate, and may
//! be received.
//!
//! From one step to the next the body goes with the entry: through a run queue, which releases what
//! it is given to who takes it; or by way of `wait` and of the `wake` that acquires from it, whose
//! caller puts the entry into a run queue.
//!
//! ## Allowed
//! A process may run once more than needed: `WOKEN` says that something happened, not that it is
//! still news. And `start` may miss one that was just set.
//!
//! ## Rejected
//! A phase of its own for a process in its step, entered by one more read-modify-write and left by
//! another when it gives way: `yield` 27.5 ns instead of 17.8 on one CPU, `ring` 74.5 instead of
//! 66.9, `spawn` 98 instead of 86. Who wants to know asks the workers (`observe/snapshot.rs`).
//!
//! ## Checked by
//! `models::*` below (`terminate_against_receive` and `canary_look_before_take` are about
//! messages), but for wake-ups of whoever is in the slot beside the stores: `loom` lets a
//! read-modify-write read what a store has overwritten, and then takes it for the later of the two.
//! The table is walked through by `tests::every_event_in_every_phase`.

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
/// Asked to end. Set in any phase but `COMPLETE`; never cleared.
const CANCEL: u32 = 1 << 4;
/// To be ended between two steps. Set in any phase but `COMPLETE`; never cleared.
const TERMINATE: u32 = 1 << 5;
/// A handle exists, which takes the result. Set from the start; cleared when the handle goes.
const HANDLE: u32 = 1 << 6;
/// The handle left a waker. Set and cleared only by the handle, while there is one; once
/// `COMPLETE`, it means nothing.
const WAITER: u32 = 1 << 7;
/// Others may have left entries with the process, to be settled at its end. Set in any phase, by
/// who left one; never cleared.
const RELATED: u32 = 1 << 8;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `wait` stores the phase without looking at `WOKEN`.
    pub(crate) const WAIT_WITHOUT_LOOKING: u8 = 1;
    /// `wake` loads the word and stores the new phase.
    pub(crate) const WAKE_WITHOUT_CAS: u8 = 2;
    /// `complete` does not release what the process left.
    pub(crate) const COMPLETE_RELAXED: u8 = 3;
    /// `start` clears `WOKEN` without acquiring what the waker did.
    pub(crate) const START_RELAXED: u8 = 4;
    /// `take_for_step` looks at the word before it takes.
    pub(crate) const LOOK_BEFORE_TAKE: u8 = 5;
}

/// What the caller of a wake-up owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// The process became `ACTIVE`: put it into a run queue.
    Enqueue,
    /// Nothing.
    Nothing,
}

/// What became of a process whose step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wait {
    /// It waits; a wake-up will queue it.
    Parked,
    /// It was woken meanwhile: put it into a run queue.
    Enqueue,
}

/// What a process that waits, waits for, as far as its phase tells. As wide as the pointer that a
/// [`Step`](crate::process::body::Step) may hold instead, so that such a step is a tag and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum WaitFor {
    /// Not for messages.
    Others,
    /// For messages, perhaps among others.
    Messages,
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessState {
    /// In a run queue.
    Ready,
    /// In a step.
    Running,
    /// Waiting, but not for messages.
    Blocked,
    /// Waiting for messages, perhaps among others.
    Idle,
    /// Ended; its handle has not taken the result yet.
    Complete,
}

/// The word at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u32);

impl Seen {
    /// Returns `true` if the process was asked to end, or is to be ended.
    pub(crate) fn is_cancelled(self) -> bool {
        self.0 & (CANCEL | TERMINATE) != 0
    }

    /// Returns `true` if the process was asked to end and may still do so of its own accord. A
    /// process that is terminated may not: its exit would hide the reason.
    pub(crate) fn may_end_itself(self) -> bool {
        self.0 & (CANCEL | TERMINATE) == CANCEL
    }

    pub(crate) fn is_terminated(self) -> bool {
        self.0 & TERMINATE != 0
    }

    pub(crate) fn is_complete(self) -> bool {
        self.0 & PHASE == COMPLETE
    }

    pub(crate) fn has_handle(self) -> bool {
        self.0 & HANDLE != 0
    }

    pub(crate) fn has_waiter(self) -> bool {
        self.0 & WAITER != 0
    }

    pub(crate) fn is_related(self) -> bool {
        self.0 & RELATED != 0
    }

    /// Where the process is. One in its step is called ready, too.
    pub(crate) fn phase(self) -> ProcessState {
        match self.0 & PHASE {
            ACTIVE => ProcessState::Ready,
            BLOCKED => ProcessState::Blocked,
            IDLE => ProcessState::Idle,
            _ => ProcessState::Complete,
        }
    }
}

/// The state word.
#[derive(Debug)]
pub(crate) struct State<const MUTATION: u8 = { mutation::SOUND }> {
    word: AtomicU32,
    /// Whether a worker has started a step and not ended it.
    #[cfg(all(debug_assertions, not(procession_loom)))]
    in_step: AtomicBool,
}

impl<const MUTATION: u8> State<MUTATION> {
    /// A new process with a handle, to be queued by its maker.
    #[cfg(test)]
    fn ready() -> Self {
        let state = Self::vacant();
        state.renew();
        state
    }

    /// Makes the word that of a new process. Only the thread that takes the slot into use may.
    pub(crate) fn renew(&self) {
        // Relaxed: published with the pin that makes the slot reachable.
        self.word.store(ACTIVE | HANDLE, Relaxed);
    }

    /// The word of a slot that holds no process.
    pub(crate) fn vacant() -> Self {
        Self {
            word: AtomicU32::new(COMPLETE),
            #[cfg(all(debug_assertions, not(procession_loom)))]
            in_step: AtomicBool::new(false),
        }
    }

    /// The word now. Acquire pairs with the Release of `complete`, and with that of `raise`: a
    /// process that finds `CANCEL` finds in its mailbox what was sent before the cancel.
    pub(crate) fn see(&self) -> Seen {
        Seen(self.word.load(Acquire))
    }

    /// Whether cancelled, as far as this thread can see.
    pub(crate) fn is_cancelled(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        Seen(self.word.load(Relaxed)).is_cancelled()
    }

    /// Takes messages for the running step. The second value is `true` if the process has been
    /// terminated. Then the step must not receive what was taken: it may have been sent after the
    /// call of `terminate` returned.
    #[inline]
    pub(crate) fn take_for_step<T>(&self, take: impl FnOnce() -> T) -> (T, bool) {
        if MUTATION == mutation::LOOK_BEFORE_TAKE {
            let terminated = self.see().is_terminated();
            return (take(), terminated);
        }
        let taken = take();
        // Relaxed: whoever sent a message after the terminate released it with the push, and `take`
        // acquired it. So the flag is visible here.
        (taken, Seen(self.word.load(Relaxed)).is_terminated())
    }

    #[inline]
    pub(crate) fn wake(&self) -> Wake {
        self.raise(0)
    }

    pub(crate) fn cancel(&self) -> Wake {
        self.raise(CANCEL)
    }

    pub(crate) fn terminate(&self) -> Wake {
        self.raise(TERMINATE)
    }

    #[inline]
    fn raise(&self, flag: u32) -> Wake {
        let mut old = self.word.load(Relaxed);
        // Each failure means that another event was ordered first.
        loop {
            let (new, wake) = match old & PHASE {
                ACTIVE => (old | flag | WOKEN, Wake::Nothing),
                BLOCKED | IDLE => (old & !PHASE | ACTIVE | flag, Wake::Enqueue),
                _ => return Wake::Nothing,
            };
            if MUTATION == mutation::WAKE_WITHOUT_CAS {
                self.word.store(new, Release);
                return wake;
            }
            // Ordering: AcqRel. Release pairs with the Acquire of `start`: the step sees what the
            // waker did, also when the word does not change. Acquire pairs with the Release of
            // `wait`: the entry is queued after the step has ended.
            match self.word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return wake,
                Err(now) => old = now,
            }
        }
    }

    /// The entry was taken from a run queue.
    #[inline]
    pub(crate) fn start(&self) -> Seen {
        self.note_step(true);
        // Ordering: Acquire, both, pairs with the Release of `raise`: the step sees what the wakers
        // did whose `WOKEN` this clears, or who made it `ACTIVE`.
        let (load, clear) = if MUTATION == mutation::START_RELAXED {
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

    /// The step ended, and the process wants to go on: the caller queues it.
    #[inline]
    pub(crate) fn give_way(&self) {
        self.note_step(false);
    }

    /// The step ended, and the process waits.
    #[inline]
    pub(crate) fn wait(&self, wait_for: WaitFor) -> Wait {
        let phase = match wait_for {
            WaitFor::Others => BLOCKED,
            WaitFor::Messages => IDLE,
        };
        self.note_step(false);
        let mut old = self.word.load(Relaxed);
        if MUTATION == mutation::WAIT_WITHOUT_LOOKING {
            self.word.store(old & !(PHASE | WOKEN) | phase, Release);
            return Wait::Parked;
        }
        while old & WOKEN == 0 {
            // Ordering: Release pairs with the Acquire of `raise`, and so of the next `start`.
            match self.word.compare_exchange_weak(old, old & !PHASE | phase, AcqRel, Relaxed) {
                Ok(_) => return Wait::Parked,
                Err(now) => old = now,
            }
        }
        Wait::Enqueue
    }

    /// The process ended, and left its result in the body: tells whether a handle takes it, and
    /// whether one waits.
    pub(crate) fn complete(&self) -> Seen {
        self.note_step(false);
        // COMPLETE - ACTIVE turns one phase into the other; WOKEN is left, since nobody reads it
        // any more. Ordering: Release pairs with the Acquire of `watch` and `release_handle`: the
        // result is visible to the handle. Acquire pairs with their Release: the waker that a
        // handle left is visible here.
        let order = if MUTATION == mutation::COMPLETE_RELAXED { Relaxed } else { AcqRel };
        let old = self.word.fetch_add(COMPLETE - ACTIVE, order);
        debug_assert_eq!(old & PHASE, ACTIVE, "[entry] only an active process ends");
        Seen(old)
    }

    /// The process ended, and nobody but the caller reaches it any more.
    #[inline]
    pub(crate) fn complete_alone(&self) {
        self.note_step(false);
        // Relaxed: nobody looks before the slot is taken into use again, but who wakes whoever is
        // there.
        self.word.store(COMPLETE, Relaxed);
    }

    /// Debug builds assert that one worker at a time is at a step.
    #[inline]
    fn note_step(&self, starts: bool) {
        // Relaxed: the entry orders it.
        #[cfg(all(debug_assertions, not(procession_loom)))]
        assert_ne!(self.in_step.swap(starts, Relaxed), starts, "[entry] one worker has it");
        #[cfg(not(all(debug_assertions, not(procession_loom))))]
        let _ = starts;
    }

    /// The handle has left a waker where `complete` looks for it; says whether that was too late.
    pub(crate) fn watch(&self) -> Seen {
        // Ordering: as in `complete`, the other way round.
        Seen(self.word.fetch_or(WAITER, AcqRel))
    }

    /// The handle wants what it left back; says whether that was too late.
    pub(crate) fn unwatch(&self) -> Seen {
        // Ordering: as in `watch`: who finds it complete sees what the process left.
        Seen(self.word.fetch_and(!WAITER, AcqRel))
    }

    /// Somebody has left an entry where the end of the process looks for it; says whether that was
    /// too late.
    pub(crate) fn relate(&self) -> Seen {
        // Ordering: Release pairs with the Acquire of `complete`, and the other way round: either
        // the end finds the entry, or this finds the end. The entry itself is under a lock.
        Seen(self.word.fetch_or(RELATED, AcqRel))
    }

    /// The handle goes; if the process is complete, the body is its to dispose of.
    pub(crate) fn release_handle(&self) -> Seen {
        let seen = self.see();
        if seen.is_complete() {
            // No read-modify-write: once complete, the word is the handle's, but for `relate`,
            // whose flag means nothing then. Ordering: Release, for who finds the process complete
            // by this store.
            self.word.store(seen.0 & !HANDLE, Release);
            return seen;
        }
        // Ordering: as in `complete`, the other way round.
        Seen(self.word.fetch_and(!HANDLE, AcqRel))
    }
}

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
