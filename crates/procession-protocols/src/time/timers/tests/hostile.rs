//! Actions that use the timers which hold them, and actions that panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

use super::{every, timers};
use crate::time::timers::heap::NEVER;
use crate::time::timers::{TimerCounts, TimerId, Timers};

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
