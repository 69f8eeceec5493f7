//! Models of the ring.

use procession_sync::{Arc, explore, thread};

use super::{EventRing, mutation};

/// The word with a number. No two words are alike, and a new ring contains no such word.
fn word(number: u64) -> u64 {
    100 + number
}

/// A ring of two places: a writer that goes around it; a reader.
fn race<const MUTATION: u8>() {
    explore(|| {
        let ring = Arc::new(EventRing::<MUTATION>::new(2, false));
        ring.push(word(0));
        let reader = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.copy_since(0))
        };
        (1..4).for_each(|number| ring.push(word(number)));
        let copied = reader.join().expect("the reader does not panic");
        for (found, number) in copied.words.iter().zip(copied.first..) {
            assert_eq!(*found, word(number), "a word was not written with this number");
        }
        assert_eq!(ring.copy_since(0).words, [word(3)], "the last word is there");
    });
}

#[test]
fn copy_against_write() {
    race::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a word was not written with this number")]
fn canary_position_read_once() {
    race::<{ mutation::POSITION_READ_ONCE }>();
}

#[test]
#[should_panic(expected = "a word was not written with this number")]
fn canary_word_relaxed() {
    race::<{ mutation::WORD_RELAXED }>();
}

#[test]
#[should_panic(expected = "a word was not written with this number")]
fn canary_position_relaxed() {
    race::<{ mutation::POSITION_RELAXED }>();
}
