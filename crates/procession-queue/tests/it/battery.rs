//! The tests that both rings share. This file is a module of `deque` and of `fifo`. Each module
//! selects the tested ring in `kind`, and defines `pops_in_order` for the order in which its owner
//! pops items that it pushed in ascending order.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use procession_queue::{Full, Global, Steal};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::kind::{self, Owner, Stealer};
use super::pops_in_order;
use crate::tally::{Dice, Large, Noted, OverAligned, Pushers, Tally};

/// Pushes `items`, which must fit.
pub(super) fn push_all<const CAPACITY: usize>(
    owner: &Owner<usize, CAPACITY>,
    items: impl IntoIterator<Item = usize>,
) {
    for item in items {
        owner.push(item).expect("the test pushes no more than fits");
    }
}

pub(super) fn filled<const CAPACITY: usize>(
    items: impl IntoIterator<Item = usize>,
) -> Owner<usize, CAPACITY> {
    let owner = Owner::new();
    push_all(&owner, items);
    owner
}

/// Pushes an item. If there is no room, waits until thieves make some.
pub(super) fn push_waiting<T, const CAPACITY: usize>(owner: &Owner<T, CAPACITY>, mut item: T) {
    // This allows for seconds of yielding. A thief that has not come by then has panicked.
    const MAX_ATTEMPTS: usize = 2_000_000;
    for _ in 0..MAX_ATTEMPTS {
        let Err(Full(refused)) = owner.push(item) else { return };
        item = refused;
        thread::yield_now();
    }
    panic!("no thief makes room");
}

pub(super) fn drain<T, const CAPACITY: usize>(
    owner: &Owner<T, CAPACITY>,
) -> impl Iterator<Item = T> {
    iter::from_fn(|| owner.pop())
}

/// Steals until nothing is left. No other thread may take from the ring.
pub(super) fn steal_all<T, const CAPACITY: usize>(
    stealer: &Stealer<T, CAPACITY>,
) -> impl Iterator<Item = T> {
    iter::from_fn(|| stealer.steal().success())
}

/// Calls `steal` until nothing is left and nothing more will come, and passes each item to
/// `receive`.
pub(super) fn steal_until_the_end<T>(
    pushers: &Pushers,
    mut steal: impl FnMut() -> Steal<T>,
    mut receive: impl FnMut(T),
) {
    loop {
        // Checked before the attempt, so that the attempt finds the last items pushed.
        let last = pushers.have_left();
        match steal() {
            Steal::Success(item) => receive(item),
            Steal::Empty if last => return,
            Steal::Empty | Steal::Retry => thread::yield_now(),
        }
    }
}

#[test]
fn smoke() {
    let (owner, stealer) = kind::new::<_, 4>();
    assert_eq!(owner.pop(), None);
    assert_eq!(stealer.steal(), Steal::Empty);

    owner.push(1).unwrap();
    assert_eq!(owner.pop(), Some(1));
    assert_eq!(owner.pop(), None);
    assert_eq!(stealer.steal(), Steal::Empty);

    owner.push(2).unwrap();
    assert_eq!(stealer.steal(), Steal::Success(2));
    assert_eq!(stealer.steal(), Steal::Empty);
    assert_eq!(owner.pop(), None);

    owner.push(3).unwrap();
    let thief = Owner::<_, 4>::new();
    assert_eq!(thief.steal_half(&stealer), Steal::Success(3));
    assert_eq!(thief.steal_half(&stealer), Steal::Empty);
    assert_eq!(thief.pop(), None);

    push_all(&owner, 4..7);
    assert_eq!(stealer.steal(), Steal::Success(4));
    assert_eq!(stealer.clone().steal(), Steal::Success(5));
    assert_eq!(owner.stealer().steal(), Steal::Success(6));
    assert_eq!(owner.pop(), None);
}

#[test]
fn is_empty() {
    let (owner, stealer) = kind::new::<_, 4>();
    let look = || (owner.is_empty(), stealer.is_empty(), owner.len(), stealer.len());
    assert_eq!(look(), (true, true, 0, 0));
    owner.push(1).unwrap();
    assert_eq!(look(), (false, false, 1, 1));
    owner.push(2).unwrap();
    assert_eq!(look(), (false, false, 2, 2));
    owner.pop().unwrap();
    assert_eq!(look(), (false, false, 1, 1));
    stealer.steal().success().unwrap();
    assert_eq!(look(), (true, true, 0, 0));
    push_all(&owner, 0..4);
    assert_eq!(look(), (false, false, 4, 4));
    owner.push(4).unwrap_err();
    assert_eq!(look(), (false, false, 4, 4));
}

