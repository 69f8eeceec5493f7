//! Goal: the seven operations work as the module documentation describes, at the ends of every
//! range, whatever the actions do, with and without the lock. Method: behaviours one by one; random
//! sequences of operations against a list; and four threads whose books must balance in the end. A
//! thread that holds the lock itself makes its own operations take the path without it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::{Arc, Mutex, thread};
use proptest::prelude::*;

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
        assert_eq!(timers.next(), 50, "or somebody would be woken for nothing, for ever");
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

/// An action that uses its own timers whenever it is cloned or dropped.
struct Reentrant {
    timers: Weak<Timers<Reentrant>>,
    other: TimerId,
    calls: Rc<Cell<u32>>,
}

impl Reentrant {
    fn enter(&self) {
        let Some(timers) = self.timers.upgrade() else { return };
        self.calls.set(self.calls.get() + 1);
        let depth = Self { timers: Weak::new(), other: self.other, calls: Rc::clone(&self.calls) };
        let id = timers.once(NEVER, depth);
        assert!(timers.reset(id, NEVER).is_some());
        assert!(timers.delete(id).is_some());
        assert_eq!(timers.delete(self.other).is_some(), self.calls.get() == 1);
        let _ = timers.run(0, &mut |_| {});
        timers.clean();
        timers.adjust();
        timers.counts();
    }
}

impl Clone for Reentrant {
    fn clone(&self) -> Self {
        self.enter();
        Self { timers: Weak::clone(&self.timers), other: self.other, calls: Rc::clone(&self.calls) }
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        self.enter();
    }
}

#[test]
fn actions_may_use_the_timers_that_hold_them() {
    let timers = Rc::new(timers());
    let calls = Rc::new(Cell::new(0));
    let nobody = TimerId { slot: 0, generation: u32::MAX };
    let idle = |other| Reentrant { timers: Weak::new(), other, calls: Rc::clone(&calls) };
    let other = timers.once(1000, idle(nobody));
    let action = || Reentrant { timers: Rc::downgrade(&timers), other, calls: Rc::clone(&calls) };
    // Clone in `add` and `run`; Drop of a refused action, of a fired one, of a replaced one and of
    // spares.
    let id = timers.periodic(1, 1, action());
    let ran = timers.run(1, &mut |action| {
        assert_eq!(timers.fired(1).len(), 0, "firing again while firing finds nothing due");
        drop(action);
    });
    assert_eq!(ran.fired, 1);
    drop(timers.modify(id, 5, every(5), action()));
    drop(timers.modify(id, 5, None, action()));
    drop(timers.modify(nobody, 5, every(5), action()));
    assert_eq!(timers.run(5, &mut drop).fired, 1);
    let id = timers.periodic(9, 1, action());
    drop(timers.delete(id));
    let id = timers.periodic(9, 1, action());
    drop(timers.delete_apart(id));
    assert!(calls.get() > 10, "they did");
    timers.assert_sound();
}

/// An action that can be told to panic.
struct Fragile<'a> {
    clones: &'a Cell<bool>,
    drops: &'a Cell<bool>,
    dropped: &'a Cell<u32>,
}

impl Clone for Fragile<'_> {
    fn clone(&self) -> Self {
        assert!(!self.clones.get(), "clone");
        Self { ..*self }
    }
}

impl Drop for Fragile<'_> {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
        if self.drops.replace(false) {
            panic!("drop");
        }
    }
}

fn panics<R>(operation: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(operation)).is_err()
}

#[test]
fn a_panicking_action_harms_no_other() {
    let (clones, drops, dropped) = (Cell::new(false), Cell::new(false), Cell::new(0));
    let action = || Fragile { clones: &clones, drops: &drops, dropped: &dropped };
    let timers = timers();
    let id = timers.periodic(10, 10, action());

    clones.set(true);
    assert!(panics(|| timers.run(10, &mut drop)));
    assert_eq!(timers.next(), 20, "the tick is lost");
    assert!(panics(|| timers.add(1, every(1), action())));
    clones.set(false);
    assert_eq!(timers.run(20, &mut drop).fired, 1, "the next one is not");

    assert!(panics(|| timers.run(30, &mut |_| panic!("fire"))));
    drops.set(true);
    assert!(panics(|| timers.run(40, &mut drop)));
    drops.set(true);
    assert!(panics(|| timers.delete(id)));
    assert_eq!(
        timers.counts(),
        TimerCounts { armed: 1, fired: 0, ticks: 4, cancelled: 1, pending: 0 }
    );

    for _ in 0..10 {
        timers.periodic(10, 10, action());
    }
    let before = dropped.get();
    drops.set(true);
    assert!(panics(|| drop(timers)));
    assert_eq!(dropped.get() - before, 20, "each of them, and its spare");
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

#[derive(Clone, Copy, Debug)]
enum Op {
    Add { after: u64, period: u64 },
    Delete { which: usize, locked: bool },
    Reset { which: usize, after: u64, locked: bool },
    Modify { which: usize, after: u64, period: u64 },
    Run { ahead: u64 },
    Clean,
    Adjust,
}

/// Nearby times, far ones, and the ends of the range. Sums with the present saturate.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..20u64, 3 => 0..5000u64, 1 => Just(400 * 24 * 3600 * 1_000_000_000), 1 => Just(u64::MAX - 1), 1 => Just(u64::MAX)]
}

