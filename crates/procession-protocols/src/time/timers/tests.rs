//! Goal: the seven operations work as the module documentation describes, at the ends of every
//! range, whatever the actions do, with and without the lock. Method: behaviours one by one; random
//! sequences of operations against a list; and four threads that keep books, which must balance in
//! the end. A thread that holds the lock itself makes its own operations take the path without it.

mod hostile;
mod random;
mod threads;

use std::num::NonZeroU64;

use super::firing::{FIRINGS_MAX, Ran};
use super::heap::{Heap, NEVER};
use super::{Added, PORTION, TimerCounts, TimerId, TimerRefused, Timers};

const LIMIT: u32 = 10_000;

fn every(period: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(period)
}

impl<A: Clone> Timers<A> {
    fn once(&self, when: u64, action: A) -> TimerId {
        self.add(when, None, action).expect("within the limit").id
    }

    fn periodic(&self, when: u64, period: u64, action: A) -> TimerId {
        self.add(when, every(period), action).expect("within the limit").id
    }

    /// Runs one pass. Returns the actions that it fired.
    fn fired(&self, now: u64) -> Vec<A> {
        let mut fired = Vec::new();
        let ran = self.run(now, &mut |action| fired.push(action));
        assert_eq!(ran.fired as usize, fired.len());
        fired
    }

    /// Runs `operations` as if another thread had the lock.
    fn without_the_lock<R>(&self, operations: impl FnOnce(&Self) -> R) -> R {
        let _ledger = self.lock();
        operations(self)
    }

    /// Panics unless everything under the lock is consistent.
    fn assert_sound(&self) {
        let ledger = self.lock();
        ledger.heap.assert_sound();
        let pending =
            (0..ledger.made).filter(|&number| self.slot(number).word().has_timer()).count();
        drop(ledger);
        assert_eq!(self.counts().pending, pending as u64, "what is counted as pending is pending");
    }
}

fn timers<A>() -> Timers<A> {
    Timers::new(LIMIT)
}

#[test]
fn a_timer_fires_at_its_deadline_and_not_before() {
    let timers = timers();
    timers.once(10, 'a');
    assert_eq!(timers.next(), 10);
    assert_eq!(timers.run(9, &mut |_| panic!("early")), Ran { fired: 0, more: false });
    assert_eq!(timers.fired(10), ['a']);
    assert_eq!(timers.fired(u64::MAX), []);
    assert_eq!(timers.next(), NEVER);
}

#[test]
fn deadlines_order_the_firings() {
    let timers = timers();
    for when in [5, 3, 9, 1, 7, 2, 8, 4, 6, 0] {
        timers.once(when, when);
    }
    assert_eq!(timers.fired(4), [0, 1, 2, 3, 4]);
    assert_eq!(timers.fired(20), [5, 6, 7, 8, 9]);
}

#[test]
fn equal_deadlines_fire_in_the_order_of_creation() {
    for created in [0, u32::MAX - 50, u32::MAX / 2 - 50] {
        let timers = Timers::<u32>::starting_at(LIMIT, 0, created);
        let ids: Vec<TimerId> = (0..100).map(|n| timers.once(7, n)).collect();
        // The order in which slots are reused changes; a reset does not make a timer younger.
        assert_eq!(timers.delete(ids[90]), Some(90));
        assert_eq!(timers.delete(ids[3]), Some(3));
        timers.once(7, 100);
        timers.once(7, 101);
        assert!(timers.reset(ids[50], 9).is_some());
        assert!(timers.reset(ids[50], 7).is_some());
        let expected: Vec<u32> = (0..102).filter(|n| ![3, 90].contains(n)).collect();
        assert_eq!(timers.fired(7), expected, "created {created} before");
    }
}

#[test]
fn the_order_survives_the_end_of_the_numbers() {
    let mut heap = Heap::new(u32::MAX - 2);
    heap.track(8);
    let sequences: Vec<u32> = (0..6).map(|_| heap.create()).collect();
    for (slot, sequence) in sequences.iter().enumerate().rev() {
        heap.insert(1, *sequence, slot as u32);
        heap.assert_sound();
    }
    for slot in 0..6 {
        assert_eq!(heap.first().map(|key| key.slot()), Some(slot));
        heap.remove(slot);
        heap.assert_sound();
    }
}

#[test]
fn a_pass_is_bounded_and_says_that_more_is_due() {
    let timers = timers();
    for n in 0..FIRINGS_MAX + 2 {
        timers.once(1, n);
    }
    assert_eq!(timers.run(1, &mut |_| {}), Ran { fired: FIRINGS_MAX, more: true });
    assert_eq!(timers.fired(1), [FIRINGS_MAX, FIRINGS_MAX + 1]);
    assert_eq!(timers.run(1, &mut |_| {}), Ran { fired: 0, more: false });
}

