//! The global queue: oldest first for every worker, and a fair share for a worker that asks.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use procession_queue::{Global, deque};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::tally::{Dice, Large, Noted, OverAligned, Pushers, Tally};

fn filled(items: impl IntoIterator<Item = usize>) -> Global<usize> {
    let global = Global::new();
    items.into_iter().for_each(|item| global.push(item));
    global
}

fn drain<T>(global: &Global<T>) -> impl Iterator<Item = T> {
    iter::from_fn(|| global.pop())
}

/// Calls `take` until nothing is left and nothing more will come.
fn take_until_the_end<T>(
    pushers: &Pushers,
    mut take: impl FnMut() -> Option<T>,
    mut receive: impl FnMut(T),
) {
    loop {
        // Checked before the attempt, so that the attempt finds the last items pushed.
        let last = pushers.have_left();
        match take() {
            Some(item) => receive(item),
            None if last => return,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn smoke() {
    let global = Global::new();
    assert_eq!(global.pop(), None);
    global.push(1);
    global.push(2);
    assert_eq!(global.pop(), Some(1));
    global.push(3);
    assert_eq!(global.pop(), Some(2));
    assert!(global.pop_share(1, usize::MAX).eq([3]));
    assert_eq!(global.pop_share(1, usize::MAX).count(), 0);
}

#[test]
fn a_share_is_no_larger_than_was_asked_for() {
    let global = filled(0..9);
    assert_eq!(global.pop_share(1, 0).count(), 0);
    assert!(global.pop_share(1, 2).eq([0, 1]));
    assert_eq!(global.len(), 7);
}

/// The lock is free while the caller iterates over a share, so its items may go back to the queue.
#[test]
fn a_share_may_be_pushed_back_while_it_is_taken() {
    let global = filled(0..9);
    for item in global.pop_share(3, usize::MAX) {
        global.push(item + 100);
    }
    assert!(drain(&global).eq([5, 6, 7, 8, 100, 101, 102, 103, 104]));
}

#[test]
fn a_share_that_is_not_taken_is_dropped() {
    let drops = Tally::of(4);
    let global = Global::new();
    (0..4).for_each(|number| global.push(Noted::new(number, &drops)));
    let mut share = global.pop_share(2, usize::MAX);
    let first = share.next();
    drop(share);
    assert_eq!((drops.total(), global.len()), (3, 0));
    drop(first);
    drops.assert_each_once();
}

#[test]
fn is_empty() {
    let global = Global::new();
    assert_eq!((global.is_empty(), global.len()), (true, 0));
    global.push(1);
    assert_eq!((global.is_empty(), global.len()), (false, 1));
    (2..=9).for_each(|item| global.push(item));
    assert_eq!((global.is_empty(), global.len()), (false, 9));
    global.pop().unwrap();
    assert_eq!((global.is_empty(), global.len()), (false, 8));
    assert_eq!(global.pop_share(4, usize::MAX).count(), 4);
    assert_eq!((global.is_empty(), global.len()), (false, 4));
    assert_eq!(global.pop_share(1, usize::MAX).count(), 4);
    assert_eq!((global.is_empty(), global.len()), (true, 0));
}

#[test]
fn spsc() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let global = Global::new();
    let pushers = Pushers::of(1);
    let mut popped = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _leave = pushers.leave_with_scope();
            (0..COUNT).for_each(|item| global.push(item));
        });
        take_until_the_end(&pushers, || global.pop(), |item| popped.push(item));
    });
    assert!(popped.into_iter().eq(0..COUNT));
}

#[test]
fn mpmc() {
    const THREADS: usize = 3;
    const COUNT: usize = if cfg!(miri) { 50 } else { 20_000 };
    let global = Global::new();
    let tally = Tally::of(THREADS * COUNT);
    let pushers = Pushers::of(THREADS);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (global, pushers, tally) = (&global, &pushers, &tally);
            scope.spawn(move || {
                let _leave = pushers.leave_with_scope();
                (id * COUNT..(id + 1) * COUNT).for_each(|item| global.push(item));
            });
            scope.spawn(move || {
                let mut newest = [None; THREADS];
                take_until_the_end(
                    pushers,
                    || global.pop(),
                    |item| {
                        assert!(
                            newest[item / COUNT] < Some(item),
                            "each producer's items come in their order"
                        );
                        newest[item / COUNT] = Some(item);
                        tally.note(item);
                    },
                );
            });
        }
    });
    tally.assert_each_once();
}