fn period() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 2 => 1..30u64, 1 => Just(u64::MAX)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (time(), period()).prop_map(|(after, period)| Op::Add { after, period }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, locked)| Op::Delete { which, locked }),
        4 => (any::<usize>(), time(), any::<bool>()).prop_map(|(which, after, locked)| Op::Reset { which, after, locked }),
        2 => (any::<usize>(), time(), period()).prop_map(|(which, after, period)| Op::Modify { which, after, period }),
        3 => (0..15u64).prop_map(|ahead| Op::Run { ahead }),
        1 => time().prop_map(|ahead| Op::Run { ahead }),
        1 => Just(Op::Clean),
        1 => Just(Op::Adjust),
    ]
}

/// The expected state of a timer.
#[derive(Clone, Debug)]
struct Expected {
    id: TimerId,
    when: u64,
    period: u64,
    action: u32,
    is_pending: bool,
}

/// The timers as a list, in the order of creation.
#[derive(Default)]
struct List {
    timers: Vec<Expected>,
    now: u64,
}

impl List {
    fn pick(&mut self, which: usize) -> Option<&mut Expected> {
        let length = self.timers.len();
        // The youngest are picked often, since most of the old ones are stale.
        (length > 0).then(|| &mut self.timers[length - 1 - which % length.min(1 + which % 64)])
    }

    fn first(&mut self) -> Option<&mut Expected> {
        self.timers
            .iter_mut()
            .filter(|timer| timer.is_pending && timer.when != NEVER)
            .min_by_key(|timer| timer.when)
    }

    /// Returns the time before which nothing can be due.
    fn next(&mut self) -> u64 {
        self.first().map_or(NEVER, |timer| timer.when)
    }

    fn run(&mut self) -> Vec<u32> {
        let now = self.now;
        let mut fired = Vec::new();
        while fired.len() < FIRINGS_MAX as usize
            && let Some(first) = self.first().filter(|timer| timer.when <= now)
        {
            fired.push(first.action);
            first.is_pending = first.period != 0;
            while first.is_pending && first.when <= now && first.when != NEVER {
                // By the formula if counting would take too long.
                let periods = if now - first.when > 10_000 {
                    ((now - first.when) / first.period).saturating_add(1)
                } else {
                    1
                };
                first.when = first.when.saturating_add(first.period.saturating_mul(periods));
            }
        }
        fired
    }
}