#[test]
fn a_deadline_in_the_past_is_due_at_once() {
    let timers = timers();
    timers.once(0, 'a');
    timers.once(99, 'b');
    assert_eq!(timers.next(), 0);
    assert_eq!(timers.fired(1000), ['a', 'b']);
}

#[test]
fn what_never_comes_stays_pending() {
    let timers = timers();
    let id = timers.once(NEVER, 'a');
    assert_eq!(timers.next(), NEVER);
    assert_eq!(timers.run(u64::MAX, &mut |_| panic!("never")), Ran { fired: 0, more: false });
    assert_eq!(timers.counts().pending, 1);
    assert_eq!(timers.reset(id, 5).map(|rearmed| rearmed.earliest), Some(true));
    assert!(timers.reset(id, NEVER).is_some());
    assert_eq!(timers.fired(u64::MAX), []);
    assert!(timers.reset(id, u64::MAX - 1).is_some());
    assert_eq!(timers.fired(u64::MAX), ['a']);
}

#[test]
fn a_deleted_timer_never_fires() {
    let timers = timers();
    let id = timers.once(5, 'a');
    timers.once(5, 'b');
    assert_eq!(timers.delete(id), Some('a'));
    assert_eq!(timers.delete(id), None);
    assert_eq!(timers.fired(5), ['b']);
}

#[test]
fn a_stale_id_does_nothing() {
    let timers = timers();
    let fired = timers.once(1, 'a');
    let deleted = timers.once(2, 'b');
    assert_eq!(timers.fired(1), ['a']);
    assert_eq!(timers.delete(deleted), Some('b'));
    // Their slots have other timers by now.
    timers.once(3, 'c');
    timers.once(4, 'd');
    for id in [
        fired,
        deleted,
        TimerId { slot: LIMIT - 1, generation: 0 },
        TimerId { slot: u32::MAX, generation: 0 },
    ] {
        for _ in 0..2 {
            assert_eq!(timers.delete(id), None);
            assert_eq!(timers.reset(id, 0), None);
        }
        timers.without_the_lock(|timers| {
            assert_eq!(timers.delete(id), None);
            assert_eq!(timers.reset(id, 0), None);
        });
        assert_eq!(timers.modify(id, 0, None, 'x'), Err(TimerRefused('x')));
    }
    assert_eq!(timers.fired(10), ['c', 'd']);
}

#[test]
fn only_an_earlier_deadline_is_reported_as_the_earliest() {
    let timers = timers();
    let earliest = |when| timers.add(when, None, ()).map(|armed| armed.earliest);
    assert_eq!(earliest(10), Ok(true));
    assert_eq!(earliest(10), Ok(false));
    assert_eq!(earliest(11), Ok(false));
    assert_eq!(earliest(9), Ok(true));
    assert_eq!(earliest(NEVER), Ok(false));
    let Ok(Added { id, .. }) = timers.add(20, None, ()) else { panic!("within the limit") };
    assert_eq!(timers.reset(id, 15).map(|rearmed| rearmed.earliest), Some(false));
    assert_eq!(timers.reset(id, 8).map(|rearmed| rearmed.earliest), Some(true));
    assert_eq!(timers.modify(id, 7, None, ()).map(|modified| modified.earliest), Ok(true));
}

#[test]
fn a_reset_to_later_leaves_a_lower_bound_that_cleaning_raises() {
    let timers = timers();
    let id = timers.once(5, 'a');
    assert!(timers.reset(id, 50).is_some());
    assert_eq!(timers.next(), 5, "one store, no sift");
    assert_eq!(timers.clean(), 1);
    assert_eq!(timers.next(), 50);
    assert!(timers.reset(id, 80).is_some());
    assert_eq!(timers.run(60, &mut |_| panic!("early")), Ran { fired: 0, more: false });
    assert_eq!(timers.next(), 80, "a pass cleans what is in its way");
    assert_eq!(timers.fired(80), ['a']);
}

#[test]
fn a_reset_to_earlier_moves_the_timer() {
    let timers = timers();
    timers.once(20, 'a');
    let id = timers.once(30, 'b');
    assert!(timers.reset(id, 10).is_some());
    assert_eq!(timers.next(), 10);
    assert_eq!(timers.fired(30), ['b', 'a']);
    assert_eq!(timers.reset(id, 40), None, "it has fired");
}

