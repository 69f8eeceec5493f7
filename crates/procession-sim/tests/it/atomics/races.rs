//! Data races, locks and condition variables.

use std::sync::Arc;

use procession_sim::{Check, Faults, Processor, Threads};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::cell::UnsafeCell;
use procession_sync::{Condvar, Mutex};

fn check() -> Check {
    Check::new().at_atomics().faults(Faults::none()).seeds(0..500)
}

/// A cell that threads share. No test dereferences its pointer.
struct Shared(UnsafeCell<u32>);

// SAFETY: the value in the cell is never touched.
#[expect(unsafe_code, reason = "a data race needs a cell that threads share")]
unsafe impl Sync for Shared {}

#[test]
fn two_accesses_at_a_time_are_reported_with_both_places() {
    let race = |writes: [bool; 2]| {
        check().try_threads(move |threads| {
            let shared = Arc::new(Shared(UnsafeCell::new(0)));
            for is_write in writes {
                let shared = Arc::clone(&shared);
                threads.spawn(move || match is_write {
                    true => shared.0.with_mut(|_| ()),
                    false => shared.0.with(|_| ()),
                });
            }
        })
    };
    let found = race([true, false]).expect_err("they race");
    assert!(found.contains("a data race: a "), "{found}");
    for access in ["a write at ", "a read at "] {
        let (_, place) = found.split_once(access).expect("both are named");
        assert!(place.contains("races.rs:"), "{found}");
    }
    let found = race([true, true]).expect_err("they race");
    assert_eq!(found.matches("a write at").count(), 2, "{found}");
    race([false, false]).expect("reads do not race");
}

/// Goal: on a weak processor, a thread that has seen a flag may touch what was written before the
/// flag was set only if the flag was released and acquired. An x86-64 orders it in any case.
#[test]
fn accesses_that_nothing_orders_are_a_data_race_on_a_weak_processor() {
    let pass_on = |processor, store, load| {
        check().processor(processor).try_threads(move |threads| {
            let shared = Arc::new((AtomicBool::new(false), Shared(UnsafeCell::new(0))));
            let other = Arc::clone(&shared);
            threads.spawn(move || {
                shared.1.0.with_mut(|_| ());
                shared.0.store(true, store);
            });
            threads.spawn(move || {
                if other.0.load(load) {
                    other.1.0.with(|_| ());
                }
            });
        })
    };
    for (store, load) in [(Relaxed, Acquire), (Release, Relaxed), (Relaxed, Relaxed)] {
        pass_on(Processor::X86, store, load).expect("an x86-64 orders them");
        let found = pass_on(Processor::Weak, store, load).expect_err("nothing orders them");
        assert!(found.contains("a data race: a read at "), "{found}");
        assert!(found.contains("which nothing orders after a write at "), "{found}");
    }
    pass_on(Processor::Weak, Release, Acquire).expect("the flag orders them");
}

#[test]
fn a_lock_excludes_and_what_waits_for_it_gives_its_turn_away() {
    let program = |threads: &Threads<'_>| {
        let counted = Arc::new((Mutex::new(0), Shared(UnsafeCell::new(0))));
        for _ in 0..3 {
            let counted = Arc::clone(&counted);
            threads.spawn(move || {
                let mut count = counted.0.lock();
                counted.1.0.with_mut(|_| ());
                *count += 1;
            });
        }
        threads.join_all();
        threads.sim().always("each had the lock once", *counted.0.lock() == 3);
    };
    check().try_threads(program).expect("the lock excludes");
}

#[test]
fn a_lock_order_inversion_is_a_deadlock() {
    let program = |threads: &Threads<'_>| {
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        for order in [[0, 1], [1, 0]] {
            let locks = Arc::clone(&locks);
            threads.spawn(move || {
                let _first = locks[order[0]].lock();
                let _second = locks[order[1]].lock();
            });
        }
    };
    let found = check().try_threads(program).expect_err("they wait for each other");
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn a_notification_that_is_lost_is_a_deadlock() {
    fn program(threads: &Threads<'_>, looks: bool) {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let waiting = Arc::clone(&shared);
        threads.spawn(move || {
            let mut is_set = waiting.0.lock();
            if !looks || !*is_set {
                is_set = waiting.1.wait(is_set);
            }
            drop(is_set);
        });
        threads.spawn(move || {
            *shared.0.lock() = true;
            shared.1.notify_one();
        });
    }
    let found = check().try_threads(|threads| program(threads, false));
    assert!(found.expect_err("nothing wakes the thread").contains("deadlock"));
    check().try_threads(|threads| program(threads, true)).expect("it looks first");
}
