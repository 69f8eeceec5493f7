//! Tests of the memory of a weak processor.

use std::panic::Location;

use procession_sync::host::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use procession_sync::simulated::{Loaded, Operation};

use super::{SLOTS, VALUES_MAX, Weak};

/// The addresses of two atomics, which contain 0 at first.
const X: usize = 8;
const Y: usize = 16;

fn operation(address: usize, content: u64, order: Ordering) -> Operation {
    Operation { address, content, order, at: Location::caller(), is_muted: false }
}

/// Loads the value that is so many places behind the newest. Returns how many there were.
fn load(memory: &mut Weak, thread: usize, of: Operation, back: u32) -> (Loaded, u32) {
    let mut count = 1;
    let loaded = memory.load(thread, of, &mut |readable| {
        count = readable;
        back
    });
    (loaded, count)
}

/// Stores the numbers from 1, each behind all others.
fn store(memory: &mut Weak, thread: usize, address: usize, values: u64, order: Ordering) {
    for value in 1..=values {
        memory.store(thread, operation(address, value - 1, order), value, &mut |_| 0);
    }
}

#[test]
fn another_thread_may_load_each_value_that_it_has_not_passed() {
    let mut memory = Weak::default();
    store(&mut memory, 0, X, 3, Relaxed);
    let x = operation(X, 3, Relaxed);
    assert_eq!(load(&mut memory, 0, x, 0), (Loaded::Memory, 1), "it has stored them");
    assert_eq!(load(&mut memory, 1, x, 2), (Loaded::Older(1), 4));
    assert_eq!(load(&mut memory, 1, x, 1), (Loaded::Older(2), 3));
    assert_eq!(load(&mut memory, 1, x, 0), (Loaded::Memory, 2));
    assert_eq!(load(&mut memory, 1, x, 0), (Loaded::Memory, 1));
}

#[test]
fn an_acquire_passes_on_what_was_released() {
    for (store_order, load_order, count) in
        [(Release, Acquire, 1), (Relaxed, Acquire, 2), (Release, Relaxed, 2)]
    {
        let mut memory = Weak::default();
        store(&mut memory, 0, X, 1, Relaxed);
        store(&mut memory, 0, Y, 1, store_order);
        load(&mut memory, 1, operation(Y, 1, load_order), 0);
        assert_eq!(load(&mut memory, 1, operation(X, 1, Relaxed), 0).1, count);
    }
}

#[test]
fn the_newest_value_remains_as_time_passes_which_orders_nothing() {
    let mut memory = Weak::default();
    store(&mut memory, 0, X, 1, Relaxed);
    store(&mut memory, 0, Y, 1, Release);
    memory.access(0, X, (true, Location::caller()));
    memory.let_time_pass();
    assert_eq!(load(&mut memory, 1, operation(X, 1, Relaxed), 0), (Loaded::Memory, 1));
    assert!(memory.access(1, X, (false, Location::caller())).is_some(), "nothing orders it");
}

#[test]
fn histories_are_short_and_few() {
    let mut memory = Weak::default();
    store(&mut memory, 0, X, 2 * VALUES_MAX as u64, Relaxed);
    let x = operation(X, 2 * VALUES_MAX as u64, Relaxed);
    assert_eq!(load(&mut memory, 1, x, 0).1, VALUES_MAX as u32);
    let mut memory = Weak::default();
    for atomic in 0..=SLOTS {
        store(&mut memory, 0, X * (atomic + 1), 1, Relaxed);
    }
    assert_eq!(load(&mut memory, 1, operation(X, 1, Relaxed), 0).1, 1);
    assert_eq!(load(&mut memory, 1, operation(Y, 1, Relaxed), 0).1, 2);
}

/// A store that goes behind an older value is hidden by the newer one.
#[test]
fn the_newest_value_is_not_always_the_last_that_was_stored() {
    let mut memory = Weak::default();
    memory.store(0, operation(X, 0, Relaxed), 1, &mut |_| 0);
    memory.store(1, operation(X, 1, Relaxed), 2, &mut |count| count - 1);
    let x = operation(X, 2, Relaxed);
    assert_eq!(memory.peek(x), Loaded::Settled(1));
    assert_eq!(load(&mut memory, 1, operation(X, 1, Relaxed), 1), (Loaded::Older(2), 2));
}

#[test]
fn nothing_comes_between_the_parts_of_a_read_modify_write() {
    let mut memory = Weak::default();
    let found = memory.settle(0, operation(X, 0, Relaxed), None, &mut |_| 0);
    assert_eq!(found, None, "the content");
    memory.written(0, operation(X, 1, Relaxed), true);
    // Behind the new value only.
    memory.store(1, operation(X, 1, Relaxed), 2, &mut |_| panic!("there is no choice"));
    // One that fails may find an old value, and one that does not may not.
    let mut choices = Vec::new();
    for wanted in [Some(7), Some(0), None] {
        let _ = memory.settle(2, operation(X, 2, Relaxed), wanted, &mut |count| {
            choices.push(count);
            0
        });
        memory.written(2, operation(X, 2, Relaxed), false);
    }
    assert_eq!(choices, [3], "the thread has found the newest value then");
}

#[test]
fn nothing_is_left_of_an_atomic_that_is_dropped_or_replaced() {
    let mut memory = Weak::default();
    store(&mut memory, 0, X, 1, Relaxed);
    memory.forget(X);
    assert_eq!(load(&mut memory, 1, operation(X, 5, Relaxed), 0), (Loaded::Memory, 1));
    store(&mut memory, 0, Y, 1, Relaxed);
    assert_eq!(load(&mut memory, 1, operation(Y, 5, SeqCst), 0), (Loaded::Memory, 1));
    store(&mut memory, 0, X, 1, Relaxed);
    assert_eq!(memory.own(operation(X, 1, Relaxed)), Loaded::Memory);
    assert_eq!(load(&mut memory, 1, operation(X, 1, Relaxed), 0), (Loaded::Memory, 1));
}

#[test]
fn a_lock_and_a_wake_up_order_accesses_of_cells_and_a_full_fence_does_not() {
    let write = (true, Location::caller());
    let after = |order: &dyn Fn(&mut Weak)| {
        let mut memory = Weak::default();
        assert!(memory.access(0, X, write).is_none());
        order(&mut memory);
        memory.access(1, X, write).is_none()
    };
    let fences = |memory: &mut Weak| {
        memory.fence(0, SeqCst);
        memory.fence(1, SeqCst);
    };
    let lock = |memory: &mut Weak| {
        memory.unlock(0, Y);
        memory.lock(1, Y);
    };
    let wake = |memory: &mut Weak| {
        memory.wake(0, 1);
        memory.woken(1);
    };
    let all = |memory: &mut Weak| {
        memory.woken(1);
        memory.order_all();
    };
    assert!(after(&lock) && after(&wake) && after(&all));
    assert!(!after(&fences) && !after(&|memory| memory.heavy_fence(1)));
}