#[test]
fn stampede() {
    const WORKERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 200 } else { 50_000 };
    let global = filled(0..COUNT);
    let tally = Tally::of(COUNT);
    let start = Barrier::new(WORKERS);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut taken = Vec::new();
                start.wait();
                while !global.is_empty() {
                    taken.extend(global.pop_share(WORKERS, usize::MAX));
                }
                assert!(
                    taken.is_sorted_by(|older, newer| older < newer),
                    "a worker gets older items first"
                );
                tally.note_each(taken);
            });
        }
    });
    tally.assert_each_once();
}

#[test]
fn stress() {
    const WORKERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let global = Global::new();
    let tally = Tally::of(WORKERS * COUNT);
    thread::scope(|scope| {
        for id in 0..WORKERS {
            let (global, tally) = (&global, &tally);
            scope.spawn(move || {
                let own = deque::Owner::<_, 4>::new();
                let mut dice = Dice::new(id);
                for item in id * COUNT..(id + 1) * COUNT {
                    if dice.roll(2) == 0 {
                        global.push(item);
                    } else {
                        own.push_overflowing(item, global);
                    }
                    match dice.roll(3) {
                        0 => tally.note_each(global.pop()),
                        1 => tally.note_each(global.pop_share(dice.roll(8) + 1, usize::MAX)),
                        _ => tally.note_each(own.pop()),
                    }
                }
                tally.note_each(iter::from_fn(|| own.pop()));
            });
        }
    });
    tally.note_each(drain(&global));
    assert!(global.is_empty());
    tally.assert_each_once();
}

#[test]
fn no_starvation() {
    const WORKERS: usize = 4;
    const ENOUGH: usize = if cfg!(miri) { 2 } else { 50 };
    let global = Global::new();
    let pushers = Pushers::of(1);
    let hits: Vec<_> = (0..WORKERS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let _leave = pushers.leave_with_scope();
        for hits in &hits {
            scope.spawn(|| {
                while !pushers.have_left() {
                    hits.fetch_add(global.pop_share(WORKERS, usize::MAX).count(), Relaxed);
                    thread::yield_now();
                }
            });
        }
        while hits.iter().any(|hits| hits.load(Relaxed) < ENOUGH) {
            (0..10).for_each(|item| global.push(item));
            thread::yield_now();
        }
    });
}

#[test]
fn destructors() {
    const WORKERS: usize = 3;
    const COUNT: usize = if cfg!(miri) { 100 } else { 10_000 };
    let drops = Tally::of(WORKERS * COUNT);
    let global = Global::new();
    let dropped = AtomicUsize::new(0);
    thread::scope(|scope| {
        for id in 0..WORKERS {
            let (global, drops, dropped) = (&global, &drops, &dropped);
            scope.spawn(move || {
                for number in id * COUNT..(id + 1) * COUNT {
                    global.push(Noted::new(number, drops));
                    let taken = if number % 30 == 0 {
                        global.pop_share(WORKERS, usize::MAX).count()
                    } else {
                        0
                    };
                    dropped.fetch_add(taken, Relaxed);
                }
            });
        }
    });
    assert_eq!(
        drops.total(),
        dropped.into_inner(),
        "all that was taken is dropped, and nothing else is"
    );
    assert!(!global.is_empty(), "there is something left to drop");
    assert_eq!(drops.total() + global.len(), WORKERS * COUNT);
    drop(global);
    drops.assert_each_once();
}

