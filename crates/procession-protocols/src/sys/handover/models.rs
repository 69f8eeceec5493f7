use procession_sync::cell::UnsafeCell;
use procession_sync::{Arc, explore, thread};

use super::{Handover, mutation};

struct Shared<const MUTATION: u8> {
    word: Handover<MUTATION>,
    buffer: UnsafeCell<u32>,
}

// SAFETY: the model shows that the buffer has one owner at a time.
unsafe impl<const MUTATION: u8> Sync for Shared<MUTATION> {}

/// A thread asks, recalls its question, and asks again, while two signals arrive whenever they
/// want.
fn samples<const MUTATION: u8>() {
    explore(|| {
        let word = Handover::<MUTATION>::new();
        let shared = Arc::new(Shared { word, buffer: UnsafeCell::new(0) });
        // Each is the handler of one signal. Both could run at the same time only on different
        // threads.
        let handlers = [7, 8].map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.word.begin(number) {
                    // SAFETY: [handover] this handler has begun.
                    shared.buffer.with_mut(|buffer| unsafe { *buffer = number });
                    shared.word.finish();
                }
            })
        });
        assert!(shared.word.ask(7), "nothing was asked before");
        if shared.word.is_full() {
            // SAFETY: [handover] the handler has finished.
            let sample = shared.buffer.with(|buffer| unsafe { *buffer });
            assert_eq!(sample, 7, "the sample is of the thread that was asked");
        }
        let _ = shared.word.recall(7);
        if shared.word.ask(8) && shared.word.is_full() {
            // SAFETY: [handover] the handler has finished.
            let sample = shared.buffer.with(|buffer| unsafe { *buffer });
            assert_eq!(sample, 8, "the sample is of the thread that was asked");
        }
        for handler in handlers {
            handler.join().expect("it does not panic");
        }
    });
}

#[test]
fn the_buffer_has_one_owner() {
    samples::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the sample is of the thread that was asked")]
fn canary_recall_blindly() {
    samples::<{ mutation::RECALL_BLINDLY }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_finish_relaxed() {
    samples::<{ mutation::FINISH_RELAXED }>();
}