#[test]
fn spsc() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let (owner, stealer) = kind::new::<_, 16>();
    let pushers = Pushers::of(1);
    let mut stolen = Vec::new();
    thread::scope(|scope| {
        let pushers = &pushers;
        scope.spawn(move || {
            let _leave = pushers.leave_with_scope();
            (0..COUNT).for_each(|item| push_waiting(&owner, item));
        });
        steal_until_the_end(pushers, || stealer.steal(), |item| stolen.push(item));
    });
    assert!(
        stolen.into_iter().eq(0..COUNT),
        "the only thief takes all, in the order of the pushes"
    );
}

#[test]
fn mpmc() {
    const WORKERS: usize = 3;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let owners: Vec<_> = (0..WORKERS).map(|_| Owner::<_, 8>::new()).collect();
    let stealers: Vec<_> = owners.iter().map(Owner::stealer).collect();
    let tally = Tally::of(WORKERS * COUNT);
    thread::scope(|scope| {
        for (id, owner) in owners.into_iter().enumerate() {
            let (stealers, tally) = (&stealers, &tally);
            scope.spawn(move || {
                let victim = &stealers[(id + 1) % WORKERS];
                for item in id * COUNT..(id + 1) * COUNT {
                    if let Err(Full(item)) = owner.push(item) {
                        tally.note(item);
                    }
                    if item % 3 == 0 {
                        tally.note_each(owner.pop());
                    }
                    if item % 5 == 0 {
                        tally.note_each(owner.steal_half(victim).success());
                    }
                }
                tally.note_each(drain(&owner));
            });
        }
    });
    tally.assert_each_once();
}

#[test]
fn stampede() {
    const THIEVES: usize = 4;
    const CAPACITY: usize = if cfg!(miri) { 64 } else { 8192 };
    let (owner, stealer) = kind::new::<_, CAPACITY>();
    push_all(&owner, 0..CAPACITY);
    let tally = Tally::of(CAPACITY);
    let start = Barrier::new(THIEVES + 1);
    thread::scope(|scope| {
        for id in 0..THIEVES {
            let (stealer, tally, start) = (stealer.clone(), &tally, &start);
            scope.spawn(move || {
                let own = Owner::<_, CAPACITY>::new();
                let mut taken = Vec::new();
                start.wait();
                loop {
                    let stolen =
                        if id % 2 == 0 { stealer.steal() } else { own.steal_half(&stealer) };
                    match stolen {
                        Steal::Success(item) => taken.extend(iter::once(item).chain(drain(&own))),
                        Steal::Retry => {}
                        Steal::Empty => break,
                    }
                }
                assert!(
                    taken.is_sorted_by(|older, newer| older < newer),
                    "a thief takes older items first"
                );
                tally.note_each(taken);
            });
        }
        start.wait();
        let popped: Vec<_> = drain(&owner).collect();
        assert!(pops_in_order(&popped), "thieves do not disturb the owner's order");
        tally.note_each(popped);
    });
    tally.assert_each_once();
}

#[test]
fn stress() {
    const WORKERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let owners: Vec<_> = (0..WORKERS).map(|_| Owner::<_, 8>::new()).collect();
    let stealers: Vec<_> = owners.iter().map(Owner::stealer).collect();
    let global = Global::new();
    let tally = Tally::of(WORKERS * COUNT);
    let start = Barrier::new(WORKERS);
    let work = |id: usize, owner: Owner<usize, 8>| {
        let mut dice = Dice::new(id);
        let mut items = id * COUNT..(id + 1) * COUNT;
        start.wait();
        loop {
            let other = &stealers[dice.roll(WORKERS)];
            assert!(other.len() <= 8);
            let taken = match dice.roll(10) {
                0..5 => match items.next() {
                    Some(item) => {
                        owner.push_overflowing(item, &global);
                        None
                    }
                    None => return owner,
                },
                5..7 => owner.pop(),
                7 => owner.steal_half(other).success(),
                8 => other.steal().success(),
                _ => global.pop(),
            };
            tally.note_each(taken);
        }
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = owners
            .into_iter()
            .enumerate()
            .map(|(id, owner)| scope.spawn(move || work(id, owner)))
            .collect();
        for worker in workers {
            let owner = worker.join().expect("the worker does not panic");
            tally.note_each(drain(&owner));
        }
    });
    tally.note_each(iter::from_fn(|| global.pop()));
    tally.assert_each_once();
}