fn follows_the_list(ops: &[Op], created: u32) {
    let timers = Timers::<(u32, Arc<()>)>::starting_at(LIMIT, 0, created);
    let alive = Arc::new(());
    let action = |number| (number, Arc::clone(&alive));
    let mut list = List::default();
    let mut actions = 0;
    for op in ops {
        match *op {
            Op::Add { after, period } => {
                let when = list.now.saturating_add(after);
                let id =
                    timers.add(when, every(period), action(actions)).expect("within the limit").id;
                list.timers.push(Expected { id, when, period, action: actions, is_pending: true });
                actions += 1;
            }
            Op::Delete { which, locked } => {
                let Some(timer) = list.pick(which) else { continue };
                let deleted =
                    if locked { timers.delete(timer.id) } else { timers.delete_apart(timer.id) };
                assert_eq!(
                    deleted.map(|action| action.0),
                    timer.is_pending.then_some(timer.action)
                );
                timer.is_pending = false;
            }
            Op::Reset { which, after, locked } => {
                let when = list.now.saturating_add(after);
                let Some(timer) = list.pick(which) else { continue };
                let reset = if locked {
                    timers.reset(timer.id, when)
                } else {
                    timers.reset_apart(timer.id, when)
                };
                assert_eq!(reset.is_some(), timer.is_pending);
                timer.when = when;
            }
            Op::Modify { which, after, period } => {
                let when = list.now.saturating_add(after);
                let Some(timer) = list.pick(which) else { continue };
                match timers.modify(timer.id, when, every(period), action(actions)) {
                    Ok(modified) => {
                        assert!(timer.is_pending);
                        assert_eq!(modified.replaced.0, timer.action);
                        *timer = Expected { when, period, action: actions, ..timer.clone() };
                    }
                    Err(TimerRefused(refused)) => {
                        assert!(!timer.is_pending);
                        assert_eq!(refused.0, actions);
                    }
                }
                actions += 1;
            }
            Op::Run { ahead } => {
                list.now = list.now.saturating_add(ahead);
                let mut fired = Vec::new();
                let ran = timers.run(list.now, &mut |action| fired.push(action.0));
                assert_eq!(fired, list.run());
                let is_due = list.next() <= list.now && list.next() != NEVER;
                assert!(ran.more || !is_due, "nothing due is forgotten");
            }
            Op::Clean => {
                if timers.clean() < PORTION {
                    assert_eq!(timers.next(), list.next(), "after cleaning, the time is exact");
                }
            }
            Op::Adjust => {
                timers.adjust();
            }
        }
        assert!(timers.next() <= list.next(), "nobody may sleep longer");
    }
    timers.adjust();
    timers.assert_sound();
    let counts = timers.counts();
    assert_eq!(counts.pending, list.timers.iter().filter(|timer| timer.is_pending).count() as u64);
    assert_eq!(counts.armed, list.timers.len() as u64);
    assert_eq!(counts.armed, counts.fired + counts.cancelled + counts.pending);
    drop(timers);
    assert_eq!(Arc::strong_count(&alive), 1, "each action was dropped");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_do_as_on_a_list(ops in prop::collection::vec(op(), 0..200), created in prop_oneof![Just(0), Just(u32::MAX - 20)]) {
        follows_the_list(&ops, created);
    }

    #[test]
    fn a_heap_of_any_shape_is_sound(ops in prop::collection::vec((0..64u32, 0..40u64), 0..300)) {
        let mut heap = Heap::new(0);
        heap.track(64);
        let mut list = Vec::<(u64, u32, u32)>::new();
        for (slot, when) in ops {
            match heap.when_of(slot) {
                None => {
                    let sequence = heap.create();
                    heap.insert(when, sequence, slot);
                    list.push((when, sequence, slot));
                }
                Some(_) if when % 3 == 0 => {
                    heap.remove(slot);
                    list.retain(|entry| entry.2 != slot);
                }
                Some(_) => {
                    heap.change(slot, when);
                    list.iter_mut().filter(|entry| entry.2 == slot).for_each(|entry| entry.0 = when);
                }
            }
            heap.assert_sound();
            assert_eq!(heap.first().map(|key| (key.when(), key.slot())), list.iter().min().map(|entry| (entry.0, entry.2)));
        }
    }
}

/// The record that the threads of the stress test keep of one timer.
#[derive(Debug, Default)]
struct Record {
    fired: AtomicU64,
    /// No firing may be earlier than this.
    not_before: AtomicU64,
    deleted: AtomicU64,
}

