//! Tests of moving half a ring: to thieves, to the global queue, and into the ring itself, with the
//! room that this needs and leaves. Like `battery`, this file is a module of `deque` and of `fifo`.
//! Each module defines in `model` the order in which its owner works.

use std::collections::VecDeque;
use std::iter;
use std::thread;

use procession_queue::{Full, Global, Steal};

use super::battery::{drain, push_all, push_waiting, steal_all, steal_until_the_end};
use super::kind::{self, Owner};
use super::model;
use crate::tally::{Dice, Pushers, Tally};

#[track_caller]
fn assert_holds<const CAPACITY: usize>(
    owner: &Owner<usize, CAPACITY>,
    expected: impl IntoIterator<Item = usize>,
) {
    let mut held: Vec<usize> = drain(owner).collect();
    held.sort_unstable();
    assert_eq!(held, expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn steal_takes_exactly_half_for_every_length() {
    const CAPACITY: usize = 256;
    // The rings are reused, so that each half begins at another slot, and some halves wrap around.
    let (owner, stealer) = kind::new::<_, CAPACITY>();
    let thief = Owner::<_, CAPACITY>::new();
    for length in (1..=CAPACITY).step_by(if cfg!(miri) { 51 } else { 1 }) {
        push_all(&owner, 0..length);
        let half = length.div_ceil(2);
        assert_eq!(thief.steal_half(&stealer), Steal::Success(0));
        assert_eq!((thief.len(), owner.len()), (half - 1, length - half), "of {length} items");
        assert!(drain(&thief).eq(1..half), "the thief goes on with the oldest of {length} items");
        assert!(
            steal_all(&stealer).eq(half..length),
            "the newer half of {length} items keeps its order"
        );
    }
}

#[test]
fn overflow_moves_the_oldest_half() {
    fn check<const CAPACITY: usize>() {
        let owner = Owner::<_, CAPACITY>::new();
        let global = Global::new();
        for item in 0..CAPACITY {
            assert_eq!(owner.push_overflowing(item, &global), 0, "there is room for {item}");
        }
        assert!(global.is_empty());
        let half = CAPACITY.div_ceil(2);
        assert_eq!(owner.push_overflowing(CAPACITY, &global), half);
        assert_eq!((global.len(), owner.len()), (half, CAPACITY - half + 1));
        for item in CAPACITY + 1..CAPACITY + half {
            assert_eq!(
                owner.push_overflowing(item, &global),
                0,
                "the overflow made room for {item}"
            );
        }
        assert_eq!(owner.push_overflowing(CAPACITY + half, &global), half);
        assert!(iter::from_fn(|| global.pop()).eq(0..2 * half), "the oldest went, oldest first");
        assert_holds(&owner, 2 * half..=CAPACITY + half);
    }
    check::<1>();
    check::<2>();
    check::<4>();
    check::<256>();
}

#[test]
fn overflow_while_thieves_steal() {
    const THIEVES: usize = 2;
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let (owner, stealer) = kind::new::<_, 8>();
    let global = Global::new();
    let pushers = Pushers::of(1);
    let tally = Tally::of(COUNT);
    let mut overflowed = 0;
    thread::scope(|scope| {
        for _ in 0..THIEVES {
            let (stealer, pushers, tally) = (stealer.clone(), &pushers, &tally);
            scope.spawn(move || {
                let thief = Owner::<_, 8>::new();
                let receive = |first| tally.note_each(iter::once(first).chain(drain(&thief)));
                steal_until_the_end(pushers, || thief.steal_half(&stealer), receive);
            });
        }
        let _leave = pushers.leave_with_scope();
        overflowed = (0..COUNT).map(|item| owner.push_overflowing(item, &global)).sum();
    });
    assert_eq!(global.len(), overflowed, "each call said how many went");
    tally.note_each(iter::from_fn(|| global.pop()));
    tally.assert_each_once();
}

#[test]
fn stealing_into_a_nearly_full_ring_takes_what_fits() {
    const CAPACITY: usize = 8;
    for room in 0..=CAPACITY {
        let (owner, stealer) = kind::new::<_, CAPACITY>();
        push_all(&owner, 0..CAPACITY);
        let thief = Owner::<_, CAPACITY>::new();
        push_all(&thief, 100..100 + CAPACITY - room);
        // The first item needs no room, since it is returned.
        let count = (room + 1).min(CAPACITY / 2);
        assert_eq!(thief.steal_half(&stealer), Steal::Success(0));
        assert!(
            steal_all(&stealer).eq(count..CAPACITY),
            "with room for {room}, the others stay, in order"
        );
        assert_holds(&thief, (1..count).chain(100..100 + CAPACITY - room));
    }
}

#[test]
fn stealing_from_oneself_takes_each_item_once() {
    const CAPACITY: usize = 8;
    for length in 0..=CAPACITY {
        let (owner, stealer) = kind::new::<_, CAPACITY>();
        push_all(&owner, 0..length);
        let tally = Tally::of(length);
        let mut left = length;
        while let Steal::Success(item) = owner.steal_half(&stealer) {
            tally.note(item);
            left -= 1;
            assert_eq!(owner.len(), left, "one is returned, the others stay in the ring");
        }
        tally.assert_each_once();
    }
}

#[test]
fn room_comes_back_after_each_kind_of_take() {
    const CAPACITY: usize = 4;
    let (owner, stealer) = kind::new::<_, CAPACITY>();
    let (thief, global) = (Owner::<_, CAPACITY>::new(), Global::new());
    push_all(&owner, 0..CAPACITY);
    for round in 0..100 {
        assert_eq!(owner.push(0), Err(Full(0)), "in round {round}");
        let taken = match round % 5 {
            0 => owner.pop().into_iter().count(),
            1 => stealer.steal().success().into_iter().count(),
            2 => thief.steal_half(&stealer).success().into_iter().chain(drain(&thief)).count(),
            3 => owner.steal_half(&stealer).success().into_iter().count(),
            // The call pushed one item, so the ring lost one less than went to `global`.
            _ => owner.push_overflowing(0, &global) - 1,
        };
        assert_eq!(owner.len(), CAPACITY - taken);
        push_all(&owner, 0..taken);
    }
}

/// The larger the half, the more time the owner has to overwrite items that are still being copied,
/// if the ring allowed it.
#[test]
fn refill_while_a_great_half_is_copied() {
    const CAPACITY: usize = if cfg!(miri) { 32 } else { 4096 };
    const COUNT: usize = if cfg!(miri) { 200 } else { 1_000_000 };
    let (owner, stealer) = kind::new::<_, CAPACITY>();
    let pushers = Pushers::of(1);
    let tally = Tally::of(COUNT);
    thread::scope(|scope| {
        let pushers = &pushers;
        scope.spawn(move || {
            let _leave = pushers.leave_with_scope();
            (0..COUNT).for_each(|item| push_waiting(&owner, item));
        });
        let thief = Owner::<_, CAPACITY>::new();
        let receive = |first| tally.note_each(iter::once(first).chain(drain(&thief)));
        steal_until_the_end(pushers, || thief.steal_half(&stealer), receive);
    });
    tally.assert_each_once();
}

/// Compares the rings with two plain deques that follow the documentation. Their front is the
/// oldest end.
#[test]
fn agrees_with_a_simple_model() {
    const ROUNDS: usize = if cfg!(miri) { 300 } else { 100_000 };
    const CAPACITY: usize = 8;
    let owners = [(); 2].map(|()| Owner::<_, CAPACITY>::new());
    let stealers = [&owners[0], &owners[1]].map(Owner::stealer);
    let global = Global::new();
    let mut rings = [(); 2].map(|()| VecDeque::new());
    let mut overflow = VecDeque::new();
    let mut dice = Dice::new(0);
    for item in 0..ROUNDS {
        let (own, other) = (dice.roll(2), dice.roll(2));
        let is_full = rings[own].len() == CAPACITY;
        match dice.roll(12) {
            0..3 => {
                let refused = owners[own].push(item).err().map(|full| full.0);
                assert_eq!(refused, is_full.then_some(item));
                rings[own].extend((!is_full).then_some(item));
            }
            3..6 => {
                let moved = if is_full { CAPACITY / 2 } else { 0 };
                assert_eq!(owners[own].push_overflowing(item, &global), moved);
                overflow.extend(rings[own].drain(..moved));
                rings[own].push_back(item);
            }
            6..8 => assert_eq!(owners[own].pop(), model::pop(&mut rings[own])),
            8 => assert_eq!(stealers[other].steal().success(), rings[other].pop_front()),
            9 => assert_eq!(global.pop(), overflow.pop_front()),
            _ => {
                let room = CAPACITY - rings[own].len();
                let count = rings[other].len().div_ceil(2).min(room + 1);
                let mut stolen: VecDeque<_> = rings[other].drain(..count).collect();
                assert_eq!(owners[own].steal_half(&stealers[other]).success(), stolen.pop_front());
                model::arrange(&mut rings[own], stolen);
            }
        }
        for (i, ring) in rings.iter().enumerate() {
            assert_eq!((owners[i].len(), stealers[i].len()), (ring.len(), ring.len()));
        }
        assert_eq!(global.len(), overflow.len());
    }
    for (stealer, ring) in stealers.iter().zip(rings) {
        assert!(steal_all(stealer).eq(ring));
    }
}
