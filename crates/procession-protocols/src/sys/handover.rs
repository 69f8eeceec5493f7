//! The handover of a buffer between a thread that asks for a sample and the signal handler that
//! takes it.
//!
//! # Handover protocol
//!
//! ## States
//! One word: `IDLE`; the number of the thread that is asked; `BUSY` while its handler fills the
//! buffer; `FULL`. The handler owns the buffer while the word is `BUSY`, the asking thread while it
//! is `FULL` and it has not let go. One thread asks at a time; the caller sees to that.
//!
//! ## Steps
//! - `Ask`: from `IDLE` or `FULL` to the number of the thread. Then the signal is sent.
//! - `Begin`, in the handler: from the number of its thread to `BUSY`. A handler that finds
//!   anything else does nothing: the signal is not from `Ask`, or was late.
//! - `Finish`: from `BUSY` to `FULL`.
//! - `Recall`, if the handler does not answer: from the number of the thread to `IDLE`. If the
//!   handler has begun, the thread lets go of the buffer, which cannot be asked for until the
//!   handler has finished.
//!
//! ## Why it works
//! Each change but `Finish` is a compare-and-swap, and only the one handler that has begun
//! finishes.
//!
//! ## Checked by
//! `models::*`.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const IDLE: u64 = 0;
const BUSY: u64 = 1;
const FULL: u64 = 2;
/// Added to the number of a thread.
const ASKED: u64 = 4;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `recall` stores `IDLE` without a look.
    pub const RECALL_BLINDLY: u8 = 1;
    /// `finish` does not release the buffer.
    pub const FINISH_RELAXED: u8 = 2;
}

/// The word.
#[derive(Debug)]
pub struct Handover<const MUTATION: u8 = { mutation::SOUND }>(AtomicU64);

impl<const MUTATION: u8> Handover<MUTATION> {
    /// Creates the word of a buffer that nobody uses.
    #[cfg(not(procession_loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Creates the word of a buffer that nobody uses.
    #[cfg(procession_loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Asks a thread. Returns `false` if an earlier handler still has the buffer.
    pub fn ask(&self, thread: u32) -> bool {
        let asked = ASKED + u64::from(thread);
        // Ordering: Acquire pairs with the Release of `finish`, Release with the Acquire of
        // `begin`: the handler writes after the one before it, and after the asking thread has
        // read.
        [IDLE, FULL]
            .into_iter()
            .any(|free| self.0.compare_exchange(free, asked, AcqRel, Relaxed).is_ok())
    }

    /// Begins the answer of the calling thread. Returns `false` if it was not asked.
    pub fn begin(&self, thread: u32) -> bool {
        let asked = ASKED + u64::from(thread);
        // Ordering: Acquire pairs with the Release of `ask`.
        self.0.compare_exchange(asked, BUSY, AcqRel, Relaxed).is_ok()
    }

    /// Ends the answer.
    pub fn finish(&self) {
        // Ordering: Release pairs with the Acquire of `is_full` and `ask`: the buffer is visible.
        let order = if MUTATION == mutation::FINISH_RELAXED { Relaxed } else { Release };
        self.0.store(FULL, order);
    }

    /// Returns `true` if the answer is there.
    pub fn is_full(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `finish`.
        self.0.load(Acquire) == FULL
    }

    /// Takes the question back. Returns `false` if the handler has begun.
    pub fn recall(&self, thread: u32) -> bool {
        if MUTATION == mutation::RECALL_BLINDLY {
            self.0.store(IDLE, Relaxed);
            return true;
        }
        let asked = ASKED + u64::from(thread);
        // Relaxed: no buffer changes hands.
        self.0.compare_exchange(asked, IDLE, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(all(test, procession_loom))]
mod models;