#[test]
fn no_starvation() {
    const THIEVES: usize = 4;
    const ENOUGH: usize = if cfg!(miri) { 2 } else { 50 };
    let (owner, stealer) = kind::new::<_, 64>();
    let pushers = Pushers::of(1);
    let hits: Vec<_> = (0..THIEVES).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let _leave = pushers.leave_with_scope();
        for (id, hits) in hits.iter().enumerate() {
            let (stealer, pushers) = (stealer.clone(), &pushers);
            scope.spawn(move || {
                let own = Owner::<_, 64>::new();
                while !pushers.have_left() {
                    let stolen =
                        if id % 2 == 0 { stealer.steal() } else { own.steal_half(&stealer) };
                    hits.fetch_add(
                        stolen.success().into_iter().chain(drain(&own)).count(),
                        Relaxed,
                    );
                    thread::yield_now();
                }
            });
        }
        // The owner uses its ring all the time, and yet each thief gets its share.
        let mut dice = Dice::new(0);
        while hits.iter().any(|hits| hits.load(Relaxed) < ENOUGH) {
            for item in 0..dice.roll(64) {
                match owner.push(item) {
                    Ok(()) if dice.roll(3) > 0 => {}
                    Ok(()) | Err(Full(_)) => drop(owner.pop()),
                }
            }
        }
    });
}

#[test]
fn never_seen_empty() {
    const ROUNDS: usize = if cfg!(miri) { 50 } else { 200_000 };
    let (owner, stealer) = kind::new::<_, 4>();
    owner.push(0).unwrap();
    let pushers = Pushers::of(1);
    let start = Barrier::new(2);
    let seen_empty = thread::scope(|scope| {
        let (pushers, start) = (&pushers, &start);
        let watcher = scope.spawn(move || {
            let mut seen_empty = 0;
            start.wait();
            while !pushers.have_left() {
                seen_empty += usize::from(stealer.is_empty());
            }
            seen_empty
        });
        let leave = pushers.leave_with_scope();
        start.wait();
        for item in 1..=ROUNDS {
            owner.push(item).unwrap();
            owner.pop().unwrap();
        }
        drop(leave);
        watcher.join().expect("the watcher does not panic")
    });
    assert_eq!(seen_empty, 0, "there is always an item, though never the same for long");
}

#[test]
fn the_last_item_goes_to_one_side() {
    const ROUNDS: usize = if cfg!(miri) { 50 } else { 50_000 };
    let (owner, stealer) = kind::new::<_, 2>();
    let pushers = Pushers::of(1);
    let tally = Tally::of(ROUNDS);
    thread::scope(|scope| {
        let (pushers, tally) = (&pushers, &tally);
        scope.spawn(move || {
            let _leave = pushers.leave_with_scope();
            for item in 0..ROUNDS {
                push_waiting(&owner, item);
                tally.note_each(owner.pop());
            }
        });
        steal_until_the_end(pushers, || stealer.steal(), |item| tally.note(item));
    });
    tally.assert_each_once();
}

#[test]
fn destructors() {
    const THIEVES: usize = 3;
    const COUNT: usize = if cfg!(miri) { 100 } else { 50_000 };
    const LEFT: usize = 7;
    let drops = Tally::of(COUNT + LEFT);
    let (owner, stealer) = kind::new::<_, 16>();
    let pushers = Pushers::of(1);
    let owner = thread::scope(|scope| {
        let (pushers, drops) = (&pushers, &drops);
        for id in 0..THIEVES {
            let stealer = stealer.clone();
            scope.spawn(move || {
                let own = Owner::<_, 16>::new();
                let steal = || if id == 0 { own.steal_half(&stealer) } else { stealer.steal() };
                // Items that a thief still holds at the end are dropped with its ring.
                steal_until_the_end(pushers, steal, |item| drop((item, own.pop())));
            });
        }
        let _leave = pushers.leave_with_scope();
        for number in 0..COUNT {
            push_waiting(&owner, Noted::new(number, drops));
            if number % 4 == 0 {
                drop(owner.pop());
            }
        }
        owner
    });
    assert_eq!(drops.total(), COUNT, "all that was taken is dropped, and nothing else is");
    for number in COUNT..COUNT + LEFT {
        owner.push(Noted::new(number, &drops)).expect("the ring is empty");
    }
    drop(owner);
    assert_eq!(drops.total(), COUNT, "a thief can still take them");
    drop(stealer);
    drops.assert_each_once();
}

