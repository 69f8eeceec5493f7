//! The FIFO ring: its owner and thieves take the oldest item.

use std::iter;

use procession_queue::fifo as kind;
use procession_queue::{Global, Steal};

use self::battery::{drain, filled};

#[expect(clippy::duplicate_mod, reason = "the same tests for both rings")]
#[path = "battery.rs"]
mod battery;

#[expect(clippy::duplicate_mod, reason = "the same tests for both rings")]
#[path = "halves.rs"]
mod halves;

/// The owner's operations on a plain deque. Its front is the oldest end.
mod model {
    use std::collections::VecDeque;

    pub(super) fn pop(ring: &mut VecDeque<usize>) -> Option<usize> {
        ring.pop_front()
    }

    /// Stolen items wait behind the items that are already there.
    pub(super) fn arrange(ring: &mut VecDeque<usize>, stolen: VecDeque<usize>) {
        ring.extend(stolen);
    }
}

fn pops_in_order(popped: &[usize]) -> bool {
    popped.is_sorted_by(|first, next| first < next)
}

#[test]
fn both_sides_take_the_oldest() {
    let owner = filled::<8>(0..6);
    let stealer = owner.stealer();
    assert_eq!(owner.pop(), Some(0));
    assert_eq!(stealer.steal(), Steal::Success(1));
    owner.push(6).unwrap();
    assert_eq!(stealer.steal(), Steal::Success(2));
    assert!(drain(&owner).eq(3..7));
}

#[test]
fn what_yields_waits_for_all_that_is_older() {
    let owner = filled::<4>(0..4);
    for turn in 0..100 {
        let item = owner.pop().unwrap();
        assert_eq!(item, turn % 4, "each has its turn");
        owner.push(item).unwrap();
    }
}

#[test]
fn a_stolen_half_waits_behind_what_was_there() {
    let (victim, thief) = (filled::<16>(0..8), filled::<16>(100..102));
    assert_eq!(thief.steal_half(&victim.stealer()), Steal::Success(0));
    assert!(drain(&thief).eq([100, 101, 1, 2, 3]));
    assert!(drain(&victim).eq([4, 5, 6, 7]));
}

#[test]
fn overflow_leaves_the_newest_to_the_owner() {
    let owner = filled::<8>(0..8);
    let global = Global::new();
    assert_eq!(owner.push_overflowing(8, &global), 4);
    assert!(drain(&owner).eq([4, 5, 6, 7, 8]));
    assert!(iter::from_fn(|| global.pop()).eq(0..4));
}

#[test]
fn stealing_from_oneself_rotates() {
    let owner = filled::<16>(0..6);
    assert_eq!(owner.steal_half(&owner.stealer()), Steal::Success(0));
    assert!(drain(&owner).eq([3, 4, 5, 1, 2]), "the rest of the oldest half is at the newest end");

    let full = filled::<4>(0..4);
    assert_eq!(full.steal_half(&full.stealer()), Steal::Success(0));
    assert!(drain(&full).eq([1, 2, 3]), "without room the oldest is all that moves");
}

#[test]
fn a_ring_may_steal_from_a_deque_of_another_capacity() {
    let (owner, stealer) = procession_queue::deque::new::<_, 16>();
    (0..9).for_each(|item| owner.push(item).expect("it fits"));
    let thief = filled::<4>([100]);
    // Half would be five items: one is returned, and there is room for three more.
    assert_eq!(thief.steal_half(&stealer).success(), Some(0));
    assert!(drain(&thief).eq([100, 1, 2, 3]), "the oldest of the deque comes first");
    assert!(iter::from_fn(|| owner.pop()).eq((4..9).rev()));
}