/// Four threads add, reset, delete and fire the timers of one heap. Only the thread that added a
/// timer resets it, and therefore knows its deadline; any thread deletes it.
#[test]
fn four_threads_lose_and_double_nothing() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let timers = Arc::new(Timers::<Arc<Record>>::new(LIMIT));
    let clock = Arc::new(AtomicU64::new(1));
    let shelf = Arc::new(Mutex::new(Vec::<TimerId>::new()));
    let threads = [1, 2, 3, 4u64].map(|seed| {
        let (timers, clock, shelf) = (Arc::clone(&timers), Arc::clone(&clock), Arc::clone(&shelf));
        let work = move || {
            let mut random = seed;
            let mut draw = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let fire = |record: Arc<Record>, now: u64| {
                assert_eq!(record.fired.swap(now, SeqCst), 0, "fired twice");
            };
            let mut own: Vec<(TimerId, Arc<Record>)> = Vec::new();
            let mut all = Vec::new();
            for _ in 0..ROUNDS {
                let now = clock.load(SeqCst);
                match draw(10) {
                    0..3 => {
                        let record = Arc::new(Record::default());
                        let when = now + draw(300);
                        record.not_before.store(when, SeqCst);
                        if let Ok(armed) = timers.add(when, None, Arc::clone(&record)) {
                            if draw(2) == 0 {
                                shelf.lock().push(armed.id);
                            }
                            own.push((armed.id, Arc::clone(&record)));
                            all.push(record);
                        }
                    }
                    3..6 if !own.is_empty() => {
                        let which = draw(own.len() as u64) as usize;
                        let (id, record) = &own[which];
                        let (before, when) = (record.not_before.load(SeqCst), now + draw(600));
                        // Either deadline is valid while the reset is under way.
                        record.not_before.fetch_min(when, SeqCst);
                        let kept = timers.reset(*id, when).map_or(before, |_| when);
                        record.not_before.store(kept, SeqCst);
                        if kept == before {
                            own.swap_remove(which);
                        }
                    }
                    6 => {
                        let id = shelf.lock().pop();
                        if let Some(record) = id.and_then(|id| timers.delete(id)) {
                            assert_eq!(record.deleted.fetch_add(1, SeqCst), 0, "deleted twice");
                        }
                    }
                    7 => {
                        clock.fetch_add(draw(20), SeqCst);
                    }
                    8 => {
                        timers.clean();
                    }
                    _ => {
                        let _ = timers.run(now, &mut |record| fire(record, now));
                    }
                }
            }
            all
        };
        #[expect(clippy::disallowed_methods, reason = "these threads are the test")]
        thread::spawn(work)
    });
    let records: Vec<Arc<Record>> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect();
    timers.adjust();
    timers.assert_sound();
    let end = NEVER - 1;
    while timers
        .run(end, &mut |record| assert_eq!(record.fired.swap(end, SeqCst), 0, "fired twice"))
        .more
    {}

    let deleted = records.iter().filter(|record| record.deleted.load(SeqCst) == 1).count() as u64;
    for record in &records {
        let (fired, deleted) = (record.fired.load(SeqCst), record.deleted.load(SeqCst));
        assert!((fired != 0) != (deleted == 1), "a timer ends exactly once: {record:?}");
        assert!(fired == 0 || fired >= record.not_before.load(SeqCst), "early: {record:?}");
    }
    let armed = records.len() as u64;
    assert_eq!(
        timers.counts(),
        TimerCounts { armed, fired: armed - deleted, ticks: 0, cancelled: deleted, pending: 0 }
    );
}

/// Two threads fire periodic timers while a third replaces and deletes them. Each tick uses the
/// action that its timer has then.
#[test]
fn ticks_and_replacements_do_not_mix() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let timers = Arc::new(Timers::<Arc<AtomicU64>>::new(LIMIT));
    let clock = Arc::new(AtomicU64::new(1));
    let runners = [(); 2].map(|()| {
        let (timers, clock) = (Arc::clone(&timers), Arc::clone(&clock));
        let work = move || {
            let mut ticks = 0;
            while clock.load(SeqCst) != NEVER {
                ticks += u64::from(timers.run(clock.load(SeqCst), &mut |_| {}).fired);
            }
            ticks
        };
        #[expect(clippy::disallowed_methods, reason = "these threads are the test")]
        thread::spawn(work)
    });
    let alive = Arc::new(AtomicU64::new(0));
    let ids = RefCell::new(Vec::new());
    for round in 0..ROUNDS {
        let now = clock.fetch_add(3, SeqCst);
        let mut ids = ids.borrow_mut();
        match round % 4 {
            0 => ids.push(timers.periodic(now, 1 + round % 7, Arc::clone(&alive))),
            1 => {
                let id = ids[round as usize % ids.len()];
                assert!(
                    timers.modify(id, now + 1, every(2), Arc::clone(&alive)).is_ok(),
                    "it does not end by itself"
                );
            }
            2 => assert!(
                timers.reset(ids[round as usize % ids.len()], now + 2).is_some(),
                "it does not end by itself"
            ),
            _ if ids.len() > 20 => {
                let which = round as usize % ids.len();
                assert!(
                    timers.delete(ids.swap_remove(which)).is_some(),
                    "it does not end by itself"
                );
            }
            _ => {}
        }
    }
    clock.store(NEVER, SeqCst);
    let ticks: u64 =
        runners.into_iter().map(|runner| runner.join().expect("no thread panics")).sum();
    timers.adjust();
    timers.assert_sound();
    let counts = timers.counts();
    assert_eq!(counts.ticks, ticks);
    assert_eq!(counts.pending, ids.borrow().len() as u64);
    assert_eq!(
        Arc::strong_count(&alive) as u64,
        1 + 2 * counts.pending,
        "each timer has its action and a spare"
    );
}