#[test]
fn modify_changes_everything_and_returns_the_old_action() {
    let timers = timers();
    let id = timers.once(5, 'a');
    assert_eq!(timers.modify(id, 7, every(10), 'b').map(|modified| modified.replaced), Ok('a'));
    assert_eq!(timers.fired(5), []);
    assert_eq!(timers.fired(7), ['b']);
    assert_eq!(timers.modify(id, 20, every(1), 'c').map(|modified| modified.replaced), Ok('b'));
    assert_eq!(timers.fired(20), ['c']);
    assert_eq!(timers.modify(id, 30, None, 'd').map(|modified| modified.replaced), Ok('c'));
    assert_eq!(timers.fired(40), ['d']);
    assert_eq!(timers.modify(id, 50, None, 'e'), Err(TimerRefused('e')));
    assert_eq!(
        timers.counts(),
        TimerCounts { armed: 1, fired: 1, ticks: 2, cancelled: 0, pending: 0 }
    );
}

#[test]
fn a_periodic_timer_keeps_its_phase_and_skips_what_was_missed() {
    let timers = timers();
    let id = timers.periodic(100, 10, 'a');
    assert_eq!(timers.fired(103), ['a']);
    assert_eq!(timers.next(), 110);
    assert_eq!(timers.fired(157), ['a'], "those at 120 to 150 were missed");
    assert_eq!(timers.next(), 160);
    assert_eq!(timers.fired(160), ['a']);
    assert_eq!(timers.next(), 170);
    assert_eq!(timers.delete(id), Some('a'));
    assert_eq!(timers.fired(1000), []);
    assert_eq!(
        timers.counts(),
        TimerCounts { armed: 1, fired: 0, ticks: 3, cancelled: 1, pending: 0 }
    );
}

#[test]
fn a_periodic_timer_ends_with_time() {
    let timers = timers();
    let id = timers.periodic(1, u64::MAX / 2, 'a');
    assert_eq!(timers.fired(u64::MAX - 2), ['a']);
    assert_eq!(timers.next(), u64::MAX / 2 * 2 + 1 - u64::from(u64::MAX / 2 * 2 == u64::MAX));
    let late = timers.periodic(u64::MAX - 1, 1, 'b');
    assert_eq!(
        timers.fired(u64::MAX),
        ['b'],
        "the next tick would be at u64::MAX, which never comes"
    );
    assert_eq!(timers.fired(u64::MAX), []);
    assert_eq!((timers.delete(id), timers.delete(late)), (Some('a'), Some('b')));
}

#[test]
fn a_full_heap_refuses_and_returns_the_action() {
    let timers = Timers::new(2);
    let id = timers.once(1, 'a');
    timers.once(2, 'b');
    assert_eq!(timers.add(3, None, 'c'), Err(TimerRefused('c')));
    assert_eq!(timers.add(3, every(1), 'c'), Err(TimerRefused('c')));
    assert_eq!(timers.delete(id), Some('a'));
    timers.once(3, 'd');
    assert_eq!(timers.add(3, None, 'e'), Err(TimerRefused('e')));
    assert_eq!(
        timers.counts(),
        TimerCounts { armed: 3, fired: 0, ticks: 0, cancelled: 1, pending: 2 }
    );
    assert_eq!(Timers::new(0).add(1, None, 'a'), Err(TimerRefused('a')));
}

#[test]
fn a_slot_that_was_left_without_the_lock_counts_for_the_limit_until_it_is_needed() {
    let timers = Timers::new(1);
    let id = timers.once(1, 'a');
    assert_eq!(timers.without_the_lock(|timers| timers.delete(id)), Some('a'));
    timers.once(2, 'b');
    assert_eq!(timers.fired(5), ['b']);
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let timers = Timers::<char>::starting_at(3, u32::MAX - 2, 0);
    for (n, end) in ["fire", "delete", "delete without the lock"].into_iter().enumerate() {
        for generation in [u32::MAX - 2, u32::MAX - 1] {
            let id = timers.once(1, 'a');
            assert_eq!(id, TimerId { slot: n as u32, generation }, "{end}");
            match end {
                "fire" => assert_eq!(timers.fired(1), ['a']),
                "delete" => assert_eq!(timers.delete(id), Some('a')),
                _ => assert_eq!(timers.without_the_lock(|timers| timers.delete(id)), Some('a')),
            }
            assert_eq!(timers.delete(id), None);
            assert_eq!(timers.adjust(), u32::from(end == "delete without the lock"));
        }
    }
    assert_eq!(timers.add(1, None, 'b'), Err(TimerRefused('b')));
    timers.assert_sound();
}

#[test]
fn without_the_lock_a_delete_decides_at_once() {
    let timers = timers();
    let once = timers.once(5, 'a');
    let ticking = timers.periodic(5, 5, 'b');
    timers.without_the_lock(|timers| {
        assert_eq!(timers.delete(once), Some('a'));
        assert_eq!(timers.delete(ticking), Some('b'));
        assert_eq!(timers.delete(once), None);
        assert_eq!(
            timers.run(5, &mut |_| panic!("deleted")),
            Ran { fired: 0, more: true },
            "another has the lock"
        );
    });
    assert_eq!(timers.next(), 5, "the heap is put right later");
    assert_eq!(timers.adjust(), 2);
    assert_eq!(timers.adjust(), 0);
    assert_eq!(timers.next(), NEVER);
    assert_eq!(
        timers.counts(),
        TimerCounts { armed: 2, fired: 0, ticks: 0, cancelled: 2, pending: 0 }
    );
    timers.assert_sound();
}