#[test]
fn panic_on_drop() {
    const COUNT: usize = 8;
    for panicking in 0..COUNT {
        let drops = Tally::of(COUNT);
        let global = Global::new();
        for number in 0..COUNT {
            let item = if number == panicking { Noted::panicking } else { Noted::new };
            global.push(item(number, &drops));
        }
        catch_unwind(AssertUnwindSafe(|| drop(global))).expect_err("the panic is not swallowed");
        drops.assert_each_once();
    }
}

#[test]
fn an_item_that_panics_when_it_is_dropped_does_no_harm_to_the_queue() {
    let drops = Tally::of(3);
    let global = Global::new();
    global.push(Noted::panicking(0, &drops));
    global.push(Noted::new(1, &drops));
    catch_unwind(AssertUnwindSafe(|| drop(global.pop()))).expect_err("the item panics");
    // No lock was held during the panic, so none is poisoned.
    global.push(Noted::new(2, &drops));
    assert_eq!(drain(&global).count(), 2);
    drops.assert_each_once();
}

#[test]
fn zero_sized_items() {
    let global = Global::new();
    (0..100).for_each(|_| global.push(()));
    assert_eq!(global.pop_share(1, usize::MAX).count(), 17);
    assert_eq!(drain(&global).count(), 83);
}

#[test]
fn large_items() {
    const COUNT: usize = if cfg!(miri) { 20 } else { 2_000 };
    let global = Global::new();
    let pushers = Pushers::of(1);
    let tally = Tally::of(COUNT);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _leave = pushers.leave_with_scope();
            (0..COUNT).for_each(|number| global.push(Large::new(number)));
        });
        let take = || {
            Some(global.pop_share(2, usize::MAX).collect::<Vec<_>>())
                .filter(|share| !share.is_empty())
        };
        take_until_the_end(&pushers, take, |share| {
            tally.note_each(share.iter().flat_map(Large::number))
        });
    });
    tally.assert_each_once();
}

#[test]
fn over_aligned_items() {
    let global = Global::new();
    (0..10).for_each(|number| global.push(OverAligned(number)));
    assert!(global.pop_share(3, usize::MAX).eq((0..5).map(OverAligned)));
    assert!(drain(&global).eq((5..10).map(OverAligned)));
}

#[test]
fn pop_share_is_fair() {
    for length in [1, 2, 3, 10, 15, 16, 17, 18, 31, 33, 60, 64, 100, 300] {
        for workers in [1, 2, 3, 4, 7, 16, 64, 1000] {
            let global = filled(0..length);
            let count = (1 + (length / workers + 1).min(16)).min(length);
            let case = format!("{length} items, {workers} workers");
            assert!(global.pop_share(workers, usize::MAX).eq(0..count), "{case}");
            assert!(drain(&global).eq(count..length), "{case}");
        }
    }
}

#[test]
fn shares_of_all_workers_leave_nothing() {
    let global = filled(0..100);
    let tally = Tally::of(100);
    while !global.is_empty() {
        tally.note_each(global.pop_share(4, usize::MAX));
    }
    tally.assert_each_once();
}

#[test]
fn pop_share_of_zero_workers_panics() {
    for length in [0, 3] {
        let global = filled(0..length);
        let share = catch_unwind(AssertUnwindSafe(|| global.pop_share(0, usize::MAX).count()));
        share.expect_err("a share of no workers is refused");
        assert!(drain(&global).eq(0..length), "the queue is as it was");
        global.push(9);
        assert!(global.pop_share(1, usize::MAX).eq([9]));
    }
}

/// Long enough for the buffer to grow and shrink several times.
#[test]
fn a_great_backlog_comes_out_in_order() {
    const COUNT: usize = if cfg!(miri) { 5_000 } else { 100_000 };
    let global = filled(0..COUNT);
    let mut pushed = COUNT;
    let mut taken = 0;
    while !global.is_empty() {
        for item in global.pop_share(2, usize::MAX) {
            assert_eq!(item, taken);
            taken += 1;
        }
        if pushed < 2 * COUNT {
            global.push(pushed);
            pushed += 1;
        }
    }
    assert_eq!(taken, pushed);
}
