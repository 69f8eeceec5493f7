//! # Inbox protocol
//!
//! ## Problem
//! A signal handler may run at any moment on any thread, so it can neither lock nor allocate, and
//! it cannot wake a process. It hands the signal to a thread, which waits in a pipe. The pipe may
//! be full, and the thread may be about to wait again: the signal must not be lost.
//!
//! ## States
//! A flag for each signal: set by the handler, cleared by the thread. A pipe, which is empty, or
//! has bytes. The bytes carry no data. They only say that there are flags to look at.
//!
//! ## Steps
//! - Handler: `Flag` the signal, then `Ring`: write a byte, without waiting. If the pipe is full,
//!   the byte is dropped.
//! - Thread: `Drain`: wait for bytes, and take what there are. Then `Take`: clear each flag, and
//!   hear its signal if the flag was set.
//!
//! ## Why it works
//! If `Ring` finds room, its byte is taken by a later `Drain`. If it finds the pipe full, the bytes
//! in it are taken by a later `Drain`. Each `Drain` is followed by a `Take`, which finds the flag,
//! because `Flag` was before `Ring`.
//!
//! ## Allowed
//! A `Take` may find flags before their `Ring`. The next `Take` then finds nothing. Several signals
//! of one kind before a `Take` are heard as one, as the kernel itself does it.
//!
//! ## Checked by
//! `models::a_signal_is_heard`, and its canaries.

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Ring` before `Flag`.
    #[cfg(all(test, procession_loom))]
    pub const RING_FIRST: u8 = 1;
    /// `Take` before `Drain`.
    #[cfg(all(test, procession_loom))]
    pub const TAKE_FIRST: u8 = 2;
}

/// The flags of `COUNT` kinds of signals.
#[derive(Debug)]
pub struct Inbox<const COUNT: usize, const MUTATION: u8 = { mutation::SOUND }>([AtomicBool; COUNT]);

impl<const COUNT: usize, const MUTATION: u8> Inbox<COUNT, MUTATION> {
    /// Creates an inbox without signals.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicBool::new(false)))
    }

    /// `Flag`, and then `Ring`. Neither waits, allocates nor panics for a `signal` below `COUNT`.
    pub fn note(&self, signal: usize, ring: impl FnOnce()) {
        let Some(flag) = self.0.get(signal) else { return };
        if cfg!(procession_loom) && MUTATION == 1 {
            ring();
            return flag.store(true, Release);
        }
        // Ordering: Release pairs with the swap in `take`. The pipe orders the two.
        flag.store(true, Release);
        ring();
    }

    /// `Drain`, and then `Take`. Calls `hear` with each signal that was flagged. If `drain` fails,
    /// returns its error and hears nothing.
    pub fn take<E>(
        &self,
        drain: impl FnOnce() -> Result<(), E>,
        mut hear: impl FnMut(usize),
    ) -> Result<(), E> {
        if cfg!(procession_loom) && MUTATION == 2 {
            self.hear(&mut hear);
            return drain();
        }
        drain()?;
        self.hear(&mut hear);
        Ok(())
    }

    fn hear(&self, hear: &mut impl FnMut(usize)) {
        for (signal, flag) in self.0.iter().enumerate() {
            // Relaxed: most flags are clear. Ordering: AcqRel pairs with the store in `note`.
            if flag.load(Relaxed) && flag.swap(false, AcqRel) {
                hear(signal);
            }
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{Inbox, mutation};

    /// The capacity of the pipe. It is full with one byte, so that a handler finds it full.
    const CAPACITY: usize = 1;

    /// Two handlers, and a thread that takes what has come whenever there are bytes.
    fn heard<const MUTATION: u8>() {
        explore(|| {
            let inbox = Arc::new(Inbox::<2, MUTATION>::new());
            let pipe = Arc::new(Mutex::new(0));
            let handlers: Vec<_> = (0..2)
                .map(|signal| {
                    let (inbox, pipe) = (Arc::clone(&inbox), Arc::clone(&pipe));
                    thread::spawn(move || {
                        inbox.note(signal, || {
                            let mut bytes = pipe.lock();
                            *bytes = (*bytes + 1).min(CAPACITY);
                        });
                    })
                })
                .collect();
            let mut heard = [false; 2];
            let mut take_if_rung = || {
                // The thread waits in the kernel while there is no byte.
                if *pipe.lock() == 0 {
                    return false;
                }
                let drain = || {
                    *pipe.lock() = 0;
                    Ok::<(), ()>(())
                };
                inbox.take(drain, |signal| heard[signal] = true).expect("it does not fail");
                true
            };
            take_if_rung();
            handlers.into_iter().for_each(|handler| handler.join().expect("it does not panic"));
            while take_if_rung() {}
            assert_eq!(heard, [true; 2], "a signal was lost");
        });
    }

    #[test]
    fn a_signal_is_heard() {
        heard::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a signal was lost")]
    fn canary_ring_first() {
        heard::<{ mutation::RING_FIRST }>();
    }

    #[test]
    #[should_panic(expected = "a signal was lost")]
    fn canary_take_first() {
        heard::<{ mutation::TAKE_FIRST }>();
    }
}