#[test]
fn panic_on_drop() {
    const CAPACITY: usize = 8;
    for panicking in 0..CAPACITY {
        let drops = Tally::of(CAPACITY + 3);
        let (owner, stealer) = kind::new::<_, CAPACITY>();
        // Taken first, so that the remaining items wrap around the end of the slots.
        for number in CAPACITY..CAPACITY + 3 {
            owner.push(Noted::new(number, &drops)).expect("the ring is empty");
            drop(stealer.steal());
        }
        for number in 0..CAPACITY {
            let item = if number == panicking { Noted::panicking } else { Noted::new };
            owner.push(item(number, &drops)).expect("there is room");
        }
        drop(owner);
        assert_eq!(drops.total(), 3);
        catch_unwind(AssertUnwindSafe(|| drop(stealer))).expect_err("the panic is not swallowed");
        drops.assert_each_once();
    }
}

#[test]
fn zero_sized_items() {
    let (owner, stealer) = kind::new::<_, 4>();
    let global = Global::new();
    let mut taken = 0;
    for _ in 0..4 {
        owner.push(()).unwrap();
    }
    assert_eq!(owner.push(()), Err(Full(())));
    assert_eq!(owner.push_overflowing((), &global), 2);
    let thief = Owner::<_, 4>::new();
    assert_eq!(thief.steal_half(&stealer), Steal::Success(()));
    taken += 1 + drain(&thief).count();
    assert_eq!(taken, 2);
    taken += drain(&owner).count() + iter::from_fn(|| global.pop()).count();
    assert_eq!(taken, 5);
}

#[test]
fn large_items() {
    const COUNT: usize = if cfg!(miri) { 20 } else { 5_000 };
    let (owner, stealer) = kind::new::<_, 8>();
    let pushers = Pushers::of(1);
    let tally = Tally::of(COUNT);
    thread::scope(|scope| {
        let (pushers, tally) = (&pushers, &tally);
        scope.spawn(move || {
            let _leave = pushers.leave_with_scope();
            for number in 0..COUNT {
                push_waiting(&owner, Large::new(number));
                if number % 4 == 0 {
                    tally.note_each(owner.pop().and_then(|item| item.number()));
                }
            }
        });
        let thief = Owner::<_, 8>::new();
        let receive = |first| {
            tally.note_each(
                iter::once(first).chain(drain(&thief)).filter_map(|item: Large| item.number()),
            )
        };
        steal_until_the_end(pushers, || thief.steal_half(&stealer), receive);
    });
    tally.assert_each_once();
}

#[test]
fn over_aligned_items() {
    let (owner, stealer) = kind::new::<_, 4>();
    let thief = Owner::<_, 4>::new();
    for round in 0..5 {
        for i in 0..4 {
            owner.push(OverAligned(round + i)).unwrap();
        }
        assert_eq!(thief.steal_half(&stealer), Steal::Success(OverAligned(round)));
        assert_eq!(thief.pop(), Some(OverAligned(round + 1)));
        assert_eq!(stealer.steal(), Steal::Success(OverAligned(round + 2)));
        assert_eq!(owner.pop(), Some(OverAligned(round + 3)));
    }
}

#[test]
fn push_returns_the_refused_item() {
    let (owner, stealer) = kind::new::<_, 2>();
    let (first, second, third) = (Box::new(1), Box::new(2), Box::new(3));
    let address: *const i32 = &raw const *third;
    owner.push(first).unwrap();
    owner.push(second).unwrap();
    let Err(Full(refused)) = owner.push(third) else { panic!("two of two slots are full") };
    assert!(std::ptr::eq(&raw const *refused, address), "it is the very item");
    assert_eq!(owner.len(), 2, "what is queued is left alone");
    assert_eq!(stealer.steal(), Steal::Success(Box::new(1)));
    owner.push(refused).unwrap();
    assert_eq!(stealer.steal(), Steal::Success(Box::new(2)));
    assert_eq!(stealer.steal(), Steal::Success(Box::new(3)));
}

#[test]
fn items_survive_their_owner() {
    let (owner, stealer) = kind::new::<_, 16>();
    push_all(&owner, 0..10);
    owner.pop().unwrap();
    let left = owner.len();
    drop(owner);
    assert_eq!(stealer.len(), left);
    let thief = Owner::<_, 16>::new();
    let first = thief.steal_half(&stealer).success().unwrap();
    let taken: Vec<_> = iter::once(first).chain(drain(&thief)).chain(steal_all(&stealer)).collect();
    assert_eq!(taken.len(), left);
    assert!(
        taken.is_sorted_by(|older, newer| older < newer),
        "they leave in their order: {taken:?}"
    );
    assert_eq!(stealer.steal(), Steal::Empty);
}
