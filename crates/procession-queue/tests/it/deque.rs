//! The deque: the owner works at the newest end, and thieves take from the oldest.

use std::iter;
use std::thread;

use procession_queue::deque::{self as kind, Owner};
use procession_queue::{Global, Steal};

use self::battery::{drain, filled, steal_until_the_end};
use crate::tally::{Pushers, Tally};

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
        ring.pop_back()
    }

    /// The oldest stolen item is popped next.
    pub(super) fn arrange(ring: &mut VecDeque<usize>, stolen: VecDeque<usize>) {
        ring.extend(stolen.into_iter().rev());
    }
}

fn pops_in_order(popped: &[usize]) -> bool {
    popped.is_sorted_by(|first, next| first > next)
}

#[test]
fn the_owner_pops_the_newest_and_thieves_steal_the_oldest() {
    let owner = filled::<8>(0..6);
    let stealer = owner.stealer();
    assert_eq!(owner.pop(), Some(5));
    assert_eq!(stealer.steal(), Steal::Success(0));
    owner.push(6).unwrap();
    assert_eq!(stealer.steal(), Steal::Success(1));
    assert!(drain(&owner).eq([6, 4, 3, 2]));
}

#[test]
fn pop_oldest_takes_what_a_thief_would() {
    let owner = filled::<4>(0..4);
    let stealer = owner.stealer();
    assert_eq!(owner.pop_oldest(), Some(0));
    assert_eq!(stealer.steal(), Steal::Success(1));
    assert_eq!(owner.pop_oldest(), Some(2));
    assert_eq!(owner.pop_oldest(), Some(3));
    assert_eq!(owner.pop_oldest(), None);
    owner.push(4).unwrap();
    assert_eq!(owner.pop_oldest(), Some(4));
    for item in 0..100 {
        // No thief takes anything, so each round needs the room that `pop_oldest` left.
        owner.push(item).unwrap();
        assert_eq!(owner.pop_oldest(), Some(item));
    }
}

#[test]
fn pop_oldest_against_thieves() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 50_000 };
    let owner = Owner::<_, 8>::new();
    let stealer = owner.stealer();
    let pushers = Pushers::of(1);
    let tally = Tally::of(COUNT);
    thread::scope(|scope| {
        let (pushers, tally) = (&pushers, &tally);
        scope.spawn(move || {
            let _leave = pushers.leave_with_scope();
            let mut oldest = None;
            for item in 0..COUNT {
                while owner.push(item).is_err() {
                    let popped = owner.pop_oldest();
                    assert!(popped.is_none() || popped > oldest, "the oldest end moves on");
                    oldest = popped.or(oldest);
                    tally.note_each(popped);
                }
                if item % 3 == 0 {
                    tally.note_each(owner.pop());
                }
            }
        });
        let mut oldest = None;
        let receive = |item| {
            assert!(Some(item) > oldest, "the oldest end moves on");
            oldest = Some(item);
            tally.note(item);
        };
        steal_until_the_end(pushers, || stealer.steal(), receive);
    });
    tally.assert_each_once();
}

#[test]
fn a_stolen_half_is_popped_before_what_was_there() {
    let (victim, thief) = (filled::<16>(0..8), filled(100..102));
    assert_eq!(thief.steal_half(&victim.stealer()), Steal::Success(0));
    assert!(drain(&thief).eq([1, 2, 3, 101, 100]));
    assert!(drain(&victim).eq([7, 6, 5, 4]));
}

#[test]
fn overflow_leaves_the_newest_to_the_owner() {
    let owner = filled::<8>(0..8);
    let global = Global::new();
    assert_eq!(owner.push_overflowing(8, &global), 4);
    assert!(drain(&owner).eq([8, 7, 6, 5, 4]));
    assert!(iter::from_fn(|| global.pop()).eq(0..4));
}

#[test]
fn stealing_from_oneself_rotates() {
    let owner = filled::<16>(0..6);
    assert_eq!(owner.steal_half(&owner.stealer()), Steal::Success(0));
    assert!(drain(&owner).eq([1, 2, 5, 4, 3]), "the rest of the oldest half is at the newest end");

    let full = filled::<4>(0..4);
    assert_eq!(full.steal_half(&full.stealer()), Steal::Success(0));
    assert!(drain(&full).eq([3, 2, 1]), "without room the oldest is all that moves");
}