#[test]
fn without_the_lock_a_reset_counts_at_once() {
    let timers = timers();
    let (early, late) = (timers.once(10, 'a'), timers.once(20, 'b'));
    let never = timers.once(NEVER, 'c');
    timers.without_the_lock(|timers| {
        assert!(timers.reset(late, 5).is_some_and(|rearmed| rearmed.earliest));
        assert_eq!(timers.next(), 5);
        assert!(timers.reset(never, 4).is_some());
        assert!(timers.reset(never, 6).is_some());
        assert!(timers.reset(early, 30).is_some());
        assert_eq!(timers.next(), 4, "too early, which is allowed");
    });
    assert_eq!(timers.fired(4), []);
    assert_eq!(timers.next(), 5);
    assert_eq!(timers.fired(20), ['b', 'c']);
    assert_eq!(timers.fired(30), ['a']);
    timers.assert_sound();
}

#[test]
fn without_the_lock_a_timer_may_be_reset_and_then_deleted() {
    let timers = timers();
    let id = timers.once(10, 'a');
    timers.without_the_lock(|timers| {
        assert!(timers.reset(id, 5).is_some());
        assert_eq!(timers.delete(id), Some('a'));
        assert_eq!(timers.reset(id, 3), None);
    });
    assert_eq!(timers.fired(20), []);
    assert_eq!(timers.next(), NEVER);
    timers.without_the_lock(|timers| assert_eq!(timers.delete(id), None));
    timers.assert_sound();
}

#[test]
fn what_was_left_without_the_lock_is_settled_in_portions() {
    let timers = timers();
    let ids: Vec<TimerId> = (0..PORTION * 2 + 1).map(|n| timers.once(1000, n)).collect();
    timers.without_the_lock(|timers| {
        // The first is settled last.
        for (n, id) in (100..).zip(&ids) {
            assert!(timers.reset(*id, n).is_some());
        }
    });
    for _ in 0..2 {
        assert_eq!(timers.clean(), PORTION);
        assert_eq!(timers.next(), 100, "no later than what is still in the backlog");
    }
    assert_eq!(timers.clean(), 1);
    assert_eq!(timers.clean(), 0);
    timers.without_the_lock(|timers| {
        for id in &ids {
            assert!(timers.delete(*id).is_some());
        }
    });
    assert_eq!(timers.adjust(), PORTION * 2 + 1);
    assert_eq!(timers.next(), NEVER);
    timers.assert_sound();
}

#[test]
fn nothing_is_left_of_a_deadline_that_was_overridden() {
    for others in [0, PORTION - 1] {
        let timers = timers();
        let id = timers.once(10, 0);
        let others: Vec<TimerId> = (0..others).map(|n| timers.once(500, n)).collect();
        timers.without_the_lock(|timers| {
            assert!(timers.reset(id, 5).is_some());
            assert!(timers.reset(id, 50).is_some());
            for id in others {
                assert!(timers.reset(id, 400).is_some());
            }
        });
        assert_eq!(timers.next(), 5);
        timers.clean();
        timers.clean();
        assert_eq!(timers.next(), 50, "or somebody would be woken for nothing, again and again");
    }
}

#[test]
fn at_the_limit_the_whole_inbox_is_searched_for_a_slot() {
    let timers = Timers::new(PORTION + 1);
    let ids: Vec<TimerId> = (0..PORTION + 1).map(|n| timers.once(10, n)).collect();
    timers.without_the_lock(|timers| {
        // The first is settled last.
        assert!(timers.delete(ids[0]).is_some());
        for id in &ids[1..] {
            assert!(timers.reset(*id, 20).is_some());
        }
    });
    timers.once(30, 0);
    assert_eq!(timers.add(30, None, 1), Err(TimerRefused(1)));
}

#[test]
fn nothing_is_allocated_for_a_timer_once_there_were_as_many() {
    let timers = timers();
    let fill = || (0..5000).map(|n| timers.once(n % 77, ())).collect::<Vec<_>>();
    let sizes = || {
        let ledger = timers.lock();
        (ledger.made, ledger.free.capacity(), ledger.heap.capacity())
    };
    for id in fill() {
        assert!(timers.delete(id).is_some());
    }
    let before = sizes();
    for _ in 0..3 {
        fill();
        while timers.run(100, &mut |()| {}).more {}
    }
    assert_eq!(sizes(), before);
}
