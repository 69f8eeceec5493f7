//! Tests of the lock that backs off.
#![cfg(not(procession_loom))]

use std::sync::mpsc;
use std::thread;

use procession_sync::{Mutex, lock_with_backoff};

#[test]
fn critical_sections_exclude_each_other() {
    const THREADS: usize = 4;
    const TURNS: usize = 20_000;
    let counter = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TURNS).for_each(|_| *lock_with_backoff(&counter) += 1));
        }
    });
    assert_eq!(*lock_with_backoff(&counter), THREADS * TURNS);
}

/// The holder waits until the other thread has announced itself. It then keeps the lock while it
/// yields 1000 times, so that the other thread backs off and waits.
#[test]
fn a_lock_that_is_held_for_long_is_waited_for() {
    let lock = Mutex::new("held");
    let (announce, announced) = mpsc::channel();
    thread::scope(|scope| {
        let mut held = lock.lock();
        let other = scope.spawn(|| {
            announce.send(()).expect("the holder waits");
            *lock_with_backoff(&lock)
        });
        announced.recv().expect("the other thread starts");
        for _ in 0..1000 {
            thread::yield_now();
        }
        assert!(!other.is_finished(), "the lock is held");
        *held = "free";
        drop(held);
        assert_eq!(other.join().expect("the other thread does not panic"), "free");
    });
}

#[test]
fn a_panic_of_the_holder_poisons_nothing() {
    let lock = Mutex::new(());
    thread::scope(|scope| {
        let poisons = scope.spawn(|| {
            let _held = lock.lock();
            std::panic::resume_unwind(Box::new("quietly"));
        });
        poisons.join().expect_err("the thread panics");
    });
    drop(lock_with_backoff(&lock));
    drop(lock.lock());
    assert!(lock.try_lock().is_some());
}
